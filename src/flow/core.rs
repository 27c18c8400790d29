//! Everything that decides about waiting, as one state machine: the queue, the pool's fullness, and what is under way.
//!
//! Is told what happens and when; says who left and how, and when it wants to be told the time again.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{Departing, Saturation, Snapshot};
use tokio::time::Instant;

use crate::flow::eviction::{Ended, Reclaim, Run, Running};
use crate::flow::fullness::{Fullness, Stages};
use crate::flow::outcome::Outcome;
use crate::flow::pace::Pace;
use crate::flow::queue::{Arrival, Gone, Next, Queue};
use crate::flow::settings::Settings;
use crate::flow::ticket::Ticket;

/// So many go at a time before others get a look in.
const MOST_AT_ONCE: usize = 256;
/// A pool that has just come up is given so long to say how full it is.
const SETTLING: Duration = Duration::from_millis(500);
/// How long after its end a request may still be counted by a detector that counts requests itself.
const SHORT_GRACE: Duration = Duration::from_millis(10);

/// How things stand at a moment.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub snapshot: &'a Snapshot,
    pub now: Instant,
}

/// What is to be done about a step.
#[derive(Debug)]
pub struct Effects<P, V> {
    /// Who left the queue, in this order, and how.
    pub left: Vec<(Gone<P>, Outcome)>,
    /// Requests under way that are to be ended.
    pub evict: Vec<V>,
    /// The priority for which they are, and by how much the pool is too full for it.
    pub revoked_for: Option<(i32, f64)>,
    /// A request that was to be ended has ended after this time.
    pub confirmed: Option<Duration>,
    /// Requests that were to be ended and did not.
    pub timed_out: usize,
}

impl<P, V> Default for Effects<P, V> {
    fn default() -> Self {
        Self { left: Vec::new(), evict: Vec::new(), revoked_for: None, confirmed: None, timed_out: 0 }
    }
}

/// What comes of a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    Refused(Outcome),
    /// It goes at once.
    Goes,
    Waits(Ticket),
}

/// The state. `P` is what is kept for one that waits, `V` for one that is under way.
pub struct Core<P, V> {
    pub queue: Queue<P>,
    pub running: Running<V>,
    pub reclaim: Reclaim,
    stages: Stages,
    pace: Pace,
    departing: Departing,
    /// Until when a pool of which nothing has been heard yet is waited for.
    settles: Instant,
    /// When to ask again though nothing has changed.
    again: Option<Instant>,
    is_closed: bool,
    /// Whether nobody waits at all.
    lets_all: bool,
    /// How late engines say what changed.
    lag: Duration,
}

impl<P, V> Core<P, V> {
    /// Begins with nobody waiting. `lag`: how late engines say what has changed.
    pub fn new(settings: Settings, lag: Duration, world: World<'_>) -> Self {
        let grace = grace(&*settings.saturation, lag);
        let mut queue = Queue::new(settings);
        queue.set_empty(world.snapshot.is_empty(), world.now);
        Self {
            queue,
            running: Running::default(),
            reclaim: Reclaim::new(grace),
            stages: Stages::default(),
            pace: Pace::new(world.now),
            departing: Departing::default(),
            settles: world.now + SETTLING,
            again: None,
            is_closed: false,
            lets_all: false,
            lag,
        }
    }

    /// A request comes.
    pub fn arrive(
        &mut self,
        arrival: &Arrival<'_>,
        payload: impl FnOnce() -> P,
        world: World<'_>,
        effects: &mut Effects<P, V>,
    ) -> Entered {
        if self.lets_all {
            self.departs(arrival.bytes);
            return Entered::Goes;
        }
        if self.is_closed {
            return Entered::Refused(Outcome::RejectedOther);
        }
        self.see(world);
        if let Err(outcome) = self.queue.has_room(arrival.priority, arrival.bytes) {
            return Entered::Refused(outcome);
        }
        if self.queue.is_empty() && !self.is_settling(world) {
            let saturation = self.measure(world).effective;
            if self.queue.passes(arrival.priority, saturation) {
                self.departs(arrival.bytes);
                return Entered::Goes;
            }
        }
        let ticket = self.queue.push(arrival, payload(), world.now);
        self.pace.arrived();
        self.pump(world, effects);
        Entered::Waits(ticket)
    }

    /// A request that was let go is counted where it went, or went nowhere.
    pub fn departed(&mut self, bytes: u64, world: World<'_>, effects: &mut Effects<P, V>) {
        self.departing.requests -= 1;
        self.departing.bytes -= bytes;
        self.pump(world, effects);
    }

    /// A client has left; if its request still waited, it does so no more.
    pub fn cancel(&mut self, ticket: Ticket, world: World<'_>, effects: &mut Effects<P, V>) {
        if let Some(gone) = self.queue.remove(ticket) {
            effects.left.push((gone, Outcome::EvictedContextCancelled));
            self.pump(world, effects);
        }
    }

    /// Something may have changed: time, endpoints, or what is in flight.
    pub fn look(&mut self, world: World<'_>, effects: &mut Effects<P, V>) {
        self.see(world);
        while let Some((gone, outcome)) = self.queue.expired(world.now) {
            effects.left.push((gone, outcome));
        }
        effects.timed_out += self.reclaim.pass(world.now);
        self.pump(world, effects);
    }

    /// A request gets under way, which has not had to wait since then; `None` if those are not watched.
    pub fn begin(&mut self, priority: i32, since: Instant, how: impl FnOnce() -> V) -> Option<Run> {
        let watched = self.queue.settings().eviction && !self.lets_all;
        watched.then(|| self.running.begin(priority, since, how()))
    }

    /// A request that was under way is over.
    pub fn end(&mut self, run: Run, world: World<'_>, effects: &mut Effects<P, V>) {
        self.running.end(run);
        match self.reclaim.ended(run, world.now) {
            Some(Ended::Confirmed(after)) => effects.confirmed = Some(after),
            Some(Ended::TimedOut) | None => {}
        }
        self.pump(world, effects);
    }

    /// Goes on under other settings.
    pub fn reconfigure(&mut self, settings: Settings, world: World<'_>, effects: &mut Effects<P, V>) {
        self.lets_all = false;
        self.reclaim.set_grace(grace(&*settings.saturation, self.lag));
        self.queue.reconfigure(settings);
        self.look(world, effects);
    }

    /// Lets everyone go who waits or comes, whether there is room or not, until there are settings again.
    pub fn release(&mut self, effects: &mut Effects<P, V>) {
        self.lets_all = true;
        for gone in self.queue.drain() {
            self.departs(gone.bytes);
            effects.left.push((gone, Outcome::Dispatched));
        }
    }

    /// Turns away everyone who waits or comes.
    pub fn close(&mut self, effects: &mut Effects<P, V>) {
        self.is_closed = true;
        effects.left.extend(self.queue.drain().into_iter().map(|gone| (gone, Outcome::EvictedOther)));
    }

    /// How full the pool is now.
    pub fn measure(&mut self, world: World<'_>) -> Fullness {
        let detector: Arc<dyn Saturation> = self.queue.settings().saturation.clone();
        self.stages.measure(&*detector, world.snapshot, self.departing, world.now)
    }

    /// What was let go and is not yet counted where it went.
    pub fn departing(&self) -> Departing {
        self.departing
    }

    /// When to be told the time.
    pub fn next_look(&self) -> Option<Instant> {
        [self.queue.next_expiry(), self.reclaim.next(), self.again].into_iter().flatten().min()
    }

    fn see(&mut self, world: World<'_>) {
        let was_empty = self.queue.has_no_endpoints();
        self.queue.set_empty(world.snapshot.is_empty(), world.now);
        if was_empty && !world.snapshot.is_empty() {
            self.settles = world.now + SETTLING;
        }
    }

    /// Whether nothing has been heard yet of a pool that has just come up. Where nothing ever is, nobody waits for that.
    fn is_settling(&self, world: World<'_>) -> bool {
        let snapshot = world.snapshot;
        world.now < self.settles
            && snapshot.stale().len() == snapshot.rows()
            && !self.queue.settings().saturation.counts_requests()
    }

    fn departs(&mut self, bytes: u64) {
        self.departing.requests += 1;
        self.departing.bytes += bytes;
    }

    /// Lets go whoever may, one after another, each seen by the next.
    fn pump(&mut self, world: World<'_>, effects: &mut Effects<P, V>) {
        self.again = None;
        if self.is_settling(world) && !self.queue.is_empty() {
            self.again = Some(self.settles);
            return;
        }
        let is_late = !self.queue.settings().saturation.counts_requests();
        for _ in 0..MOST_AT_ONCE {
            if self.queue.is_empty() {
                return;
            }
            if is_late && let Err(until) = self.pace.take(world.snapshot.rows(), world.now) {
                self.again = Some(until);
                return;
            }
            let saturation = self.measure(world).effective;
            match self.queue.next(saturation, world.now) {
                Next::Nobody => return,
                Next::Go(gone) => {
                    self.departs(gone.bytes);
                    effects.left.push((gone, Outcome::Dispatched));
                }
                Next::Held { by, again } => {
                    // It was not used.
                    self.pace.arrived();
                    self.again = again.map(|after| world.now + after);
                    self.pace.full();
                    if let Some(band) = by {
                        self.reclaim(band, saturation, world, effects);
                    }
                    return;
                }
            }
        }
        self.again = Some(world.now);
    }

    /// Ends requests under way for the first band from `from` on that waits for room and is above them.
    fn reclaim(&mut self, from: usize, saturation: f64, world: World<'_>, effects: &mut Effects<P, V>) {
        if !self.queue.settings().eviction || !self.reclaim.is_settled() {
            return;
        }
        let Some(least) = self.running.least() else { return };
        let waits = |at: &usize| {
            let ceiling = self.queue.ceilings()[*at];
            ceiling > 0.0 && saturation >= ceiling && !self.queue.bands()[*at].is_empty()
        };
        let Some(at) = (from..self.queue.bands().len()).find(waits) else { return };
        let (priority, ceiling) = (self.queue.bands()[at].settings.priority, self.queue.ceilings()[at]);
        if priority <= least {
            return;
        }
        let credit = saturation / self.running.in_flight() as f64;
        for _ in 0..self.reclaim.wanted(saturation, ceiling, &self.running) {
            let Some((run, how)) = self.running.take(priority) else { break };
            self.reclaim.told(run, credit, world.now);
            effects.evict.push(how);
            effects.revoked_for = Some((priority, saturation - ceiling));
        }
    }
}

fn grace(detector: &dyn Saturation, lag: Duration) -> Duration {
    if detector.counts_requests() { SHORT_GRACE } else { lag }
}
