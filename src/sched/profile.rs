//! One scheduling profile: its filters, its scorers with their weights, its picker.

use std::sync::Arc;

use epp_plugin_api::{Cycle, EndpointIdx, Filter, Picker, ProfileRun, Scorer};

use crate::sched::laps::Laps;
use crate::sched::metrics::Timer;
use crate::sched::scratch::Work;

/// A profile ready to run.
pub struct Profile {
    pub name: String,
    pub names: Names,
    pub filters: Vec<(Arc<dyn Filter>, Timer)>,
    pub scorers: Vec<Weighted>,
    pub picker: (Arc<dyn Picker>, Timer),
}

/// The names of a profile and of its plugins, for records.
pub struct Names {
    pub profile: Arc<str>,
    pub filters: Vec<Arc<str>>,
    pub scorers: Vec<Arc<str>>,
    pub picker: Arc<str>,
}

/// A scorer and what its score is multiplied by.
pub struct Weighted {
    pub scorer: Arc<dyn Scorer>,
    pub weight: f64,
    pub timer: Timer,
}

impl Profile {
    /// Runs the profile on all candidates. Leaves who got past the filters in `work.left`, and their totals in
    /// `work.totals`. Each plugin is one of the laps, with what is done with its result.
    pub fn run(&self, cx: &Cycle<'_>, work: &mut Work, laps: &mut Laps) -> ProfileRun {
        let mut picked = work.spare_targets();
        let Work { columns, candidates, left, totals, scores, rng, trail, .. } = work;
        trail.reset();
        left.copy_from(candidates);
        for (filter, timer) in &self.filters {
            if left.is_empty() {
                break;
            }
            filter.filter(cx, columns, left);
            trail.filtered(left);
            timer.observe(laps.lap());
        }
        let rows = cx.snapshot.rows();
        totals.clear();
        totals.resize(rows, 0.0);
        if !left.is_empty() {
            for Weighted { scorer, weight, timer } in &self.scorers {
                scores.clear();
                scores.resize(rows, 0.0);
                scorer.score(cx, columns, left, scores);
                add(totals, scores, *weight);
                trail.scored(scores);
                timer.observe(laps.lap());
            }
            let (picker, timer) = &self.picker;
            picker.pick(left, totals, rng, &mut picked);
            timer.observe(laps.lap());
        }
        if picked.is_empty() {
            work.give_back(picked);
            return ProfileRun::Exhausted;
        }
        ProfileRun::Chose(picked)
    }
}

/// Writes who got past the filters and their totals into `scored`.
pub fn remember_scores(work: &mut Work, profile: usize) {
    let Work { left, totals, scored, .. } = work;
    scored[profile].extend(left.iter().map(|idx: EndpointIdx| (idx, totals[idx.row()])));
}

fn add(totals: &mut [f64], scores: &[f64], weight: f64) {
    for (total, &score) in totals.iter_mut().zip(scores) {
        // What is no number compares false and counts as 0.
        let score = if score > 0.0 { score.min(1.0) } else { 0.0 };
        *total += score * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_clamped_before_it_is_weighted() {
        let mut totals = [0.0; 5];
        add(&mut totals, &[-0.5, 1.5, 0.25, f64::NAN, f64::INFINITY], 2.0);
        assert_eq!(totals, [0.0, 2.0, 0.5, 0.0, 2.0]);
        add(&mut totals, &[1.0; 5], -1.0);
        assert_eq!(totals, [-1.0, 1.0, -0.5, -1.0, 1.0]);
    }
}
