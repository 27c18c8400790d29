//! Tests of who waits in a burst and who goes where.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use epp_plugin_api::EndpointName;

use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

#[derive(Default)]
struct Rings(AtomicUsize);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A crowd before three replicas, with a window of 600 ms and a gap of 30 ms. Groups are placed at once.
struct Bench {
    crowd: Crowd,
    names: Vec<EndpointName>,
    start: Instant,
    rings: Arc<Rings>,
}

impl Bench {
    fn new(most_per_replica: usize, least_shared: usize, most: usize) -> Self {
        Self::with_turn(MS(0), most_per_replica, least_shared, most)
    }

    fn with_turn(turn: Duration, most_per_replica: usize, least_shared: usize, most: usize) -> Self {
        let rules = Rules { most_per_replica, least_shared, by_tokens: false };
        let names = (1..=3).map(|i| EndpointName { namespace: "default".into(), name: format!("pod{i}") }).collect();
        let crowd = Crowd::new(rules, Times { window: MS(600), gap: MS(30), turn }, most);
        Self { crowd, names, start: Instant::now(), rings: Arc::default() }
    }

    fn pod(n: u32) -> EndpointId {
        EndpointId::new(n - 1, 1)
    }

    fn join(&mut self, at: u64, keys: &[u64]) -> MemberId {
        let waker = Waker::from(self.rings.clone());
        let replicas = replicas(&self.names);
        self.crowd.join(keys, self.start + MS(at), waker, &replicas).unwrap()
    }

    /// Until how many milliseconds after the start the member waits.
    fn wait(&mut self, at: u64, id: MemberId) -> Option<u64> {
        let until = self.crowd.wait(id, self.start + MS(at), &replicas(&self.names));
        until.map(|until| (until - self.start).as_millis() as u64)
    }

    fn place(&self, id: MemberId) -> Option<usize> {
        self.crowd.place_of(id).map(|on| on.slot() + 1)
    }

    fn picked(&mut self, id: MemberId, pod: u32) {
        self.crowd.picked(id, Self::pod(pod), &replicas(&self.names));
    }
}

fn replicas(names: &[EndpointName]) -> Vec<Replica<'_>> {
    let replica = |(i, name)| Replica { id: EndpointId::new(i as u32, 1), running: 0.0, name };
    names.iter().enumerate().map(replica).collect()
}

#[test]
fn the_second_of_a_group_lets_the_first_go() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let first = bench.join(0, &[1, 2]);
    assert_eq!((bench.wait(0, first), bench.rings.0.load(Relaxed)), (Some(30), 0));
    let second = bench.join(3, &[1, 2]);
    assert_eq!((bench.wait(3, first), bench.wait(3, second)), (None, None));
    assert_eq!((bench.place(first), bench.place(second)), (Some(1), Some(1)));
    assert!(bench.rings.0.load(Relaxed) > 0, "the first is not woken");
    let third = bench.join(500, &[1, 2]);
    assert_eq!((bench.wait(500, third), bench.place(third)), (None, Some(1)));
}

#[test]
fn a_lone_member_waits_until_nobody_comes_and_at_most_one_window() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let lone = bench.join(0, &[1]);
    for at in (20..600).step_by(20) {
        bench.join(at, &[1000 + at]);
        assert_eq!(bench.wait(at, lone), Some((at + 30).min(600)));
    }
    bench.join(600, &[3]);
    assert_eq!((bench.wait(600, lone), bench.place(lone)), (None, None));
    let (members, waiting, _) = bench.crowd.counts();
    assert_eq!((members, waiting), (31, 30), "only the one whose window is over goes on");
    assert_eq!(bench.wait(630, 5), None);
    assert_eq!(bench.crowd.counts().1, 0, "now it is quiet for all");
}

#[test]
fn who_follows_a_lone_request_in_flight_goes_where_it_went() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let lone = bench.join(0, &[1]);
    assert_eq!((bench.wait(30, lone), bench.place(lone)), (None, None));
    let between = bench.join(31, &[1]);
    assert_eq!(bench.wait(31, between), Some(61), "it is not yet known where the first one goes");
    bench.picked(lone, 3);
    assert_eq!((bench.wait(32, between), bench.place(between)), (None, Some(3)));
    let late = bench.join(599, &[1]);
    assert_eq!(bench.place(late), Some(3));
}

#[test]
fn nothing_is_remembered_of_a_lone_request_that_is_over() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let lone = bench.join(0, &[1]);
    bench.wait(30, lone);
    bench.picked(lone, 3);
    bench.crowd.over(lone);
    assert_eq!(bench.crowd.counts(), (0, 0, 0));
    let cut = bench.join(31, &[1]);
    bench.crowd.cut_short(cut);
    assert_eq!(bench.crowd.counts(), (0, 0, 0), "one that is cut short while it waits leaves nothing");
}

#[test]
fn who_comes_alone_when_its_group_is_over_is_alone() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let (a, b) = (bench.join(0, &[1]), bench.join(1, &[1]));
    bench.picked(a, 1);
    bench.picked(b, 1);
    bench.crowd.over(a);
    let c = bench.join(2, &[1]);
    assert_eq!(bench.place(c), Some(1), "one of its group is in flight");
    bench.crowd.over(b);
    bench.crowd.over(c);
    let d = bench.join(3, &[1]);
    assert_eq!((bench.wait(3, d), bench.wait(33, d), bench.place(d)), (Some(33), None, None));
}

#[test]
fn two_who_come_when_their_group_is_over_go_where_it_went_and_others_do_not() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    for id in [bench.join(0, &[1]), bench.join(0, &[1])] {
        bench.crowd.over(id);
    }
    let other = [bench.join(1, &[2]), bench.join(1, &[2])].map(|id| bench.place(id));
    let same = [bench.join(2, &[1]), bench.join(2, &[1])].map(|id| bench.place(id));
    assert_eq!((other, same), ([Some(2), Some(2)], [Some(1), Some(1)]));
    for id in 2..6 {
        bench.crowd.over(id);
    }
    let late = bench.join(602, &[3]);
    bench.crowd.over(late);
    assert_eq!(bench.crowd.counts(), (0, 0, 0), "a window later all is forgotten");
    assert!(format!("{:?}", bench.crowd).contains("loads: {}"), "{:?}", bench.crowd);
}

#[test]
fn a_request_whose_end_is_not_told_counts_for_one_window() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let (a, b) = (bench.join(0, &[1]), bench.join(1, &[1]));
    for id in [a, b] {
        bench.picked(id, 1);
        bench.crowd.end_unknown(id);
        bench.crowd.over(id);
    }
    let c = bench.join(600, &[1]);
    assert_eq!(bench.place(c), Some(1));
    bench.crowd.over(c);
    let d = bench.join(601, &[1]);
    assert_eq!((bench.place(d), bench.crowd.counts()), (None, (2, 1, 1)));
}

#[test]
fn a_request_in_flight_for_longer_than_a_window_draws_nobody() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let lone = bench.join(0, &[1]);
    bench.wait(30, lone);
    bench.picked(lone, 2);
    let late = bench.join(600, &[1]);
    assert_eq!((bench.place(late), bench.wait(600, late)), (None, Some(630)));
}

#[test]
fn a_group_goes_on_at_the_next_replica_when_one_is_full() {
    let mut bench = Bench::new(2, 0, 100);
    let ids: Vec<_> = (0..8).map(|at| bench.join(at, &[1])).collect();
    let places: Vec<_> = ids.iter().map(|id| bench.place(*id)).collect();
    assert_eq!(places, [1, 1, 2, 2, 3, 3, 1, 2].map(Some));
}

#[test]
fn a_group_follows_a_pick_that_went_elsewhere() {
    let mut bench = Bench::new(usize::MAX, 0, 100);
    let (a, b) = (bench.join(0, &[1]), bench.join(1, &[1]));
    bench.picked(a, 2);
    bench.picked(b, 2);
    let c = bench.join(2, &[1]);
    assert_eq!(bench.place(c), Some(2));
    let (x, y) = (bench.join(3, &[2]), bench.join(4, &[2]));
    assert_eq!((bench.place(x), bench.place(y)), (Some(1), Some(1)), "the first replica carries nothing any more");
}

#[test]
fn single_members_of_a_family_are_placed_once_it_is_quiet() {
    let mut bench = Bench::new(usize::MAX, 2, 100);
    let ids: Vec<_> = [[1, 2, 3], [1, 2, 4], [7, 8, 9]].iter().map(|keys| bench.join(0, keys)).collect();
    assert_eq!(bench.wait(29, ids[0]), Some(30));
    assert_eq!(bench.wait(30, ids[2]), None);
    // Each replica's share is one member, so the second one does not follow the first.
    assert_eq!(ids.iter().map(|id| bench.place(*id)).collect::<Vec<_>>(), [Some(1), Some(2), None]);
}

#[test]
fn groups_are_placed_together_the_longer_ones_first() {
    let mut bench = Bench::with_turn(MS(6), usize::MAX, 0, 100);
    let short = [bench.join(0, &[5]), bench.join(1, &[5])];
    assert_eq!((bench.wait(1, short[0]), bench.rings.0.load(Relaxed)), (Some(7), 2));
    let lone = bench.join(5, &[9]);
    let long = [bench.join(6, &[1, 2]), bench.join(6, &[1, 2])];
    assert_eq!(bench.wait(7, short[0]), Some(12), "somebody came");
    assert_eq!(bench.wait(12, long[0]), None);
    assert_eq!([long[0], long[1], short[0], short[1]].map(|id| bench.place(id)), [1, 1, 2, 2].map(Some));
    assert_eq!(bench.wait(12, lone), Some(36));
    let late = bench.join(13, &[5]);
    assert_eq!((bench.place(late), bench.wait(13, late)), (Some(2), None));
}

#[test]
fn groups_wait_for_others_no_longer_than_two_turns() {
    let mut bench = Bench::with_turn(MS(6), usize::MAX, 0, 100);
    let ids = [bench.join(0, &[5]), bench.join(1, &[5])];
    for at in 2..12 {
        bench.join(at, &[100 + at]);
    }
    assert_eq!(bench.wait(12, ids[0]), Some(13));
    assert_eq!((bench.wait(13, ids[1]), bench.place(ids[0])), (None, Some(1)));
    let next = [bench.join(14, &[6]), bench.join(15, &[6])];
    assert_eq!(bench.wait(15, next[0]), Some(21), "the next groups have their own turn");
}

#[test]
fn a_full_crowd_takes_nobody_in() {
    let mut bench = Bench::new(usize::MAX, 0, 2);
    let (a, _) = (bench.join(0, &[1]), bench.join(0, &[1]));
    let names = bench.names.clone();
    let third = bench.crowd.join(&[1], bench.start, Waker::noop().clone(), &replicas(&names));
    assert_eq!(third, Err("expected at most 2 requests in a burst, found one more".into()));
    bench.crowd.cut_short(a);
    bench.join(1, &[1]);
}
