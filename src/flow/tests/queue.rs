//! What the queue does with a few requests, step by step.

use super::*;
use crate::flow::outcome::Outcome;
use crate::flow::queue::{Arrival, Next, Queue};

/// A queue of names.
struct Bench {
    queue: Queue<&'static str>,
    zero: Instant,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(&Pool::new(1, false), &[10, 0, -1], "global-strict-fairness-policy");
        change(&mut settings);
        Self { queue: Queue::new(settings), zero: Instant::now() }
    }

    fn at(&self, ms: u64) -> Instant {
        self.zero + MS(ms)
    }

    /// A request of 100 bytes; its name begins with that of its flow.
    fn push(&mut self, priority: i32, name: &'static str, ms: u64) {
        let now = self.at(ms);
        let arrival =
            Arrival { priority, flow: &name[..1], bytes: 100, received: now, ttft_objective: None, patience: None };
        self.queue.push(&arrival, name, now);
    }

    /// Who goes, up to where it stops.
    fn gone(&mut self, saturation: f64) -> Vec<&'static str> {
        let now = self.zero;
        let next = || match self.queue.next(saturation, now) {
            Next::Go(gone) => Some(gone.payload),
            Next::Nobody | Next::Held { .. } => None,
        };
        std::iter::from_fn(next).collect()
    }

    fn expired(&mut self, ms: u64) -> Vec<(&'static str, Outcome)> {
        let now = self.at(ms);
        std::iter::from_fn(|| self.queue.expired(now).map(|(gone, outcome)| (gone.payload, outcome))).collect()
    }
}

#[test]
fn the_highest_priority_goes_first() {
    let mut bench = Bench::new(|_| {});
    for (priority, name) in [(-1, "a"), (0, "b"), (10, "c"), (0, "d"), (10, "e")] {
        bench.push(priority, name, 0);
    }
    assert_eq!(bench.gone(0.9), ["c", "e", "b", "d", "a"]);
    assert!(bench.queue.is_empty() && bench.queue.load().bytes == 0);
}

#[test]
fn nobody_goes_at_the_ceiling() {
    let mut bench = Bench::new(|_| {});
    bench.push(0, "a", 0);
    assert_eq!(bench.gone(1.0), [""; 0]);
    assert_eq!(bench.gone(0.999), ["a"]);
}

#[test]
fn a_limit_may_be_reached_and_not_exceeded() {
    for (bytes, requests, in_use, bytes_more, fits) in [
        (Some(100), None, 1, 1, false),
        (Some(110), None, 1, 10, true),
        (Some(110), None, 1, 11, false),
        (None, Some(10), 9, 1, true),
        (None, Some(10), 10, 1, false),
        (None, None, 10, 1_000_000, true),
    ] {
        let mut bench = Bench::new(|s| {
            (s.max_bytes, s.max_requests) = (bytes, requests);
            s.bands.iter_mut().for_each(|band| band.max_bytes = u64::MAX);
        });
        (0..in_use).for_each(|_| bench.push(0, "a", 0));
        assert_eq!(bench.queue.has_room(10, bytes_more).is_ok(), fits, "{bytes:?} {requests:?} {bytes_more}");
    }
}

#[test]
fn a_band_has_limits_of_its_own() {
    let mut bench = Bench::new(|s| s.bands[1].max_requests = 2);
    bench.push(0, "a", 0);
    bench.push(0, "b", 0);
    assert_eq!(bench.queue.has_room(0, 1), Err(Outcome::RejectedCapacity));
    assert_eq!(bench.queue.has_room(10, 1), Ok(()));
    bench.queue.set_empty(true, bench.zero);
    assert_eq!(bench.queue.has_room(0, 1), Err(Outcome::RejectedNoEndpoints));
}

#[test]
fn a_request_leaves_when_it_has_waited_as_long_as_it_may() {
    let mut bench = Bench::new(|s| s.ttl = Some(MS(100)));
    bench.push(0, "a", 0);
    bench.push(0, "b", 10);
    assert_eq!(bench.queue.next_expiry(), Some(bench.at(100)));
    assert_eq!(bench.expired(99), []);
    assert_eq!(bench.expired(100), [("a", Outcome::EvictedTtl)]);
    assert_eq!(bench.expired(200), [("b", Outcome::EvictedTtl)]);
}

#[test]
fn an_empty_pool_has_a_time_of_its_own() {
    let times = |s: &mut Settings| (s.ttl, s.no_endpoint_ttl) = (Some(MS(100)), Some(MS(2000)));
    let mut bench = Bench::new(times);
    bench.queue.set_empty(true, bench.zero);
    bench.push(0, "a", 0);
    assert_eq!(bench.expired(1999), []);
    assert_eq!(bench.expired(2000), [("a", Outcome::EvictedNoEndpoints)]);
    assert!(matches!(bench.queue.next(0.0, bench.zero), Next::Nobody));
}

#[test]
fn endpoints_that_come_begin_the_time_anew() {
    let mut bench = Bench::new(|s| (s.ttl, s.no_endpoint_ttl) = (Some(MS(100)), Some(MS(5000))));
    bench.queue.set_empty(true, bench.zero);
    bench.push(0, "a", 0);
    bench.queue.set_empty(false, bench.at(1000));
    bench.push(0, "b", 1050);
    assert_eq!(bench.expired(1099), []);
    assert_eq!(bench.expired(1100), [("a", Outcome::EvictedTtl)]);
    assert_eq!(bench.expired(1150), [("b", Outcome::EvictedTtl)]);
}

#[test]
fn no_time_is_for_ever_and_so_is_one_beyond_the_clock() {
    for ttl in [None, Some(Duration::MAX)] {
        let mut bench = Bench::new(|s| s.ttl = ttl);
        bench.push(0, "a", 0);
        assert_eq!((bench.queue.next_expiry(), bench.expired(1 << 40)), (None, vec![]));
    }
}

#[test]
fn nobody_goes_while_there_is_no_endpoint() {
    let mut bench = Bench::new(|_| {});
    bench.queue.set_empty(true, bench.zero);
    bench.push(0, "a", 0);
    assert_eq!(bench.gone(0.0), [""; 0]);
}

#[test]
fn a_new_order_holds_for_those_who_wait_already() {
    let mut bench = Bench::new(|_| {});
    for (name, patience) in [("a", 500), ("b", 100), ("c", 300)] {
        let (flow, received) = (name, bench.zero);
        let patience = Some(MS(patience));
        let arrival = Arrival { priority: 0, flow, bytes: 1, received, ttft_objective: None, patience };
        bench.queue.push(&arrival, name, bench.zero);
    }
    let mut changed = bench.queue.settings().clone();
    changed.bands[1].ordering = plugin("edf-ordering-policy").ordering.unwrap();
    bench.queue.reconfigure(changed);
    assert_eq!(bench.gone(0.0), ["b", "c", "a"]);
}

#[test]
fn new_turns_hold_for_those_who_wait_already() {
    let mut bench = Bench::new(|_| {});
    for name in ["a1", "a2", "b1", "c1"] {
        bench.push(0, name, 0);
    }
    let mut changed = bench.queue.settings().clone();
    changed.bands[1] = band(0, 5000, "round-robin-fairness-policy");
    bench.queue.reconfigure(changed);
    assert_eq!(bench.gone(0.0), ["a1", "b1", "c1", "a2"]);
}

#[test]
fn a_band_that_is_no_more_stays_until_it_is_empty() {
    let mut bench = Bench::new(|_| {});
    bench.push(10, "a", 0);
    let mut changed = bench.queue.settings().clone();
    changed.bands.remove(0);
    bench.queue.reconfigure(changed);
    let priorities = |bench: &Bench| bench.queue.bands().iter().map(|b| b.settings.priority).collect::<Vec<_>>();
    assert_eq!(priorities(&bench), [10, 0, -1]);
    assert_eq!(bench.gone(0.0), ["a"]);
    assert_eq!(priorities(&bench), [0, -1]);
}

#[test]
fn a_priority_without_a_band_has_one_while_somebody_waits() {
    let mut bench = Bench::new(|s| s.negative_band.max_requests = 1);
    assert_eq!(bench.queue.has_room(-7, 1), Ok(()));
    bench.push(-7, "a", 0);
    assert_eq!(bench.queue.has_room(-7, 1), Err(Outcome::RejectedCapacity));
    assert_eq!(bench.gone(0.0), ["a"]);
    assert_eq!(bench.queue.bands().len(), 3);
}

#[test]
fn a_shorter_time_holds_for_those_who_wait_already() {
    let mut bench = Bench::new(|_| {});
    bench.push(0, "a", 0);
    let mut changed = bench.queue.settings().clone();
    changed.ttl = Some(MS(50));
    bench.queue.reconfigure(changed);
    assert_eq!(bench.expired(50), [("a", Outcome::EvictedTtl)]);
}

#[test]
fn ten_thousand_flows_leave_nothing_behind() {
    let mut bench = Bench::new(|s| (s.max_requests, s.ttl) = (Some(2), Some(MS(1))));
    for i in 0..10_000 {
        let (now, flow) = (bench.at(i), format!("f{i}"));
        assert_eq!(bench.queue.has_room(0, 1), Ok(()), "after {i} flows");
        let arrival =
            Arrival { priority: 0, flow: &flow, bytes: 1, received: now, ttft_objective: None, patience: None };
        bench.queue.push(&arrival, "x", now);
        // Some go, some stay too long.
        if i % 3 == 0 {
            assert_eq!(bench.gone(0.0).len(), bench.gone(1.0).len() + 1);
        }
        bench.expired(i + 1);
    }
    assert_eq!(bench.queue.load(), Default::default());
    assert!(bench.queue.bands().iter().all(|band| band.flows().len() == 0));
}
