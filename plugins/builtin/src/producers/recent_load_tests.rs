//! Tests of the recent load producer.

use serde_json::json;

use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!({"halfLife": "1m"}));

const S: fn(u64) -> Duration = Duration::from_secs;

/// A producer with a half-life of 10 s, and what would be counted.
struct Bench {
    rig: Rig,
    producer: Arc<dyn Producer>,
    begin: Instant,
}

impl Bench {
    fn new() -> Self {
        let rig = Rig::default();
        let producer = rig.build(&TYPE, json!({"halfLife": "10s"})).producer.unwrap();
        Self { rig, producer, begin: Instant::now() }
    }

    /// Something is picked at this time, with so much in flight; the means, in thousandths.
    fn at(&self, time: Duration, board: &Snapshot, in_flight: &[i64]) -> Vec<u32> {
        let counts: Vec<_> = in_flight.iter().map(|&requests| InFlight { requests, tokens: 0 }).collect();
        let mut columns = self.rig.column("inflight-load-producer", &counts);
        let request = request(b"", epp_plugin_api::Parsed::default());
        let cx = Cycle { now: self.begin + time, ..cycle(board, &request) };
        self.producer.refresh(&cx, &mut columns);
        let recent = columns.read(self.rig.slots.column::<RecentLoad>(TYPE.name)).unwrap();
        recent.iter().map(|load| load.milli_requests).collect()
    }
}

fn board(membership: u64, rows: usize) -> Snapshot {
    snapshot(membership, vec![Row::default(); rows])
}

#[test]
fn a_count_weighs_as_long_as_it_held_and_half_after_the_half_life() {
    let (bench, two) = (Bench::new(), board(1, 2));
    assert_eq!(bench.at(S(0), &two, &[4, 0]), [0, 0], "nothing is known yet");
    assert_eq!(bench.at(S(10), &two, &[4, 1]), [4000, 1000]);
    // The 10 s with 0 in flight weigh 1/2, those before 1/4.
    assert_eq!(bench.at(S(20), &two, &[0, 1]), [1333, 1000]);
    // 20 s with 8 weigh 3/4, the others 1/8 and 1/16.
    assert_eq!(bench.at(S(40), &two, &[8, 1]), [6667, 1000]);
}

#[test]
fn moments_that_are_close_count_as_one() {
    let (bench, one) = (Bench::new(), board(1, 1));
    bench.at(S(0), &one, &[2]);
    assert_eq!(bench.at(S(10), &one, &[2]), [2000]);
    let soon = S(10) + Duration::from_millis(9);
    assert_eq!(bench.at(soon, &one, &[1_000_000]), [2000]);
    assert!(bench.at(soon + Duration::from_millis(1), &one, &[1_000_000])[0] > 2000);
}

#[test]
fn a_new_endpoint_has_the_mean_of_the_others() {
    let bench = Bench::new();
    bench.at(S(0), &board(1, 2), &[0, 0]);
    assert_eq!(bench.at(S(10), &board(1, 2), &[4, 2]), [4000, 2000]);
    assert_eq!(bench.at(S(10), &board(2, 3), &[4, 2, 0]), [4000, 2000, 3000]);
    assert_eq!(bench.at(S(20), &board(2, 3), &[4, 2, 0]), [4000, 2000, 1000]);
}

#[test]
fn time_that_runs_back_changes_nothing() {
    let (bench, one) = (Bench::new(), board(1, 1));
    bench.at(S(10), &one, &[2]);
    assert_eq!(bench.at(S(20), &one, &[2]), [2000]);
    assert_eq!(bench.at(S(5), &one, &[9]), [2000]);
}

#[test]
fn without_counts_all_have_nothing() {
    let bench = Bench::new();
    let mut columns = Columns::default();
    columns.reset(2);
    let (two, request) = (board(1, 2), request(b"", epp_plugin_api::Parsed::default()));
    bench.producer.refresh(&cycle(&two, &request), &mut columns);
    let recent = columns.read(bench.rig.slots.column::<RecentLoad>(TYPE.name)).unwrap();
    assert_eq!(recent, [RecentLoad::default(); 2]);
}

#[test]
fn a_half_life_is_a_time_above_0() {
    for (half_life, why) in [
        ("0s", "halfLife: expected a duration above 0, found 0"),
        ("soon", "halfLife: expected a duration such as 200ms or 1m30s, found \"soon\""),
    ] {
        let refused = Rig::default().refused(&TYPE, json!({"halfLife": half_life}));
        assert_eq!(refused, why);
    }
}
