//! Rules that choose without the pipeline: what others do, and what could be done at best.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

use epp_sim::model::BlockNames;
use foldhash::fast::FixedState;

use super::arm::Rule;
use super::pool::Pool;

/// verl remembers so many trajectories.
const MOST_STICKY: usize = 10_000;
/// So many tokens stand for the session where there is none.
const HASHED_TOKENS: usize = 1024;
/// Points of an endpoint on the ring.
const POINTS: u64 = 100;
/// The oracle lets an endpoint be so much busier than the mean, and have so many requests more: with few in flight one
/// more or less is no burden.
const SLACK: f64 = 1.25;
const SPARE: f64 = 2.0;
/// It remembers so many blocks that were sent; then it begins anew.
const MOST_SENT: usize = 4_000_000;

/// A rule and what it remembers.
pub(super) struct Balance {
    rule: Rule,
    rng: fastrand::Rng,
    next: usize,
    sticky: Sticky,
    ring: BTreeMap<u64, usize>,
    /// The oracle's knowledge of what is about to be cached: by the name of a block, where it was sent last.
    sent: HashMap<u64, usize, FixedState>,
}

/// What a rule may know of a request.
pub(super) struct Known<'a> {
    pub session: Option<u32>,
    pub ids: &'a [u32],
    pub names: &'a dyn Fn() -> BlockNames,
}

impl Balance {
    pub fn new(rule: Rule, n_endpoints: usize, seed: u64) -> Self {
        let point = |row: usize| (0..POINTS).map(move |i| (FixedState::default().hash_one((row as u64, i)), row));
        let ring =
            if rule == Rule::ConsistentHash { (0..n_endpoints).flat_map(point).collect() } else { BTreeMap::new() };
        Self {
            rule,
            rng: fastrand::Rng::with_seed(seed),
            next: 0,
            sticky: Sticky::default(),
            ring,
            sent: HashMap::default(),
        }
    }

    /// The row that the request goes to.
    pub fn choose(&mut self, known: &Known<'_>, pool: &Pool) -> usize {
        let n = pool.in_flight.len();
        match self.rule {
            Rule::Random => self.rng.usize(..n),
            Rule::RoundRobin => {
                self.next = (self.next + 1) % n;
                (self.next + n - 1) % n
            }
            Rule::LeastInFlightSticky => {
                let least = || (0..n).min_by_key(|row| pool.in_flight[*row]).unwrap_or_default();
                known.session.map_or_else(least, |session| self.sticky.of(session, least))
            }
            Rule::ConsistentHash => {
                let key = match known.session {
                    Some(session) => FixedState::default().hash_one(session),
                    None => FixedState::default().hash_one(&known.ids[..known.ids.len().min(HASHED_TOKENS)]),
                };
                let after = self.ring.range(key..).next().or_else(|| self.ring.first_key_value());
                after.map_or(0, |(_, row)| *row)
            }
            Rule::PowerOfTwo => {
                let (a, b) = (self.rng.usize(..n), self.rng.usize(..n));
                if pool.in_flight[b] < pool.in_flight[a] { b } else { a }
            }
            Rule::Oracle => self.best(&(known.names)(), pool),
        }
    }

    fn best(&mut self, names: &BlockNames, pool: &Pool) -> usize {
        let most = pool.mean_in_flight() * SLACK + SPARE;
        let allowed = |row: &usize| f64::from(pool.in_flight[*row]) <= most;
        // Blocks that were sent somewhere a moment ago are not cached yet, and will be.
        let sent = names.blocks().iter().map_while(|block| self.sent.get(block));
        let mut underway: HashMap<usize, usize, FixedState> = HashMap::default();
        sent.for_each(|row| *underway.entry(*row).or_default() += 1);
        let size = pool.engines.first().map_or(1, |engine| engine.settings().block_size);
        let cached = |row: usize| {
            let sent = if pool.in_flight[row] > 0 { underway.get(&row).copied().unwrap_or_default() } else { 0 };
            pool.engines[row].cached_tokens(names).max(sent * size)
        };
        let rows = (0..pool.in_flight.len()).filter(allowed);
        let best =
            rows.max_by_key(|row| (cached(*row), std::cmp::Reverse(pool.in_flight[*row]), std::cmp::Reverse(*row)));
        let best = best.unwrap_or_default();
        if self.sent.len() > MOST_SENT {
            self.sent.clear();
        }
        self.sent.extend(names.blocks().iter().map(|block| (*block, best)));
        best
    }

    /// New weights: nothing that was sent is cached any more.
    pub fn forget(&mut self) {
        self.sent.clear();
    }
}

/// Where sessions went; the one that was not seen for the longest time is forgotten.
#[derive(Default)]
struct Sticky {
    rows: HashMap<u32, (usize, u64), FixedState>,
    by_use: BTreeMap<u64, u32>,
    n_uses: u64,
}

impl Sticky {
    fn of(&mut self, session: u32, otherwise: impl FnOnce() -> usize) -> usize {
        self.n_uses += 1;
        let row = match self.rows.get(&session) {
            Some((row, used)) => {
                self.by_use.remove(used);
                *row
            }
            None => otherwise(),
        };
        self.rows.insert(session, (row, self.n_uses));
        self.by_use.insert(self.n_uses, session);
        if self.rows.len() > MOST_STICKY
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.rows.remove(&oldest);
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::calibration::Calibration;

    fn choices(rule: Rule, in_flight: &[u32], sessions: &[Option<u32>]) -> Vec<usize> {
        let mut pool = Pool::new(&vec![Calibration::default().at_speed(1.0).unwrap(); in_flight.len()]);
        pool.in_flight = in_flight.to_vec();
        let mut balance = Balance::new(rule, in_flight.len(), 1);
        let mut choose = |session: &Option<u32>| {
            let known = Known { session: *session, ids: &[1, 2, 3], names: &|| panic!("not asked for") };
            balance.choose(&known, &pool)
        };
        sessions.iter().map(&mut choose).collect()
    }

    #[test]
    fn turns_are_taken() {
        assert_eq!(choices(Rule::RoundRobin, &[0, 0, 0], &[None; 4]), [0, 1, 2, 0]);
    }

    #[test]
    fn a_session_stays_where_it_began() {
        let mut sticky = Sticky::default();
        assert_eq!([sticky.of(1, || 5), sticky.of(1, || 6), sticky.of(2, || 6)], [5, 5, 6]);
        assert_eq!(choices(Rule::LeastInFlightSticky, &[2, 1, 1], &[Some(1), None]), [1, 1]);
        let hashed = choices(Rule::ConsistentHash, &[0; 8], &[Some(1), Some(2), Some(1), None, None]);
        assert_eq!((hashed[0], hashed[3]), (hashed[2], hashed[4]));
    }

    #[test]
    fn a_session_that_was_not_seen_for_long_is_forgotten() {
        let mut sticky = Sticky::default();
        (0..=MOST_STICKY as u32).for_each(|session| assert_eq!(sticky.of(session, || 1), 1));
        assert_eq!((sticky.of(1, || 2), sticky.of(0, || 2)), (1, 2));
    }

    #[test]
    fn the_less_busy_of_two_is_taken() {
        let chosen = choices(Rule::PowerOfTwo, &[9, 0], &[None; 64]);
        assert!(chosen.iter().filter(|row| **row == 1).count() > 40, "{chosen:?}");
    }
}
