//! Counts observations in buckets with fixed bounds.

/// A histogram; the bucket above the last bound is always there.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// Makes an empty histogram; `bounds` rise, and each is the largest value of its bucket.
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts one value.
    pub(crate) fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }

    /// Walks the bounds, infinity last, each with the number of values up to it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, n| {
            *sum += n;
            Some(*sum)
        }))
    }

    /// How many values were counted.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values.
    pub(crate) fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        let mut h = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 9.0].into_iter().for_each(|v| h.observe(v));
        assert_eq!(h.cumulative().collect::<Vec<_>>(), [(1.0, 2), (2.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((h.count(), h.sum()), (5, 14.0));
    }
}
