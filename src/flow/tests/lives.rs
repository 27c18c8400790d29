//! Random arrivals, departures, ends, times, reloads: what holds after every step, and that everything comes to an end.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::flow::core::{Core, Effects, Entered, World};
use crate::flow::eviction::Run;
use crate::flow::outcome::Outcome;
use crate::flow::queue::Arrival;
use crate::flow::ticket::Ticket;

const PRIORITIES: [i32; 4] = [10, 0, -1, -5];
const POLICIES: [&str; 3] = ["global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness"];

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        priority: usize,
        flow: u8,
        bytes: u64,
        patience: Option<u64>,
    },
    /// The nth that waits leaves.
    Cancel(usize),
    /// The nth that was let go gets under way, or does not.
    Depart(usize, bool),
    /// The nth that is under way ends.
    End(usize),
    Pass(u64),
    Room(u64),
    Endpoints(u32),
    Reload {
        policy: usize,
        most: u64,
        bands: usize,
        eviction: bool,
        ttl: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_usize, 0..5_u8, 0..2000_u64, prop::option::of(1..500_u64))
            .prop_map(|(priority, flow, bytes, patience)| Step::Arrive { priority, flow, bytes, patience }),
        2 => (0..20_usize).prop_map(Step::Cancel),
        4 => ((0..20_usize), any::<bool>()).prop_map(|(at, goes)| Step::Depart(at, goes)),
        4 => (0..20_usize).prop_map(Step::End),
        3 => (0..300_u64).prop_map(Step::Pass),
        1 => (1..6_u64).prop_map(Step::Room),
        1 => (0..3_u32).prop_map(Step::Endpoints),
        1 => (0..3_usize, 1..30_u64, 1..5_usize, any::<bool>(), 1..1000_u64)
            .prop_map(|(policy, most, bands, eviction, ttl)| Step::Reload { policy, most, bands, eviction, ttl }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Waits(Ticket),
    Departing,
    Runs(Option<Run>),
    Over,
}

/// One request as the test knows it.
#[derive(Debug)]
struct Life {
    priority: i32,
    bytes: u64,
    stage: Stage,
    outcomes: Vec<Outcome>,
}

/// A pool, a queue before it, and everyone who ever came.
struct Trial {
    core: Core<usize, usize>,
    pool: Arc<Pool>,
    snapshot: Snapshot,
    now: Instant,
    lives: Vec<Life>,
    /// Those that were told to end.
    evicted: Vec<usize>,
}

impl Trial {
    fn new(is_late: bool) -> Self {
        let (pool, now) = (Pool::new(3, is_late), Instant::now());
        let snapshot = endpoints(2);
        let settings = settings(&pool, &PRIORITIES, POLICIES[0]);
        let core = Core::new(settings, MS(300), World { snapshot: &snapshot, now });
        Self { core, pool, snapshot, now, lives: Vec::new(), evicted: Vec::new() }
    }

    fn act<T>(&mut self, step: impl FnOnce(&mut Core<usize, usize>, World<'_>, &mut Effects<usize, usize>) -> T) -> T {
        let mut effects = Effects::default();
        let result = step(&mut self.core, World { snapshot: &self.snapshot, now: self.now }, &mut effects);
        for (gone, outcome) in effects.left {
            let life = &mut self.lives[gone.payload];
            assert_eq!((gone.priority, gone.bytes), (life.priority, life.bytes));
            life.outcomes.push(outcome);
            life.stage = if outcome == Outcome::Dispatched { Stage::Departing } else { Stage::Over };
            if outcome == Outcome::Dispatched {
                let priority = life.priority;
                let passed_over = self.lives.iter().filter(|l| matches!(l.stage, Stage::Waits(_)));
                // Everybody above has left before, in this very step or an earlier one.
                assert!(passed_over.clone().all(|l| l.priority <= priority), "a lower priority went first");
            }
        }
        self.evicted.extend(effects.evict);
        result
    }

    fn nth(&self, n: usize, is: impl Fn(&Stage) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.lives.len()).filter(|i| is(&self.lives[*i].stage)).collect();
        (!all.is_empty()).then(|| all[n % all.len()])
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Arrive { priority, flow, bytes, patience } => {
                self.arrive(PRIORITIES[priority], flow, bytes, patience)
            }
            Step::Cancel(n) => {
                if let Some(at) = self.nth(n, |stage| matches!(stage, Stage::Waits(_)))
                    && let Stage::Waits(ticket) = self.lives[at].stage
                {
                    self.act(|core, world, effects| core.cancel(ticket, world, effects));
                    assert_eq!(self.lives[at].outcomes, [Outcome::EvictedContextCancelled]);
                }
            }
            Step::Depart(n, goes) => {
                if let Some(at) = self.nth(n, |stage| *stage == Stage::Departing) {
                    let (priority, bytes) = (self.lives[at].priority, self.lives[at].bytes);
                    if goes {
                        self.pool.in_flight.fetch_add(1, Relaxed);
                        let run = self.core.begin(priority, self.now, || at);
                        self.lives[at].stage = Stage::Runs(run);
                    } else {
                        self.lives[at].stage = Stage::Over;
                    }
                    self.act(|core, world, effects| core.departed(bytes, world, effects));
                }
            }
            Step::End(n) => {
                // Who was told to end does so first.
                let told = self.evicted.pop().filter(|at| matches!(self.lives[*at].stage, Stage::Runs(_)));
                if let Some(at) = told.or_else(|| self.nth(n, |stage| matches!(stage, Stage::Runs(_)))) {
                    self.end(at);
                }
            }
            Step::Pass(ms) => {
                self.now += MS(ms);
                self.look();
                assert!(self.core.queue.next_expiry().is_none_or(|at| at > self.now), "somebody stayed too long");
            }
            Step::Room(most) => {
                self.pool.most.store(most, Relaxed);
                self.look();
            }
            Step::Endpoints(n) => {
                self.snapshot = endpoints(n);
                self.look();
            }
            Step::Reload { policy, most, bands, eviction, ttl } => {
                let mut new = settings(&self.pool, &PRIORITIES[..bands], POLICIES[policy]);
                (new.max_requests, new.eviction, new.ttl) = (Some(most), eviction, Some(MS(ttl)));
                let before = self.waiting();
                self.act(|core, world, effects| core.reconfigure(new, world, effects));
                let left = before.iter().filter(|at| !matches!(self.lives[**at].stage, Stage::Waits(_)));
                let of_old_age = |at: &usize| self.lives[*at].outcomes == [Outcome::EvictedTtl];
                assert!(left.copied().all(|at| self.lives[at].outcomes == [Outcome::Dispatched] || of_old_age(&at)));
            }
        }
    }

    fn arrive(&mut self, priority: i32, flow: u8, bytes: u64, patience: Option<u64>) {
        let (at, flow) = (self.lives.len(), format!("f{flow}"));
        self.lives.push(Life { priority, bytes, stage: Stage::Over, outcomes: Vec::new() });
        let (load, limits) = (self.core.queue.load(), self.core.queue.settings().clone());
        let arrival = Arrival {
            priority,
            flow: &flow,
            bytes,
            received: self.now,
            ttft_objective: None,
            patience: patience.map(MS),
        };
        // What leaves in this very step is found waiting.
        self.lives[at].stage = Stage::Departing;
        match self.act(|core, world, effects| core.arrive(&arrival, || at, world, effects)) {
            Entered::Refused(outcome) => {
                assert!(limits.max_requests.is_some_and(|most| load.requests >= most) || bytes > 0);
                self.lives[at].outcomes.push(outcome);
                self.lives[at].stage = Stage::Over;
            }
            Entered::Goes => {
                assert_eq!(load.requests, 0, "somebody was overtaken");
                self.lives[at].outcomes.push(Outcome::Dispatched);
            }
            Entered::Waits(ticket) => {
                assert!(limits.max_requests.is_none_or(|most| load.requests < most));
                if self.lives[at].outcomes.is_empty() {
                    self.lives[at].stage = Stage::Waits(ticket);
                }
            }
        }
    }

    fn end(&mut self, at: usize) {
        let Stage::Runs(run) = self.lives[at].stage else { return };
        self.lives[at].stage = Stage::Over;
        self.pool.in_flight.fetch_sub(1, Relaxed);
        match run {
            Some(run) => self.act(|core, world, effects| core.end(run, world, effects)),
            None => self.look(),
        }
    }

    fn look(&mut self) {
        self.act(|core, world, effects| core.look(world, effects));
    }

    fn waiting(&self) -> Vec<usize> {
        (0..self.lives.len()).filter(|at| matches!(self.lives[*at].stage, Stage::Waits(_))).collect()
    }

    /// What holds at any time.
    fn check(&self) {
        let waiting = self.waiting();
        let load = self.core.queue.load();
        assert_eq!(load.requests, waiting.len() as u64);
        assert_eq!(load.bytes, waiting.iter().map(|at| self.lives[*at].bytes).sum::<u64>());
        for (at, life) in self.lives.iter().enumerate() {
            let n = usize::from(!matches!(life.stage, Stage::Waits(_)));
            assert_eq!(life.outcomes.len(), n, "request {at}: {life:?}");
        }
        let departing = self.lives.iter().filter(|life| life.stage == Stage::Departing);
        assert_eq!(self.core.departing().requests, departing.clone().count() as u64);
        assert_eq!(self.core.departing().bytes, departing.map(|life| life.bytes).sum::<u64>());
    }

    /// Lets no more come; everything must come to an end.
    fn wind_up(&mut self) {
        self.act(|core, _, effects| core.close(effects));
        while let Some(at) = self.nth(0, |stage| *stage == Stage::Departing) {
            let bytes = self.lives[at].bytes;
            self.lives[at].stage = Stage::Over;
            self.act(|core, world, effects| core.departed(bytes, world, effects));
        }
        while let Some(at) = self.nth(0, |stage| matches!(stage, Stage::Runs(_))) {
            self.end(at);
        }
        self.check();
        assert_eq!((self.core.queue.load(), self.core.running.in_flight()), Default::default());
        self.now += MS(20_000);
        self.look();
        assert!(self.core.reclaim.is_settled() && self.core.next_look().is_none());
    }
}

proptest! {
    #[test]
    fn every_request_ends_once_and_nothing_is_left(late in any::<bool>(), steps in prop::collection::vec(step(), 1..120)) {
        let mut trial = Trial::new(late);
        for step in &steps {
            trial.take(step);
            trial.check();
        }
        trial.wind_up();
    }

    #[test]
    fn a_pool_that_is_counted_is_never_overrun(steps in prop::collection::vec(step(), 1..120)) {
        let mut trial = Trial::new(false);
        let mut most = 3;
        for step in &steps {
            if let Step::Room(n) = step {
                most = most.max(*n);
            }
            trial.take(step);
            let in_flight = trial.pool.in_flight.load(Relaxed) + trial.core.departing().requests;
            prop_assert!(in_flight <= most, "{in_flight} of {most}");
        }
    }

    #[test]
    fn nobody_waits_while_there_is_room(steps in prop::collection::vec(step(), 1..120)) {
        let mut trial = Trial::new(false);
        for step in &steps {
            trial.take(step);
            let used = trial.pool.in_flight.load(Relaxed) + trial.core.departing().requests;
            let has_room = used < trial.pool.most.load(Relaxed) && !trial.snapshot.is_empty();
            prop_assert!(!has_room || trial.core.queue.is_empty(), "{step:?}");
        }
    }

    #[test]
    fn flows_that_always_wait_have_equally_many_turns(flows in 1..7_usize, turns in 1..40_usize) {
        let mut trial = Trial::new(false);
        let mut served: BTreeMap<u8, usize> = BTreeMap::new();
        let policy = settings(&trial.pool, &[0], "round-robin-fairness-policy");
        trial.act(|core, world, effects| core.reconfigure(policy, world, effects));
        trial.pool.in_flight.store(3, Relaxed);
        for i in 0..flows * (turns + 1) {
            trial.arrive(0, (i % flows) as u8, 1, None);
        }
        for _ in 0..turns {
            trial.pool.in_flight.fetch_sub(1, Relaxed);
            trial.look();
            let at = trial.nth(0, |stage| *stage == Stage::Departing).expect("one goes");
            *served.entry((at % flows) as u8).or_default() += 1;
            trial.take(&Step::Depart(0, true));
        }
        let (least, most) = (turns / flows, turns.div_ceil(flows));
        prop_assert!(served.values().all(|n| (least..=most).contains(n)), "{served:?}");
    }
}

/// A backlog that meets a pool which says late that it is full.
#[test]
fn a_pool_that_is_late_to_say_so_is_not_flooded() {
    let mut trial = Trial::new(true);
    trial.pool.in_flight.store(3, Relaxed);
    for i in 0..4000 {
        trial.arrive(0, (i % 5) as u8, 1, None);
    }
    trial.now += MS(1000);
    trial.look();
    assert_eq!(trial.core.departing().requests, 0);
    trial.pool.in_flight.store(0, Relaxed);
    // Those that came earned a turn each, but a new window has begun since.
    trial.look();
    let first = trial.core.departing().requests;
    assert!((1..=100).contains(&first), "{first}");
    trial.now += MS(50);
    trial.look();
    assert!(trial.core.departing().requests <= 3 * first + 100);
}
