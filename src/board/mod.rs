//! Board, room 4 and what keeps it up to date: which endpoints there are and what their engines last said.

pub mod asking;
pub mod discovery;
pub mod exposition;
mod gauges;
pub mod kv;
mod membership;
mod publisher;
pub mod reading;
pub mod report;
pub mod scrape;
mod staleness;
pub mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use epp_plugin_api::{DiscoverySpec, EndpointId, Ledger, MetricHub, Snapshot};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, watch as watch_channel};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::discovery::resolve::{self, Lookup};
use self::discovery::{Discovery, OpenError};
use self::gauges::{BoardMetrics, Queues};
use self::kv::metrics::KvExample;
use self::membership::Membership;
use self::report::{EndpointReport, FileReport, MOST, Report};
use self::staleness::Lines;
use self::watch::Watch;
use crate::tasks::Tasks;

/// Puts every family of the board on a page that shows all, with an example of what else is there only with endpoints.
pub fn list_families(hub: &MetricHub) {
    hub.families::<BoardMetrics>();
    hub.families::<scrape::metrics::ScrapeMetrics>();
    hub.with_registry(|registry| {
        registry.register_collector(Box::new(Queues::example()));
        registry.register_collector(Box::new(KvExample));
    });
}

/// What is done more often than this only costs.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// What the board is told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub discovery: DiscoverySpec,
    /// How long what an engine said counts.
    pub staleness: Duration,
    /// How often there is a new snapshot if engines said something new.
    pub publish_every: Duration,
    /// How often the pool's averages are set.
    pub gauges_every: Duration,
    /// The name of the pool in metrics.
    pub pool_name: String,
}

impl Settings {
    /// The settings with their defaults.
    pub fn new(discovery: DiscoverySpec) -> Self {
        Self {
            discovery,
            staleness: Duration::from_secs(2),
            publish_every: Duration::from_millis(50),
            gauges_every: Duration::from_secs(5),
            pool_name: "epp".to_owned(),
        }
    }
}

/// Hears of an endpoint that left, before its slot is given to another.
pub type OnGone = Box<dyn Fn(EndpointId) + Send + Sync>;

/// All that is known of the endpoints.
pub struct Board {
    settings: Settings,
    snapshot: Arc<ArcSwap<Snapshot>>,
    ledger: Arc<Ledger>,
    watch: Box<dyn Watch>,
    lookup: Lookup,
    tasks: Tasks,
    /// Other files for the discovery to follow. Whoever names one while another is not taken up waits.
    moves: mpsc::Sender<Discovery>,
    inner: Mutex<Inner>,
    on_gone: RwLock<Vec<OnGone>>,
    changes: watch_channel::Sender<u64>,
    metrics: Arc<BoardMetrics>,
}

/// What only the back rooms touch.
#[derive(Default)]
struct Inner {
    members: Membership,
    file: FileReport,
    lines: Lines,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({} endpoints)", self.load().rows())
    }
}

impl Board {
    /// Finds the endpoints and keeps up with them until the tasks stop. Every endpoint of the file is there when this
    /// returns.
    ///
    /// # Errors
    /// If the endpoints file cannot be read or does not parse.
    pub async fn open(
        settings: Settings,
        watch: Box<dyn Watch>,
        tasks: &Tasks,
        metrics: &MetricHub,
    ) -> Result<Arc<Self>, OpenError> {
        Self::open_with(settings, watch, resolve::system(), tasks, metrics).await
    }

    async fn open_with(
        settings: Settings,
        watch: Box<dyn Watch>,
        lookup: Lookup,
        tasks: &Tasks,
        metrics: &MetricHub,
    ) -> Result<Arc<Self>, OpenError> {
        let discovery = Discovery::open(&settings.discovery, lookup.clone(), tasks).await?;
        let (moves, moved) = mpsc::channel(1);
        let board = Arc::new(Self {
            settings,
            snapshot: Arc::default(),
            ledger: Arc::default(),
            watch,
            lookup,
            tasks: tasks.clone(),
            moves,
            inner: Mutex::default(),
            on_gone: RwLock::default(),
            changes: watch_channel::Sender::new(0),
            metrics: metrics.families(),
        });
        let queues = Queues { pool: board.settings.pool_name.clone(), snapshot: board.snapshot.clone() };
        metrics.with_registry(|registry| registry.register_collector(Box::new(queues)));
        board.take(&discovery);
        board.measure();
        tasks.spawn("discovery", board.clone().discover(discovery, moved));
        tasks.spawn("publish", board.clone().publish());
        tasks.spawn("gauges", board.clone().gauge());
        Ok(board)
    }

    /// Reads the endpoints file of another discovery, for [`Self::move_to`].
    ///
    /// # Errors
    /// If it cannot be read or does not parse.
    pub async fn look_at(&self, spec: &DiscoverySpec) -> Result<Discovery, OpenError> {
        Discovery::open(spec, self.lookup.clone(), &self.tasks).await
    }

    /// Follows another file from now on. Endpoints that both files have keep their identity and what was observed.
    pub async fn move_to(&self, discovery: Discovery) {
        // The receiver ends with the tasks alone, and then nothing is followed any more.
        let _ = self.moves.send(discovery).await;
    }

    /// Has every endpoint asked for what engines are asked for now.
    pub fn renew(&self) {
        self.inner.lock().members.members().iter().for_each(|member| member.watched.renew());
    }

    /// The current snapshot, to keep.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Where the current snapshot always is.
    pub fn snapshots(&self) -> Arc<ArcSwap<Snapshot>> {
        self.snapshot.clone()
    }

    /// The current snapshot, to look at for a moment.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Changes with every new snapshot, to wait for one.
    pub fn changes(&self) -> watch_channel::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What is in flight, by endpoint.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Calls `heard` with each endpoint that leaves from now on, after it has left the snapshot and before its slot is
    /// given away. It must be quick and must not come back to the board.
    pub fn on_gone(&self, heard: OnGone) {
        self.on_gone.write().push(heard);
    }

    /// Reports on every endpoint and on the file that they come from.
    pub fn report(&self) -> Report {
        let now = Instant::now();
        let inner = self.inner.lock();
        let fresh = |m: &membership::Member| publisher::is_fresh(&m.watched.observed(), now, self.settings.staleness);
        let members = inner.members.members();
        let report = |m| EndpointReport::of(m, &self.ledger, fresh(m), now);
        Report {
            file: inner.file.clone(),
            total: members.len(),
            endpoints: members.iter().take(MOST).map(report).collect(),
        }
    }

    /// Takes what there is now by the file.
    fn take(&self, discovery: &Discovery) {
        let (listing, now) = (discovery.listing(), Instant::now());
        let file = FileReport {
            path: discovery.path().display().to_string(),
            refused: discovery.refused().map(ToString::to_string),
            bad_total: listing.problems.len(),
            bad: listing.problems.iter().take(MOST).map(Into::into).collect(),
        };
        self.metrics.bad_entries.set(i64::try_from(file.bad_total).unwrap_or(i64::MAX));
        let gone = {
            let mut inner = self.inner.lock();
            inner.file = file;
            let change = inner.members.apply(&listing.endpoints, &*self.watch, now);
            if change.any {
                let membership = self.snapshot.load().membership() + 1;
                let snapshot = publisher::snapshot(&inner.members, membership, now, self.settings.staleness);
                self.put(snapshot);
            }
            change.gone
        };
        if !gone.is_empty() {
            for heard in self.on_gone.read().iter() {
                gone.iter().for_each(|member| heard(member.id));
            }
            self.inner.lock().members.release(gone.iter().map(|member| member.id));
        }
    }

    /// Puts a snapshot in the place of the last. Only with `inner` locked, so that none overtakes another.
    fn put(&self, snapshot: Snapshot) {
        self.metrics.stale.set(i64::try_from(snapshot.stale().len()).unwrap_or(i64::MAX));
        self.snapshot.store(Arc::new(snapshot));
        self.changes.send_modify(|n| *n += 1);
    }

    /// Takes up what engines have said since the last snapshot.
    fn refresh(&self) {
        let (now, staleness) = (Instant::now(), self.settings.staleness);
        let mut inner = self.inner.lock();
        let Inner { members, lines, .. } = &mut *inner;
        if let Some(next) = publisher::next(&self.snapshot.load(), members, now, staleness) {
            let none_heard = |snapshot: &Snapshot| snapshot.stale().len() == snapshot.rows();
            let is_first = none_heard(&self.snapshot.load()) && !none_heard(&next);
            self.put(next);
            if is_first {
                // Who has just started looks at once, and gauges come every few seconds.
                self.measure();
            }
        }
        publisher::tell(&self.snapshot.load(), members, now, staleness, lines);
    }

    fn measure(&self) {
        self.metrics.set(&self.settings.pool_name, &self.snapshot.load());
    }

    async fn discover(self: Arc<Self>, mut discovery: Discovery, mut moved: mpsc::Receiver<Discovery>) {
        let mut refused = 0;
        loop {
            tokio::select! {
                changed = discovery.changed() => {
                    if !changed {
                        return;
                    }
                    self.metrics.refused_files.inc_by(discovery.refusals() - refused);
                    refused = discovery.refusals();
                }
                // The sender lives as long as the board.
                Some(next) = moved.recv() => (discovery, refused) = (next, 0),
            }
            self.take(&discovery);
        }
    }

    async fn publish(self: Arc<Self>) {
        every(self.settings.publish_every, || self.refresh()).await;
    }

    async fn gauge(self: Arc<Self>) {
        every(self.settings.gauges_every, || self.measure()).await;
    }
}

async fn every(period: Duration, mut act: impl FnMut()) {
    let mut ticks = interval(period.max(LEAST_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        act();
    }
}

#[cfg(test)]
mod tests;
