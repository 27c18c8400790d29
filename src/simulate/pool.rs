//! The engines of a simulation, and what the picker hears of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{EndpointId, EndpointMeta, EndpointName, Observed, Role, Snapshot, SnapshotRow};
use epp_sim::model::{Event, Load, Model, ModelSettings, Refusal, Request, RequestId};
use tokio::time::Instant;

use super::clock::Clock;

/// All engines, by the row of their endpoint.
pub(super) struct Pool {
    pub engines: Vec<Model>,
    settings: Vec<ModelSettings>,
    rows: Vec<Row>,
    /// Requests that were sent there and have not ended.
    pub in_flight: Vec<u32>,
    /// The same summed over time, in seconds, and until when.
    areas: Vec<(f64, Duration)>,
    /// Rows of endpoints that the picker knows.
    listed: Vec<usize>,
    /// Counts how often that changed.
    membership: u64,
    last_serial: u32,
    tells_of_caches: bool,
}

/// An endpoint and how it stands with its engine.
struct Row {
    id: EndpointId,
    meta: Arc<EndpointMeta>,
    standing: Standing,
    /// When the engine began.
    since: Duration,
    /// What it said last, and when.
    said: Option<(Duration, Load)>,
    listed: bool,
    /// It has begun anew, and the picker does not know yet.
    anew: bool,
    /// Whether what is lost with it is picked for once more.
    retries: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Up,
    /// Ends what it has begun.
    Leaving,
    Down,
}

/// Why an engine did not take a request.
#[derive(Debug)]
pub(super) enum NotSent {
    Refused(Refusal),
    /// It is not there.
    Gone,
}

/// What the picker comes to know of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub left: Option<EndpointId>,
    pub came: Option<(EndpointId, EndpointName)>,
}

impl Pool {
    /// Makes idle engines, the first `prefill` of which are told to be there for prefill, and others for decode. If that
    /// is 0 no endpoint has a role.
    ///
    /// # Panics
    /// If such an engine cannot run.
    pub fn new(settings: &[ModelSettings], prefill: usize) -> Self {
        let row = |i: usize| {
            let number = i as u32;
            let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
            let host = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
            let role = if i < prefill { "prefill" } else { "decode" };
            let labels = BTreeMap::from([(Role::LABEL.to_owned(), role.to_owned())]);
            let labels = if prefill > 0 { labels } else { BTreeMap::new() };
            Row {
                id: EndpointId::new(number, number + 1),
                meta: Arc::new(EndpointMeta::new(name, host, 8000, labels, 0)),
                standing: Standing::Up,
                since: Duration::ZERO,
                said: None,
                listed: true,
                anew: false,
                retries: false,
            }
        };
        Self {
            engines: settings.iter().map(engine).collect(),
            settings: settings.to_vec(),
            rows: (0..settings.len()).map(row).collect(),
            in_flight: vec![0; settings.len()],
            areas: vec![(0.0, Duration::ZERO); settings.len()],
            listed: (0..settings.len()).collect(),
            membership: 1,
            last_serial: settings.len() as u32,
            tells_of_caches: false,
        }
    }

    /// Takes an endpoint away before anything begins.
    pub fn is_not_there_at_first(&mut self, row: usize) {
        let it = &mut self.rows[row];
        (it.standing, it.listed) = (Standing::Down, false);
        self.listed.retain(|other| *other != row);
    }

    /// Lets all engines tell of their caches.
    pub fn tell_of_caches(&mut self) {
        self.tells_of_caches = true;
        self.engines.iter_mut().for_each(Model::tell_of_cache);
    }

    /// Sends a request, with the blocks of its prompt if another engine has `computed` it.
    ///
    /// # Errors
    /// If the engine does not take it.
    pub fn send(&mut self, row: usize, now: Duration, request: &Request, computed: bool) -> Result<RequestId, NotSent> {
        let engine = &mut self.engines[row];
        match self.rows[row].standing {
            Standing::Down => Err(NotSent::Gone),
            _ if computed => engine.arrive_computed(now, request).map_err(NotSent::Refused),
            _ => engine.arrive(now, request).map_err(NotSent::Refused),
        }
    }

    /// Lets an engine work until then.
    pub fn work(&mut self, row: usize, now: Duration) -> Vec<Event> {
        self.engines[row].advance(now)
    }

    /// What all engines would say of themselves now.
    pub fn observe(&self) -> Vec<Load> {
        self.engines.iter().map(Model::load).collect()
    }

    /// Rows of the endpoints that the picker knows.
    pub fn listed(&self) -> &[usize] {
        &self.listed
    }

    /// The identity of an endpoint that the picker knows; `None` if it knows of none in this row.
    pub fn id(&self, row: usize) -> Option<EndpointId> {
        Some(&self.rows[row]).filter(|row| row.listed).map(|row| row.id)
    }

    /// The entry of an endpoint.
    pub fn meta(&self, row: usize) -> &EndpointMeta {
        &self.rows[row].meta
    }

    /// Whether an engine takes requests.
    pub fn is_up(&self, row: usize) -> bool {
        self.rows[row].standing != Standing::Down
    }

    /// Whether requests that are lost with an engine are picked for once more.
    pub fn retries(&self, row: usize) -> bool {
        self.rows[row].retries
    }

    /// Takes what engines said at `at`. Who is not there says nothing, and the last word of it stays.
    pub fn said(&mut self, loads: &[Load], at: Duration) {
        for (row, load) in self.rows.iter_mut().zip(loads) {
            if row.standing != Standing::Down && at >= row.since {
                row.said = Some((at, *load));
            }
        }
    }

    /// The board as it is now.
    pub fn snapshot(&self, clock: &Clock, now: Instant, staleness: Duration) -> Snapshot {
        let rows = self.listed.iter().map(|row| {
            let (row, settings) = (&self.rows[*row], &self.settings[*row]);
            let observed = match row.said {
                None => Observed::default(),
                Some((at, load)) => Observed {
                    waiting: Some(load.waiting as f64),
                    running: Some(load.running as f64),
                    kv_usage: Some(load.used_blocks as f64 / settings.blocks as f64),
                    block_tokens: u32::try_from(settings.block_size).ok(),
                    blocks: u32::try_from(settings.blocks).ok(),
                    at: Some(clock.instant(at)),
                    ..Observed::default()
                },
            };
            SnapshotRow { id: row.id, meta: row.meta.clone(), observed }
        });
        Snapshot::new(self.membership, rows, now, staleness)
    }

    /// Counts a request in flight, or one that is not any more. Returns how many there are.
    pub fn count(&mut self, row: usize, now: Duration, more: i32) -> u32 {
        let (area, until) = &mut self.areas[row];
        let count = &mut self.in_flight[row];
        *area += f64::from(*count) * (now - *until).as_secs_f64();
        *until = now;
        *count = count.checked_add_signed(more).expect("what ends has begun");
        *count
    }

    /// Requests in flight there, summed over time, in seconds.
    pub fn area(&self, row: usize, now: Duration) -> f64 {
        let (area, until) = self.areas[row];
        area + f64::from(self.in_flight[row]) * (now - until).as_secs_f64()
    }

    /// Forgets all caches, as new weights do. Returns how many engines were busy and kept theirs.
    pub fn reset_caches(&mut self) -> usize {
        self.engines.iter_mut().map(|engine| usize::from(!engine.reset_prefix_cache())).sum()
    }

    /// An engine ends at once, with all that it has.
    pub fn fail(&mut self, row: usize, retries: bool) {
        self.engines[row] = self.fresh(row);
        let it = &mut self.rows[row];
        (it.standing, it.retries) = (Standing::Down, retries);
    }

    /// An engine gets no new requests once the picker knows.
    pub fn leave(&mut self, row: usize) {
        self.rows[row].standing = Standing::Leaving;
    }

    /// An engine begins, empty. One that has not ended what it had begun when it left comes back as it is.
    pub fn join(&mut self, row: usize, now: Duration) {
        if self.in_flight[row] == 0 {
            self.engines[row] = self.fresh(row);
        }
        let it = &mut self.rows[row];
        (it.standing, it.since, it.said, it.anew) = (Standing::Up, now, None, it.listed);
    }

    /// An engine is `speed` times as fast as it was at first, from now on.
    pub fn change_speed(&mut self, row: usize, now: Duration, speed: f64) {
        let costs = self.settings[row].sped_up(speed).expect("factors of changes are checked");
        self.engines[row].change_costs(now, &costs);
    }

    /// Lets the picker know how it stands with an endpoint.
    pub fn list(&mut self, row: usize) -> Listing {
        let it = &mut self.rows[row];
        let up = it.standing == Standing::Up;
        let mut listing = Listing::default();
        if it.listed && (!up || it.anew) {
            listing.left = Some(it.id);
            it.listed = false;
        }
        if up && !it.listed {
            self.last_serial += 1;
            it.id = EndpointId::new(row as u32, self.last_serial);
            (it.listed, it.anew) = (true, false);
            listing.came = Some((it.id, it.meta.name.clone()));
        }
        self.membership += 1;
        self.listed = (0..self.rows.len()).filter(|row| self.rows[*row].listed).collect();
        listing
    }

    fn fresh(&self, row: usize) -> Model {
        let mut engine = engine(&self.settings[row]);
        if self.tells_of_caches {
            engine.tell_of_cache();
        }
        engine
    }
}

fn engine(settings: &ModelSettings) -> Model {
    Model::brief(settings.clone()).expect("settings are checked")
}
