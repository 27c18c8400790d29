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
    /// `work.totals`. Each plugin is one of the laps.
    pub fn run(&self, cx: &Cycle<'_>, work: &mut Work, laps: &mut Laps) -> ProfileRun {
        let mut picked = work.spare_targets();
        let Work { columns, candidates, left, totals, rng, trail, .. } = work;
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
                let scores = trail.next_scores(rows);
                scorer.score(cx, columns, left, scores);
                add(totals, scores, *weight);
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

/// Adds weighted scores to totals, row by row.
pub fn add(totals: &mut [f64], scores: &[f64], weight: f64) {
    for (total, &score) in totals.iter_mut().zip(scores) {
        // What is no number compares false and counts as 0.
        let score = if score > 0.0 { score.min(1.0) } else { 0.0 };
        *total += score * weight;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use epp_plugin_api::{
        Candidates, Columns, EndpointId, EndpointMeta, EndpointName, InferenceRequest, Load, MetricHub, Observed,
        Parsed, Snapshot, SnapshotRow,
    };

    use crate::sched::metrics::SchedMetrics;

    use super::*;

    struct Likes(usize);

    impl Scorer for Likes {
        fn score(&self, _: &Cycle<'_>, _: &Columns, _: &Candidates, scores: &mut [f64]) {
            scores[self.0] = 1.0;
        }
    }

    struct Best;

    impl Picker for Best {
        fn pick(&self, among: &Candidates, totals: &[f64], _: &mut fastrand::Rng, picked: &mut Vec<EndpointIdx>) {
            picked.extend(among.iter().max_by(|a, b| totals[a.row()].total_cmp(&totals[b.row()])));
        }
    }

    fn board(rows: u32) -> Snapshot {
        let rows = (0..rows).map(|i| {
            let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
            let meta = EndpointMeta::new(name, "127.0.0.1".into(), 1, Default::default(), 0);
            SnapshotRow { id: EndpointId::new(i, i + 1), meta: Arc::new(meta), observed: Observed::default() }
        });
        Snapshot::new(1, rows, tokio::time::Instant::now(), std::time::Duration::from_secs(1))
    }

    fn request() -> InferenceRequest {
        epp_plugin_api::testing::request(b"", Parsed::default())
    }

    /// Keeps all but the first rows, so many of them.
    struct Without(usize);

    impl Filter for Without {
        fn filter(&self, _: &Cycle<'_>, _: &Columns, keep: &mut Candidates) {
            keep.retain(|idx| idx.row() >= self.0);
        }
    }

    /// Gives the same score to everyone, and remembers how many they were.
    struct Gives(f64, AtomicUsize);

    impl Scorer for Gives {
        fn score(&self, _: &Cycle<'_>, _: &Columns, among: &Candidates, scores: &mut [f64]) {
            self.1.store(among.count(), Relaxed);
            among.iter().for_each(|idx| scores[idx.row()] = self.0);
        }
    }

    /// What three endpoints total to, how many each scorer has seen, and who was picked.
    fn ran(n_filtered: usize, scores: &[(f64, f64)]) -> (Vec<f64>, Vec<usize>, ProfileRun) {
        let metrics = SchedMetrics::new(&MetricHub::default());
        let timer = || metrics.timer("any", "any", "any");
        let scorers: Vec<_> = scores.iter().map(|(score, _)| Arc::new(Gives(*score, AtomicUsize::new(0)))).collect();
        let weighted = scorers.iter().zip(scores).map(|(scorer, (_, weight))| Weighted {
            scorer: scorer.clone(),
            weight: *weight,
            timer: timer(),
        });
        let names = Names {
            profile: "any".into(),
            filters: vec!["without".into()],
            scorers: vec!["gives".into(); scores.len()],
            picker: "best".into(),
        };
        let profile = Profile {
            name: "any".into(),
            names,
            filters: vec![(Arc::new(Without(n_filtered)), timer())],
            scorers: weighted.collect(),
            picker: (Arc::new(Best), timer()),
        };
        let (snapshot, request) = (board(3), request());
        let load = Load { waiting: snapshot.waiting(), running: snapshot.running(), kv_usage: snapshot.kv_usage() };
        let cx = Cycle { snapshot: &snapshot, request: &request, load, peer: None, now: request.received };
        let mut work = Work::default();
        work.reset(3, ["any"].into_iter());
        let run = profile.run(&cx, &mut work, &mut Laps::start());
        (work.totals, scorers.iter().map(|scorer| scorer.1.load(Relaxed)).collect(), run)
    }

    #[test]
    fn who_gets_past_the_filters_totals_its_weighted_scores() {
        for (scores, total) in [
            ([(0.3, 1.0), (0.8, 1.0)], 1.1),
            ([(0.3, 60.0), (0.8, 40.0)], 50.0),
            ([(-0.5, 1.0), (1.5, 1.0)], 1.0),
            ([(0.3, 0.0), (0.8, 1.0)], 0.8),
        ] {
            let (totals, seen, run) = ran(1, &scores);
            assert!((totals[2] - total).abs() < 1e-9 && totals[1] == totals[2], "{scores:?}: {totals:?}");
            assert_eq!((totals[0], seen), (0.0, vec![2, 2]), "{scores:?}");
            assert!(matches!(&run, ProfileRun::Chose(picked) if picked[0] != EndpointIdx(0)), "{run:?}");
        }
    }

    #[test]
    fn nobody_is_scored_or_picked_when_the_filters_leave_nobody() {
        assert_eq!(ran(3, &[(0.3, 1.0)]), (vec![0.0; 3], vec![0], ProfileRun::Exhausted));
    }

    /// One policy served both stages of a request once, because the second profile ran on the totals of the first.
    #[test]
    fn each_profile_follows_its_own_scorers() {
        let metrics = SchedMetrics::new(&MetricHub::default());
        let timer = || metrics.timer("Scorer", "likes", "likes");
        let profile = |row: usize| Profile {
            name: row.to_string(),
            names: Names {
                profile: row.to_string().into(),
                filters: Vec::new(),
                scorers: vec!["likes".into()],
                picker: "best".into(),
            },
            filters: Vec::new(),
            scorers: vec![Weighted { scorer: Arc::new(Likes(row)), weight: 1.0, timer: timer() }],
            picker: (Arc::new(Best), timer()),
        };
        let (snapshot, request) = (board(3), request());
        let load = Load { waiting: snapshot.waiting(), running: snapshot.running(), kv_usage: snapshot.kv_usage() };
        let cx = Cycle { snapshot: &snapshot, request: &request, load, peer: None, now: request.received };
        let mut work = Work::default();
        work.reset(3, ["decode", "prefill"].into_iter());
        for row in [2, 0, 1] {
            assert_eq!(
                profile(row).run(&cx, &mut work, &mut Laps::start()),
                ProfileRun::Chose(vec![EndpointIdx(row as u32)])
            );
        }
    }

    #[test]
    fn a_score_is_clamped_before_it_is_weighted() {
        let mut totals = [0.0; 5];
        add(&mut totals, &[-0.5, 1.5, 0.25, f64::NAN, f64::INFINITY], 2.0);
        assert_eq!(totals, [0.0, 2.0, 0.5, 0.0, 2.0]);
        add(&mut totals, &[1.0; 5], -1.0);
        assert_eq!(totals, [-1.0, 1.0, -0.5, -1.0, 1.0]);
    }
}
