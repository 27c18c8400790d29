//! The queue: who waits, in which order they go, and when they must leave. A plain state machine that is told the time.
//!
//! Never holds more than its limits allow, never lets go while there is no endpoint, and forgets nobody: whoever was
//! taken in comes out once, by [`Queue::next`], [`Queue::expired`], [`Queue::remove`] or [`Queue::drain`].

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use epp_plugin_api::Waiting;
use tokio::time::Instant;

use crate::flow::band::{Band, Load};
use crate::flow::outcome::Outcome;
use crate::flow::settings::Settings;
use crate::flow::ticket::{Ticket, Tickets};

/// A request that comes.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub priority: i32,
    pub flow: &'a str,
    pub bytes: u64,
    pub received: Instant,
    pub ttft_objective: Option<Duration>,
    /// How long its client will wait, if it says so.
    pub patience: Option<Duration>,
}

/// A request that has left the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone<T> {
    pub payload: T,
    pub priority: i32,
    pub bytes: u64,
    /// When it began to wait.
    pub since: Instant,
}

struct Entry<T> {
    payload: T,
    priority: i32,
    bytes: u64,
    since: Instant,
    patience: Option<Duration>,
    expires: Option<Instant>,
}

/// What comes of asking who goes now.
#[derive(Debug, PartialEq)]
pub enum Next<T> {
    /// Nobody waits.
    Nobody,
    Go(Gone<T>),
    /// Those who wait must go on doing so.
    Held {
        /// The place of the band that is held; `None`: there is no endpoint.
        by: Option<usize>,
        /// After what time to ask again though nothing has changed.
        again: Option<Duration>,
    },
}

/// Whether there are endpoints, and since when.
#[derive(Clone, Copy, Debug)]
struct Regime {
    is_empty: bool,
    since: Option<Instant>,
}

/// Everyone who waits.
pub struct Queue<T> {
    settings: Settings,
    /// The highest priority first.
    bands: Vec<Band>,
    priorities: Vec<i32>,
    ceilings: Vec<f64>,
    entries: HashMap<Ticket, Entry<T>, foldhash::fast::RandomState>,
    expiries: BTreeSet<(Instant, Ticket)>,
    load: Load,
    regime: Regime,
    tickets: Tickets,
}

impl<T> Queue<T> {
    /// Makes an empty queue.
    pub fn new(settings: Settings) -> Self {
        let bands: Vec<Band> = settings.bands.iter().map(|band| Band::new(band.clone(), true)).collect();
        let mut queue = Self {
            settings,
            bands,
            priorities: Vec::new(),
            ceilings: Vec::new(),
            entries: HashMap::default(),
            expiries: BTreeSet::new(),
            load: Load::default(),
            regime: Regime { is_empty: false, since: None },
            tickets: Tickets::default(),
        };
        queue.bands_changed();
        queue
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What waits in all.
    pub fn load(&self) -> Load {
        self.load
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bands, the highest priority first.
    pub fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// The ceilings of the bands as last asked for.
    pub fn ceilings(&self) -> &[f64] {
        &self.ceilings
    }

    /// Whether there is no endpoint.
    pub fn has_no_endpoints(&self) -> bool {
        self.regime.is_empty
    }

    /// Takes note of whether there are endpoints. A change gives everyone who waits a new beginning.
    pub fn set_empty(&mut self, is_empty: bool, now: Instant) {
        if self.regime.is_empty != is_empty {
            self.regime = Regime { is_empty, since: Some(now) };
            self.set_expiries();
        }
    }

    /// Whether the request has room to wait.
    ///
    /// # Errors
    /// Says under what it is counted if not.
    pub fn has_room(&mut self, priority: i32, bytes: u64) -> Result<(), Outcome> {
        let (max_requests, max_bytes) = (self.settings.max_requests, self.settings.max_bytes);
        let at = self.band(priority);
        if self.load.has_room(bytes, max_requests, max_bytes) && self.bands[at].has_room(bytes) {
            return Ok(());
        }
        self.drop_band(at);
        Err(if self.regime.is_empty { Outcome::RejectedNoEndpoints } else { Outcome::RejectedCapacity })
    }

    /// Whether a request of this priority may go at once: nobody waits, and the pool has room for it.
    pub fn passes(&mut self, priority: i32, saturation: f64) -> bool {
        if !self.entries.is_empty() || self.regime.is_empty {
            return false;
        }
        let at = self.band(priority);
        self.ask_ceilings(saturation);
        let passes = saturation < self.ceilings[at];
        self.drop_band(at);
        passes
    }

    /// Takes in a request that has room.
    pub fn push(&mut self, arrival: &Arrival<'_>, payload: T, now: Instant) -> Ticket {
        let Arrival { priority, flow, bytes, received, ttft_objective, patience } = *arrival;
        let ticket = self.tickets.next();
        let deadline = self.time_to_wait(patience).and_then(|time| now.checked_add(time));
        let waiting = Waiting { received, since: now, deadline, ttft_objective };
        let at = self.band(priority);
        self.bands[at].push(ticket, flow, waiting, bytes);
        self.load.add(bytes);
        let expires = self.expiry(now, patience);
        self.expiries.extend(expires.map(|at| (at, ticket)));
        self.entries.insert(ticket, Entry { payload, priority, bytes, since: now, patience, expires });
        ticket
    }

    /// Takes a request out, if it still waits.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Gone<T>> {
        let entry = self.entries.remove(&ticket)?;
        if let Some(at) = entry.expires {
            self.expiries.remove(&(at, ticket));
        }
        let Entry { payload, priority, bytes, since, .. } = entry;
        self.load.remove(bytes);
        let at = self.band(priority);
        self.bands[at].remove(ticket);
        self.drop_band(at);
        Some(Gone { payload, priority, bytes, since })
    }

    /// Who goes now, if anyone may: the highest band that has somebody waiting decides.
    pub fn next(&mut self, saturation: f64, now: Instant) -> Next<T> {
        if self.entries.is_empty() {
            return Next::Nobody;
        }
        if self.regime.is_empty {
            return Next::Held { by: None, again: None };
        }
        let again = self.ask_ceilings(saturation);
        let Some(at) = self.bands.iter().position(|band| !band.is_empty()) else { return Next::Nobody };
        if saturation >= self.ceilings[at] {
            return Next::Held { by: Some(at), again };
        }
        let ticket = self.bands[at].next(now).expect("somebody waits in the band");
        Next::Go(self.remove(ticket).expect("who is in a band is in the queue"))
    }

    /// The next one who has waited as long as it may, and under what that counts.
    pub fn expired(&mut self, now: Instant) -> Option<(Gone<T>, Outcome)> {
        let &(at, ticket) = self.expiries.first()?;
        if at > now {
            return None;
        }
        let outcome = if self.regime.is_empty { Outcome::EvictedNoEndpoints } else { Outcome::EvictedTtl };
        self.remove(ticket).map(|gone| (gone, outcome))
    }

    /// When the next one will have waited as long as it may.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// Takes everybody out.
    pub fn drain(&mut self) -> Vec<Gone<T>> {
        let tickets: Vec<Ticket> = self.entries.keys().copied().collect();
        tickets.into_iter().filter_map(|ticket| self.remove(ticket)).collect()
    }

    /// Goes on under other settings. Whoever waits stays; bands that are no more go once they are empty.
    pub fn reconfigure(&mut self, settings: Settings) {
        for new in &settings.bands {
            if !self.bands.iter().any(|band| band.settings.priority == new.priority) {
                self.bands.push(Band::new(new.clone(), true));
            }
        }
        for band in &mut self.bands {
            let priority = band.settings.priority;
            let configured = settings.bands.iter().any(|new| new.priority == priority);
            band.reconfigure(settings.band(priority), configured);
        }
        self.bands.retain(|band| band.configured || !band.is_empty());
        self.bands.sort_by_key(|band| std::cmp::Reverse(band.settings.priority));
        let times_differ =
            (settings.ttl, settings.no_endpoint_ttl) != (self.settings.ttl, self.settings.no_endpoint_ttl);
        self.settings = settings;
        self.bands_changed();
        if times_differ {
            self.set_expiries();
            self.set_deadlines();
        }
    }

    fn ask_ceilings(&mut self, saturation: f64) -> Option<Duration> {
        self.ceilings.clear();
        self.ceilings.resize(self.priorities.len(), 1.0);
        self.settings.usage_limit.ceilings(saturation, &self.priorities, &mut self.ceilings)
    }

    /// The place of the band of this priority; made if there is none.
    fn band(&mut self, priority: i32) -> usize {
        let found = self.priorities.binary_search_by(|p| priority.cmp(p));
        found.unwrap_or_else(|at| {
            self.bands.insert(at, Band::new(self.settings.band(priority), false));
            self.bands_changed();
            at
        })
    }

    /// Drops the band if no config has it and nobody waits there.
    fn drop_band(&mut self, at: usize) {
        if !self.bands[at].configured && self.bands[at].is_empty() {
            self.bands.remove(at);
            self.bands_changed();
        }
    }

    fn bands_changed(&mut self) {
        self.priorities.clear();
        self.priorities.extend(self.bands.iter().map(|band| band.settings.priority));
        self.ceilings.resize(self.priorities.len(), 1.0);
    }

    fn time_to_wait(&self, patience: Option<Duration>) -> Option<Duration> {
        match (self.settings.ttl, patience) {
            (Some(ttl), Some(patience)) => Some(ttl.min(patience)),
            (one, other) => one.or(other),
        }
    }

    /// When a request that began to wait at `since` has waited as long as it may, as things are.
    fn expiry(&self, since: Instant, patience: Option<Duration>) -> Option<Instant> {
        let began = self.regime.since.map_or(since, |changed| changed.max(since));
        let time = if self.regime.is_empty { self.settings.no_endpoint_ttl } else { self.time_to_wait(patience) };
        // What is beyond the clock never comes.
        time.and_then(|time| began.checked_add(time))
    }

    fn set_expiries(&mut self) {
        self.expiries.clear();
        let mut entries = std::mem::take(&mut self.entries);
        for (ticket, entry) in &mut entries {
            entry.expires = self.expiry(entry.since, entry.patience);
            self.expiries.extend(entry.expires.map(|at| (at, *ticket)));
        }
        self.entries = entries;
    }

    fn set_deadlines(&mut self) {
        let deadline =
            |entry: &Entry<T>| self.time_to_wait(entry.patience).and_then(|time| entry.since.checked_add(time));
        let all: Vec<_> = self.entries.iter().map(|(ticket, e)| (*ticket, e.priority, deadline(e))).collect();
        for (ticket, priority, deadline) in all {
            let at = self.band(priority);
            self.bands[at].set_deadline(ticket, deadline);
        }
    }
}
