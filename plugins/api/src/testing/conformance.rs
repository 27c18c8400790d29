//! The rules that every filter, scorer and picker keeps, tried on one built instance of each.

use crate::{Candidates, Columns, EndpointIdx, Filter, Picker, PluginType, Scorer, Snapshot};

use super::{Rig, Row, cycle, request, snapshot};

/// Tries the rules of its kinds on an instance with these parameters, as a test. Needs the feature `testing`.
#[macro_export]
macro_rules! conformance {
    ($kind:expr, $parameters:expr) => {
        #[test]
        fn keeps_the_rules_of_its_kind() {
            $crate::testing::conformance::check(&$kind, $parameters);
        }
    };
}

/// Panics at the first rule that an instance with these parameters breaks.
pub fn check(kind: &PluginType, parameters: serde_json::Value) {
    assert!(!kind.summary.is_empty() && kind.summary.ends_with('.'), "the summary of {} is no sentence", kind.name);
    let rig = Rig::default();
    let instance = rig.build(kind, parameters);
    for snapshot in snapshots() {
        for among in subsets(snapshot.rows()) {
            if let Some(scorer) = &instance.scorer {
                scores_are_sound(&**scorer, &snapshot, &among);
            }
            if let Some(filter) = &instance.filter {
                filters_only_clear(&**filter, &snapshot, &among);
            }
            if let Some(picker) = &instance.picker {
                picks_are_distinct_candidates(&**picker, &among);
            }
        }
    }
}

/// Nobody, one, one that was never heard, and more than a word's worth of bits, some heard and some not.
fn snapshots() -> Vec<Snapshot> {
    let mixed = (0..130).map(|i| match i % 3 {
        0 => Row::default(),
        1 => Row::heard(0.0, 0.0, 0.0),
        _ => Row::heard(f64::from(i), 1e9, 1.5),
    });
    vec![
        snapshot(1, []),
        snapshot(2, [Row::heard(3.0, 2.0, 0.5)]),
        snapshot(3, [Row::default()]),
        snapshot(4, mixed),
        snapshot(5, vec![Row::default(); 64]),
    ]
}

fn subsets(rows: usize) -> Vec<Candidates> {
    let mut some = Candidates::all(rows);
    some.retain(|i| i.0 % 5 == 2);
    vec![Candidates::all(rows), some, Candidates::none(rows)]
}

/// Without any column: what a producer that failed leaves.
fn bare(rows: usize) -> Columns {
    let mut columns = Columns::default();
    columns.reset(rows);
    columns
}

fn scores_are_sound(scorer: &dyn Scorer, snapshot: &Snapshot, among: &Candidates) {
    let (request, columns) = (request(b"", Default::default()), bare(snapshot.rows()));
    let cx = cycle(snapshot, &request);
    let mut first = vec![0.0; snapshot.rows()];
    scorer.score(&cx, &columns, among, &mut first);
    for idx in snapshot.indices() {
        let score = first[idx.row()];
        assert!((0.0..=1.0).contains(&score), "row {} scores {score}", idx.row());
        assert!(among.contains(idx) || score == 0.0, "row {} is no candidate and scores {score}", idx.row());
    }
    let mut second = vec![0.0; snapshot.rows()];
    scorer.score(&cx, &columns, among, &mut second);
    assert_eq!(first, second, "equal inputs score differently");
}

fn filters_only_clear(filter: &dyn Filter, snapshot: &Snapshot, among: &Candidates) {
    let (request, columns) = (request(b"", Default::default()), bare(snapshot.rows()));
    let cx = cycle(snapshot, &request);
    let (mut first, mut second) = (among.clone(), among.clone());
    filter.filter(&cx, &columns, &mut first);
    filter.filter(&cx, &columns, &mut second);
    assert_eq!(first, second, "equal inputs keep different endpoints");
    assert_eq!(first.rows(), among.rows());
    assert!(first.iter().all(|i| among.contains(i)), "an endpoint was put in");
}

fn picks_are_distinct_candidates(picker: &dyn Picker, among: &Candidates) {
    if among.is_empty() {
        return;
    }
    let odd = [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-300];
    let totals: Vec<f64> = (0..among.rows()).map(|row| odd[row % odd.len()]).collect();
    let pick = |seed| {
        let mut picked: Vec<EndpointIdx> = Vec::new();
        picker.pick(among, &totals, &mut fastrand::Rng::with_seed(seed), &mut picked);
        picked
    };
    for seed in 0..20 {
        let picked = pick(seed);
        assert!(!picked.is_empty() && picked.iter().all(|&i| among.contains(i)), "{picked:?}");
        let mut distinct = picked.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), picked.len(), "one endpoint twice");
        assert_eq!(picked, pick(seed), "equal seeds pick differently");
    }
}
