//! Board, membership: gives endpoints their identities and keeps what belongs to each.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use epp_plugin_api::{EndpointId, EndpointMeta, EndpointName};
use tokio::time::Instant;

use super::staleness::Freshness;
use super::watch::{Watch, Watched};

/// One endpoint for as long as the file has it.
pub struct Member {
    pub id: EndpointId,
    pub meta: Arc<EndpointMeta>,
    pub watched: Box<dyn Watched>,
    pub freshness: Freshness,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({:?}, {})", self.id, self.meta.name)
    }
}

/// Every endpoint, in the order of the file.
#[derive(Debug, Default)]
pub struct Membership {
    members: Vec<Member>,
    slots: Slots,
}

/// What a new listing changed.
#[derive(Debug)]
pub struct Change {
    /// Whether an endpoint came, went, moved or changed its entry.
    pub any: bool,
    /// Those that left. Their slots stay taken until they are released.
    pub gone: Vec<Member>,
}

impl Membership {
    /// Takes the endpoints that there are now; no name is there twice. One that stays keeps its identity and what was
    /// observed, whatever else its entry says.
    pub fn apply(&mut self, endpoints: &[Arc<EndpointMeta>], watch: &dyn Watch, now: Instant) -> Change {
        let same = self.members.len() == endpoints.len();
        if same && self.members.iter().zip(endpoints).all(|(m, e)| m.meta == *e) {
            return Change { any: false, gone: Vec::new() };
        }
        let before = std::mem::take(&mut self.members);
        let mut before: HashMap<EndpointName, Member> = before.into_iter().map(|m| (m.meta.name.clone(), m)).collect();
        for meta in endpoints {
            let member = match before.remove(&meta.name) {
                Some(mut member) => {
                    if member.meta != *meta {
                        member.meta = meta.clone();
                        member.watched.update(meta.clone());
                    }
                    member
                }
                None => Member {
                    id: self.slots.take(),
                    meta: meta.clone(),
                    watched: watch.watch(meta.clone()),
                    freshness: Freshness::new(now),
                },
            };
            self.members.push(member);
        }
        let mut gone: Vec<Member> = before.into_values().collect();
        gone.sort_by_key(|m| m.id);
        Change { any: true, gone }
    }

    /// Gives the slots of endpoints that left free.
    pub fn release(&mut self, ids: impl IntoIterator<Item = EndpointId>) {
        self.slots.free.extend(ids.into_iter().map(|id| id.slot()));
    }

    /// Every endpoint, in the order of the file.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// As [`Self::members`].
    pub fn members_mut(&mut self) -> &mut [Member] {
        &mut self.members
    }
}

#[derive(Debug, Default)]
struct Slots {
    free: BTreeSet<usize>,
    next: usize,
    serial: u32,
}

impl Slots {
    /// The smallest free slot, with a serial of its own.
    fn take(&mut self) -> EndpointId {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.serial = self.serial.checked_add(1).expect("fewer than 2^32 endpoints ever come");
        EndpointId::new(u32::try_from(slot).expect("fewer than 2^32 endpoints are there at once"), self.serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::watch::tests::Engines;

    fn meta(name: &str, port: u16) -> Arc<EndpointMeta> {
        let name = EndpointName { namespace: "default".into(), name: name.into() };
        Arc::new(EndpointMeta::new(name, "127.0.0.1".into(), port, Default::default(), 0))
    }

    #[derive(Default)]
    struct Fixture {
        membership: Membership,
        engines: Engines,
    }

    impl Fixture {
        /// Applies entries `(name, port)` and releases those that left; gives their identities.
        fn apply(&mut self, entries: &[(&str, u16)]) -> Vec<(usize, u32)> {
            let entries: Vec<_> = entries.iter().map(|(name, port)| meta(name, *port)).collect();
            let change = self.membership.apply(&entries, &self.engines, Instant::now());
            let gone: Vec<EndpointId> = change.gone.iter().map(|m| m.id).collect();
            self.membership.release(gone.clone());
            gone.into_iter().map(|id| (id.slot(), id.serial())).collect()
        }

        fn ids(&self) -> Vec<(usize, u32)> {
            self.membership.members().iter().map(|m| (m.id.slot(), m.id.serial())).collect()
        }
    }

    #[test]
    fn slots_are_dense_and_serials_are_never_given_twice() {
        let mut f = Fixture::default();
        f.apply(&[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(f.ids(), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(f.apply(&[("c", 1)]), [(0, 1), (1, 2)]);
        f.apply(&[("d", 1), ("c", 1), ("a", 1), ("e", 1)]);
        assert_eq!(f.ids(), [(0, 4), (2, 3), (1, 5), (3, 6)]);
    }

    #[test]
    fn a_slot_is_not_given_away_before_it_is_released() {
        let mut f = Fixture::default();
        f.apply(&[("a", 1)]);
        assert_eq!(f.apply(&[("b", 1)]), [(0, 1)]);
        assert_eq!(f.ids(), [(1, 2)]);
    }

    #[test]
    fn a_changed_entry_keeps_its_identity() {
        let mut f = Fixture::default();
        f.apply(&[("a", 1), ("b", 1)]);
        assert_eq!(f.apply(&[("b", 1), ("a", 2)]), []);
        assert_eq!(f.ids(), [(1, 2), (0, 1)]);
        assert_eq!(f.engines.asked(), ["a@127.0.0.1:2", "b@127.0.0.1:1"]);
    }

    #[test]
    fn engines_of_endpoints_that_left_are_asked_no_more() {
        let mut f = Fixture::default();
        f.apply(&[("a", 1), ("b", 1)]);
        f.apply(&[("b", 1)]);
        assert_eq!(f.engines.asked(), ["b@127.0.0.1:1"]);
        f.apply(&[]);
        assert_eq!(f.engines.asked(), [""; 0]);
    }

    #[test]
    fn an_equal_listing_changes_nothing() {
        let (mut membership, engines) = (Membership::default(), Engines::default());
        let mut changes = |entries: &[Arc<EndpointMeta>]| membership.apply(entries, &engines, Instant::now()).any;
        let (a, b) = (meta("a", 1), meta("b", 1));
        assert!(!changes(&[]));
        assert!(changes(&[a.clone(), b.clone()]));
        assert!(!changes(&[meta("a", 1), b.clone()]));
        assert!(changes(&[b, a]));
    }
}
