//! The requests of one priority that wait, by flow.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use epp_plugin_api::{FlowId, Rank, Turns, Waiting, WaitingFlows};
use tokio::time::Instant;

use crate::flow::settings::BandSettings;
use crate::flow::ticket::Ticket;

/// A request's place in the order of its band.
type Place = (Rank, Ticket);

/// Requests and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub requests: u64,
    pub bytes: u64,
}

impl Load {
    /// Counts one more request of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    /// Counts one request of so many bytes less.
    pub fn remove(&mut self, bytes: u64) {
        self.requests -= 1;
        self.bytes -= bytes;
    }

    /// Whether a request of so many bytes has room up to these limits. Reaching a limit is fine.
    pub fn has_room(&self, bytes: u64, max_requests: Option<u64>, max_bytes: Option<u64>) -> bool {
        max_bytes.is_none_or(|most| self.bytes.saturating_add(bytes) <= most)
            && max_requests.is_none_or(|most| self.requests < most)
    }
}

/// One request of a band.
#[derive(Clone, Debug)]
pub struct Member {
    pub flow: FlowId,
    pub rank: Rank,
    pub waiting: Waiting,
    pub bytes: u64,
}

/// What waits with one priority. Flows are there as long as somebody waits in them.
pub struct Band {
    pub settings: BandSettings,
    /// Whether the config in force has it; otherwise it goes once it is empty.
    pub configured: bool,
    pub load: Load,
    turns: Box<dyn Turns>,
    members: HashMap<Ticket, Member, foldhash::fast::RandomState>,
    flows: BTreeMap<FlowId, BTreeSet<Place>>,
    /// The first request of every flow.
    heads: BTreeSet<Place>,
}

impl Band {
    /// Makes an empty band.
    pub fn new(settings: BandSettings, configured: bool) -> Self {
        let turns = settings.fairness.turns();
        Self {
            settings,
            configured,
            load: Load::default(),
            turns,
            members: HashMap::default(),
            flows: BTreeMap::new(),
            heads: BTreeSet::new(),
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether a request of so many bytes has room.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.load.has_room(bytes, Some(self.settings.max_requests), Some(self.settings.max_bytes))
    }

    /// Takes a request in.
    pub fn push(&mut self, ticket: Ticket, flow: &str, waiting: Waiting, bytes: u64) {
        let known = self.flows.get_key_value(flow).map(|(name, _)| name.clone());
        let flow = known.unwrap_or_else(|| flow.into());
        let rank = self.settings.ordering.rank(&waiting);
        self.members.insert(ticket, Member { flow: flow.clone(), rank, waiting, bytes });
        self.load.add(bytes);
        self.put(flow, (rank, ticket));
    }

    fn put(&mut self, flow: FlowId, place: Place) {
        let queue = self.flows.entry(flow).or_default();
        match queue.first().copied() {
            Some(head) if head < place => {}
            Some(head) => {
                self.heads.remove(&head);
                self.heads.insert(place);
            }
            None => {
                self.heads.insert(place);
            }
        }
        queue.insert(place);
    }

    /// Takes a request out, if it is there.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Member> {
        let member = self.members.remove(&ticket)?;
        self.load.remove(member.bytes);
        let place = (member.rank, ticket);
        let queue = self.flows.get_mut(&member.flow).expect("a member's flow is there");
        let was_head = self.heads.remove(&place);
        queue.remove(&place);
        match queue.first() {
            Some(head) if was_head => {
                self.heads.insert(*head);
            }
            Some(_) => {}
            None => {
                self.flows.remove(&member.flow);
            }
        }
        if self.members.is_empty() {
            self.turns.emptied();
        }
        Some(member)
    }

    /// Whose turn it is; `None` if nobody waits.
    pub fn next(&mut self, now: Instant) -> Option<Ticket> {
        let (_, first) = *self.heads.first()?;
        let view = View { members: &self.members, flows: &self.flows, first };
        let flow = self.turns.next(&view, now);
        // A policy that names a flow in which nobody waits says nothing.
        Some(self.flows.get(&flow).and_then(|queue| queue.first()).map_or(first, |(_, ticket)| *ticket))
    }

    /// Goes on under other settings. Whoever waits stays, in the order of the new policies.
    pub fn reconfigure(&mut self, settings: BandSettings, configured: bool) {
        let ordered_anew = !Arc::ptr_eq(&settings.ordering, &self.settings.ordering);
        if !Arc::ptr_eq(&settings.fairness, &self.settings.fairness) {
            self.turns = settings.fairness.turns();
        }
        (self.settings, self.configured) = (settings, configured);
        if !ordered_anew {
            return;
        }
        self.flows.clear();
        self.heads.clear();
        let mut places = Vec::with_capacity(self.members.len());
        for (ticket, member) in &mut self.members {
            member.rank = self.settings.ordering.rank(&member.waiting);
            places.push((member.flow.clone(), (member.rank, *ticket)));
        }
        places.into_iter().for_each(|(flow, place)| self.put(flow, place));
    }

    /// Changes until when a request may wait; policies see it from the next look on.
    pub fn set_deadline(&mut self, ticket: Ticket, deadline: Option<Instant>) {
        let Some(member) = self.members.get_mut(&ticket) else { return };
        member.waiting.deadline = deadline;
        let rank = self.settings.ordering.rank(&member.waiting);
        if rank == member.rank {
            return;
        }
        let member = self.remove(ticket).expect("it was there a moment ago");
        self.push(ticket, &member.flow, member.waiting, member.bytes);
    }

    /// Every flow with how many wait in it, in the order of names.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = (&FlowId, usize)> {
        self.flows.iter().map(|(name, queue)| (name, queue.len()))
    }

    /// Since when the one has waited that has waited longest; walks all of them.
    pub fn longest(&self) -> Option<Instant> {
        self.members.values().map(|member| member.waiting.since).min()
    }
}

impl fmt::Debug for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Band({}: {:?})", self.settings.priority, self.load)
    }
}

/// The flows of a band as a fairness policy sees them.
struct View<'a> {
    members: &'a HashMap<Ticket, Member, foldhash::fast::RandomState>,
    flows: &'a BTreeMap<FlowId, BTreeSet<Place>>,
    /// Who goes before everyone else.
    first: Ticket,
}

impl WaitingFlows for View<'_> {
    fn first(&self) -> FlowId {
        self.members[&self.first].flow.clone()
    }

    fn after(&self, name: &str) -> FlowId {
        use std::ops::Bound::{Excluded, Unbounded};
        let later = self.flows.range::<str, _>((Excluded(name), Unbounded)).next();
        later.or_else(|| self.flows.first_key_value()).map_or_else(|| self.first(), |(name, _)| name.clone())
    }

    fn each(&self, seen: &mut dyn FnMut(&FlowId, &Waiting)) {
        for (name, queue) in self.flows {
            if let Some((_, head)) = queue.first() {
                seen(name, &self.members[head].waiting);
            }
        }
    }
}
