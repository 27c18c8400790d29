//! Values over time, in so few buckets that they can be drawn: they double in length whenever there are too many.

use std::time::Duration;

/// At most so many buckets; half as many after they have doubled.
const MOST: usize = 60;
/// What a bucket is at first.
const FIRST: Duration = Duration::from_millis(100);

/// Sums of value times time, in buckets of time.
#[derive(Debug)]
pub(super) struct Line {
    each: Duration,
    areas: Vec<f64>,
}

impl Default for Line {
    fn default() -> Self {
        Self { each: FIRST, areas: Vec::new() }
    }
}

impl Line {
    /// Counts a value that held from `from` to `to`.
    pub fn add(&mut self, from: Duration, to: Duration, value: f64) {
        self.reach(to);
        if value == 0.0 {
            return;
        }
        let mut at = from;
        while at < to {
            let bucket = self.bucket(at);
            let end = to.min(self.each * (bucket as u32 + 1));
            self.areas[bucket] += value * (end - at).as_secs_f64();
            at = end;
        }
    }

    /// Means of the buckets, when they are this long; the last one may have begun only.
    pub fn means(mut self, each: Duration, end: Duration) -> Vec<f64> {
        while self.each < each {
            self.halve();
        }
        self.areas.resize(end.as_nanos().div_ceil(each.as_nanos()) as usize, 0.0);
        let length = |bucket: usize| (end - self.each * bucket as u32).min(self.each).as_secs_f64();
        self.areas.iter().enumerate().map(|(bucket, area)| area / length(bucket)).collect()
    }

    /// How long a bucket must be for this much time.
    pub fn each_for(end: Duration) -> Duration {
        let mut each = FIRST;
        while end > each * MOST as u32 {
            each *= 2;
        }
        each
    }

    fn reach(&mut self, to: Duration) {
        while to > self.each * MOST as u32 {
            self.halve();
        }
        let n = to.as_nanos().div_ceil(self.each.as_nanos()) as usize;
        if self.areas.len() < n {
            self.areas.resize(n, 0.0);
        }
    }

    fn bucket(&self, at: Duration) -> usize {
        (at.as_nanos() / self.each.as_nanos()) as usize
    }

    fn halve(&mut self) {
        self.each *= 2;
        self.areas = self.areas.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_value_counts_in_each_bucket_for_as_long_as_it_held() {
        let mut line = Line::default();
        line.add(50 * MS, 250 * MS, 2.0);
        let means = line.means(100 * MS, 250 * MS);
        assert_eq!(means, [1.0, 2.0, 2.0]);
    }

    #[test]
    fn buckets_double_when_there_are_too_many() {
        let mut line = Line::default();
        let end = Duration::from_secs(3600);
        line.add(Duration::ZERO, end, 3.0);
        let each = Line::each_for(end);
        let means = line.means(each, end);
        assert!((MOST / 2..=MOST).contains(&means.len()));
        assert!(means.iter().all(|mean| (mean - 3.0).abs() < 1e-9));
    }

    #[test]
    fn nothing_at_all_is_no_bucket() {
        assert_eq!(Line::default().means(100 * MS, Duration::ZERO), [0.0; 0]);
    }
}
