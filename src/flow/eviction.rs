//! Which requests under way may be ended for others that wait, and how many at a time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::flow::ticket::{Ticket, Tickets};

/// One decision ends at most so many.
const MOST_AT_ONCE: usize = 2;
/// A request that was told to end and does not is taken to have ended after this.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    ticket: Ticket,
    priority: i32,
    since: Instant,
}

impl Run {
    fn key(&self) -> (i32, Reverse<(Instant, Ticket)>) {
        (self.priority, Reverse((self.since, self.ticket)))
    }
}

/// Every request under way. Only those of a priority below zero may be ended.
pub struct Running<T> {
    tickets: Tickets,
    in_flight: usize,
    /// The lowest priority first, then the newest.
    victims: BTreeMap<(i32, Reverse<(Instant, Ticket)>), T>,
}

impl<T> Default for Running<T> {
    fn default() -> Self {
        Self { tickets: Tickets::default(), in_flight: 0, victims: BTreeMap::new() }
    }
}

impl<T> Running<T> {
    /// A request gets under way, which has not had to wait since then; `how` ends it.
    pub fn begin(&mut self, priority: i32, since: Instant, how: T) -> Run {
        let run = Run { ticket: self.tickets.next(), priority, since };
        self.in_flight += 1;
        if priority < 0 {
            self.victims.insert(run.key(), how);
        }
        run
    }

    /// It is over, however it ended.
    pub fn end(&mut self, run: Run) {
        self.in_flight -= 1;
        self.victims.remove(&run.key());
    }

    /// How many are under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many may be ended.
    pub fn evictable(&self) -> usize {
        self.victims.len()
    }

    /// The priority of the one that would be ended first.
    pub fn least(&self) -> Option<i32> {
        self.victims.first_key_value().map(|((priority, _), _)| *priority)
    }

    /// Gives up the first one if its priority is below the bound. It counts as under way until it is over.
    pub fn take(&mut self, below: i32) -> Option<(Run, T)> {
        self.least().filter(|priority| *priority < below)?;
        let ((priority, Reverse((since, ticket))), how) = self.victims.pop_first()?;
        Some((Run { ticket, priority, since }, how))
    }
}

/// A request that was told to end.
#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    /// By how much the pool's saturation is believed to fall.
    credit: f64,
}

/// How a request that was told to end has done so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did after this time.
    Confirmed(Duration),
    TimedOut,
}

/// What was asked back of the pool and is not yet seen to be free.
#[derive(Debug)]
pub struct Reclaim {
    /// How long after its end a request is still seen in the saturation.
    grace: Duration,
    told: HashMap<Ticket, Told, foldhash::fast::RandomState>,
    cooling: Vec<(Instant, f64)>,
}

impl Reclaim {
    /// Begins with nothing asked back.
    pub fn new(grace: Duration) -> Self {
        Self { grace, told: HashMap::default(), cooling: Vec::new() }
    }

    /// Goes on with another grace.
    pub fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Whether there may be another decision: everything that was asked back has come.
    pub fn is_settled(&self) -> bool {
        self.told.is_empty() && self.cooling.is_empty()
    }

    /// By how much the saturation is still to fall.
    pub fn pending(&self) -> f64 {
        self.told.values().map(|told| told.credit).chain(self.cooling.iter().map(|(_, credit)| *credit)).sum()
    }

    /// How many to end so that the saturation falls below the ceiling.
    pub fn wanted<T>(&self, saturation: f64, ceiling: f64, running: &Running<T>) -> usize {
        let (pending, net) = (self.pending(), saturation - ceiling - self.pending());
        if running.in_flight() == 0 || net < 0.0 || (net == 0.0 && pending > 0.0) {
            return 0;
        }
        let credit = saturation / running.in_flight() as f64;
        // One is enough to get below a ceiling that is just reached; the cast saturates.
        let n = if credit > 0.0 { (net / credit).ceil() as usize } else { 0 };
        n.clamp(1, MOST_AT_ONCE).min(running.evictable())
    }

    /// The request was told to end.
    pub fn told(&mut self, run: Run, credit: f64, now: Instant) {
        self.told.insert(run.ticket, Told { at: now, credit });
    }

    /// The request is over; `None` if it was not told to end, or has been given up already.
    pub fn ended(&mut self, run: Run, now: Instant) -> Option<Ended> {
        let told = self.told.remove(&run.ticket)?;
        self.cooling.push((now + self.grace, told.credit));
        Some(Ended::Confirmed(now.saturating_duration_since(told.at)))
    }

    /// Lets what is over cool down, and gives up on those that do not end; returns how many those are.
    pub fn pass(&mut self, now: Instant) -> usize {
        let late: Vec<Ticket> =
            self.told.iter().filter(|(_, told)| told.at + TIMEOUT <= now).map(|(ticket, _)| *ticket).collect();
        for ticket in &late {
            if let Some(told) = self.told.remove(ticket) {
                self.cooling.push((told.at + TIMEOUT + self.grace, told.credit));
            }
        }
        self.cooling.retain(|(until, _)| *until > now);
        late.len()
    }

    /// When there is something to do next.
    pub fn next(&self) -> Option<Instant> {
        let timeouts = self.told.values().map(|told| told.at + TIMEOUT);
        timeouts.chain(self.cooling.iter().map(|(until, _)| *until)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(priorities: &[i32]) -> Running<usize> {
        let (mut running, zero) = (Running::default(), Instant::now());
        for (i, priority) in priorities.iter().enumerate() {
            running.begin(*priority, zero, i);
        }
        running
    }

    #[test]
    fn so_many_are_ended_as_it_takes_to_get_below_the_ceiling() {
        for (saturation, ceiling, priorities, expected) in [
            (1.2, 1.0, &[-1; 6][..], 1),
            (2.0, 1.0, &[-1; 4], 2),
            (2.0, 1.0, &[0, 0, 0, -1], 1),
            (0.9, 1.0, &[-1; 4], 0),
            (1.0, 1.0, &[-1; 4], 1),
            (9.0, 1.0, &[-1; 9], 2),
            (1.0, 1.0, &[], 0),
        ] {
            let reclaim = Reclaim::new(Duration::ZERO);
            assert_eq!(reclaim.wanted(saturation, ceiling, &running(priorities)), expected, "{saturation} {ceiling}");
        }
    }

    #[test]
    fn the_lowest_priority_goes_first_and_of_equals_the_newest() {
        let mut running = running(&[-1, -5, -5, -1, 0]);
        let order: Vec<usize> = std::iter::from_fn(|| running.take(0).map(|(_, i)| i)).collect();
        assert_eq!(order, [2, 1, 3, 0]);
        assert_eq!(running.in_flight(), 5);
    }

    #[test]
    fn the_newest_is_the_one_that_went_last_whoever_is_counted_first() {
        let (mut running, zero) = (Running::default(), Instant::now());
        for (i, second) in [2, 1, 3].into_iter().enumerate() {
            running.begin(-1, zero + Duration::from_secs(second), i);
        }
        let order: Vec<usize> = std::iter::from_fn(|| running.take(0).map(|(_, i)| i)).collect();
        assert_eq!(order, [2, 0, 1]);
    }

    #[test]
    fn nobody_goes_whose_priority_reaches_the_bound() {
        let mut running = running(&[-1, -5]);
        assert_eq!(running.take(-1).map(|(_, i)| i), Some(1));
        assert_eq!(running.take(-1), None);
    }

    #[test]
    fn what_was_asked_back_counts_until_it_has_cooled_down() {
        let (zero, ms) = (Instant::now(), Duration::from_millis);
        let mut running = running(&[-1; 2]);
        let mut reclaim = Reclaim::new(ms(100));
        let (run, _) = running.take(0).unwrap();
        reclaim.told(run, 0.5, zero);
        assert_eq!((reclaim.is_settled(), reclaim.pending()), (false, 0.5));
        assert_eq!(reclaim.ended(run, zero + ms(20)), Some(Ended::Confirmed(ms(20))));
        assert_eq!(reclaim.ended(run, zero + ms(20)), None);
        assert_eq!((reclaim.next(), reclaim.pending()), (Some(zero + ms(120)), 0.5));
        assert_eq!(reclaim.pass(zero + ms(119)), 0);
        assert!(!reclaim.is_settled());
        reclaim.pass(zero + ms(120));
        assert_eq!((reclaim.is_settled(), reclaim.pending(), reclaim.next()), (true, 0.0, None));
    }

    #[test]
    fn one_that_does_not_end_is_given_up() {
        let zero = Instant::now();
        let mut running = running(&[-1]);
        let mut reclaim = Reclaim::new(Duration::ZERO);
        let (run, _) = running.take(0).unwrap();
        reclaim.told(run, 1.0, zero);
        assert_eq!(reclaim.pass(zero + TIMEOUT), 1);
        assert!(reclaim.is_settled());
        assert_eq!(reclaim.ended(run, zero + TIMEOUT * 2), None);
    }
}
