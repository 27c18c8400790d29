//! Scores a load against the other candidates': the least loaded gets 1, the most loaded 0.

use epp_plugin_api::Candidates;

/// Writes (max - v) / (max - min) for every candidate; 1 where all are equal.
pub fn less_is_better(values: &[f64], among: &Candidates, scores: &mut [f64]) {
    let (least, most) = range(values, among);
    let spread = most - least;
    if spread > 0.0 {
        super::fill(among, scores, |row| (most - values[row]) / spread);
    } else {
        super::fill(among, scores, |_| 1.0);
    }
}

/// The least and the greatest value of the candidates.
fn range(values: &[f64], among: &Candidates) -> (f64, f64) {
    if among.count() != values.len() {
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        return among.iter().map(|idx| values[idx.row()]).fold(none, |(l, m), v| (lesser(l, v), greater(m, v)));
    }
    // Eight ranges side by side, which the compiler makes vector instructions of.
    let (mut least, mut most) = ([f64::INFINITY; 8], [f64::NEG_INFINITY; 8]);
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (i, &v) in block.iter().enumerate() {
            (least[i], most[i]) = (lesser(least[i], v), greater(most[i], v));
        }
    }
    let all =
        |lanes: [f64; 8], of: fn(f64, f64) -> f64, none| lanes.into_iter().chain(rest.iter().copied()).fold(none, of);
    (all(least, lesser, f64::INFINITY), all(most, greater, f64::NEG_INFINITY))
}

/// The lesser one; `a` if `v` is no number.
fn lesser(a: f64, v: f64) -> f64 {
    if v < a { v } else { a }
}

/// The greater one; `a` if `v` is no number.
fn greater(a: f64, v: f64) -> f64 {
    if v > a { v } else { a }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::EndpointIdx;

    use super::*;

    #[test]
    fn the_range_is_that_of_the_candidates() {
        for n in [1, 7, 8, 9, 20] {
            let mut values: Vec<f64> = (0..n).map(|i| f64::from((i * 7 + 3) % n)).collect();
            values[0] = f64::NAN;
            let mut among = Candidates::all(values.len());
            let sorted = |among: &Candidates| {
                let mut left: Vec<f64> = among.iter().map(|idx| values[idx.row()]).filter(|v| !v.is_nan()).collect();
                left.sort_by(f64::total_cmp);
                (*left.first().unwrap_or(&f64::INFINITY), *left.last().unwrap_or(&f64::NEG_INFINITY))
            };
            assert_eq!(range(&values, &among), sorted(&among), "all of {n}");
            among.remove(EndpointIdx(n as u32 / 2));
            assert_eq!(range(&values, &among), sorted(&among), "but one of {n}");
        }
    }
}
