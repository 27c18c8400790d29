//! Rules that choose without the pipeline: what others do, and what could be done at best.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::time::Duration;

use epp_sim::model::BlockNames;
use foldhash::fast::FixedState;

use super::arm::Rule;
use super::oracle::Oracle;
use super::pool::Pool;
use super::stage::Stage;

/// verl remembers so many trajectories.
const MOST_STICKY: usize = 10_000;
/// So many tokens stand for the session where there is none.
const HASHED_TOKENS: usize = 1024;
/// Points of an endpoint on the ring.
const POINTS: u64 = 100;

/// A rule and what it remembers.
pub(super) struct Balance {
    rule: Rule,
    rng: fastrand::Rng,
    next: usize,
    sticky: Sticky,
    ring: BTreeMap<u64, usize>,
    oracle: Option<Box<Oracle>>,
}

/// What a rule may know of a request.
pub(super) struct Known<'a> {
    pub number: u32,
    pub now: Duration,
    pub session: Option<u32>,
    pub ids: &'a [u32],
    pub names: &'a dyn Fn() -> BlockNames,
}

impl Balance {
    /// A rule for a stage. With foresight it looks at all of its traffic.
    pub fn of(rule: Rule, stage: &Stage<'_>) -> Self {
        let oracle = match rule {
            Rule::Oracle => Some(Oracle::of_now(stage)),
            Rule::Foresight => Some(Oracle::of_all_time(stage)),
            _ => None,
        };
        Self { oracle: oracle.map(Box::new), ..Self::new(rule, stage.engines.len(), stage.seed) }
    }

    fn new(rule: Rule, n_endpoints: usize, seed: u64) -> Self {
        let point = |row: usize| (0..POINTS).map(move |i| (FixedState::default().hash_one((row as u64, i)), row));
        let ring =
            if rule == Rule::ConsistentHash { (0..n_endpoints).flat_map(point).collect() } else { BTreeMap::new() };
        Self { rule, rng: fastrand::Rng::with_seed(seed), next: 0, sticky: Sticky::default(), ring, oracle: None }
    }

    /// The row that the request goes to; `None` if the picker knows of no endpoint.
    pub fn choose(&mut self, known: &Known<'_>, pool: &Pool) -> Option<usize> {
        let rows = pool.listed();
        let any = |rng: &mut fastrand::Rng| rng.choice(rows).copied();
        match self.rule {
            Rule::Random => any(&mut self.rng),
            Rule::RoundRobin => {
                let row = *rows.get(self.next % rows.len().max(1))?;
                self.next = (self.next + 1) % rows.len();
                Some(row)
            }
            Rule::LeastInFlightSticky => {
                let least = || rows.iter().copied().min_by_key(|row| pool.in_flight[*row]);
                match known.session {
                    Some(session) => self.sticky.of(session, |row| pool.id(row).is_some(), least),
                    None => least(),
                }
            }
            Rule::ConsistentHash => {
                let key = match known.session {
                    Some(session) => FixedState::default().hash_one(session),
                    None => FixedState::default().hash_one(&known.ids[..known.ids.len().min(HASHED_TOKENS)]),
                };
                let mut after = self.ring.range(key..).chain(self.ring.range(..key)).map(|(_, row)| *row);
                after.find(|row| pool.id(*row).is_some())
            }
            Rule::PowerOfTwo => {
                let (a, b) = (any(&mut self.rng)?, any(&mut self.rng)?);
                Some(if pool.in_flight[b] < pool.in_flight[a] { b } else { a })
            }
            Rule::Oracle | Rule::Foresight => {
                self.oracle.as_mut()?.choose(known.number, &(known.names)(), pool, known.now)
            }
        }
    }

    /// New weights: nothing that was sent is cached any more.
    pub fn forget(&mut self) {
        self.oracle.iter_mut().for_each(|oracle| oracle.forget());
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
    /// Where the session is, if that is still `there`, or else where it begins now.
    fn of(
        &mut self,
        session: u32,
        there: impl FnOnce(usize) -> bool,
        otherwise: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        self.n_uses += 1;
        let before = self.rows.remove(&session).map(|(row, used)| {
            self.by_use.remove(&used);
            row
        });
        let row = match before.filter(|row| there(*row)) {
            Some(row) => row,
            None => otherwise()?,
        };
        self.rows.insert(session, (row, self.n_uses));
        self.by_use.insert(self.n_uses, session);
        if self.rows.len() > MOST_STICKY
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.rows.remove(&oldest);
        }
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::calibration::Calibration;

    fn choices(rule: Rule, in_flight: &[u32], sessions: &[Option<u32>]) -> Vec<usize> {
        let mut pool = Pool::new(&vec![Calibration::default().at_speed(1.0).unwrap(); in_flight.len()], 0);
        pool.in_flight = in_flight.to_vec();
        let mut balance = Balance::new(rule, in_flight.len(), 1);
        let mut choose = |session: &Option<u32>| {
            let known = Known {
                number: 0,
                now: Duration::ZERO,
                session: *session,
                ids: &[1, 2, 3],
                names: &|| panic!("not asked for"),
            };
            balance.choose(&known, &pool).unwrap()
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
        let mut of = |session, row| sticky.of(session, |_| true, || Some(row)).unwrap();
        assert_eq!([of(1, 5), of(1, 6), of(2, 6)], [5, 5, 6]);
        assert_eq!(sticky.of(1, |row| row != 5, || Some(7)), Some(7));
        assert_eq!(choices(Rule::LeastInFlightSticky, &[2, 1, 1], &[Some(1), None]), [1, 1]);
        let hashed = choices(Rule::ConsistentHash, &[0; 8], &[Some(1), Some(2), Some(1), None, None]);
        assert_eq!((hashed[0], hashed[3]), (hashed[2], hashed[4]));
    }

    #[test]
    fn a_session_that_was_not_seen_for_long_is_forgotten() {
        let mut sticky = Sticky::default();
        let mut of = |session, row| sticky.of(session, |_| true, || Some(row)).unwrap();
        (0..=MOST_STICKY as u32).for_each(|session| assert_eq!(of(session, 1), 1));
        assert_eq!((of(1, 2), of(0, 2)), (1, 2));
    }

    #[test]
    fn the_less_busy_of_two_is_taken() {
        let chosen = choices(Rule::PowerOfTwo, &[9, 0], &[None; 64]);
        assert!(chosen.iter().filter(|row| **row == 1).count() > 40, "{chosen:?}");
    }
}
