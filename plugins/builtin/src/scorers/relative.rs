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

fn range(values: &[f64], among: &Candidates) -> (f64, f64) {
    let wider =
        |(least, most): (f64, f64), v: f64| (if v < least { v } else { least }, if v > most { v } else { most });
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    if among.count() == values.len() {
        values.iter().fold(none, |range, &v| wider(range, v))
    } else {
        among.iter().fold(none, |range, idx| wider(range, values[idx.row()]))
    }
}
