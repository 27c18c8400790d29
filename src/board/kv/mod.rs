//! Board, KV events: what engines publish of their KV caches, brought to the plugins that ask for it.
//!
//! Payloads are not looked at here. Each endpoint has one task and one connection a subscription, or engines connect to a
//! bound socket. Both follow the endpoints: one that comes is heard, one that goes is cut off before plugins are told to
//! forget it, and nothing of it reaches them afterwards.
//!
//! A connection that is lost is tried again after 100 ms, then after longer pauses up to 5 s. (llm-d waits 5 s each time,
//! and so misses all that an engine says in the first seconds after it is back.)
//!
//! An endpoint without traffic costs about 5 KB and one open file; a second file while a replay runs. There is no queue
//! here: what is not taken in yet waits in the socket, and an engine drops what does not fit its own queue, which a gap in
//! the numbers then tells.

mod bound;
pub mod line;
mod message;
pub(super) mod metrics;
mod net;
mod replay;
pub mod report;
pub mod sequence;
mod speakers;
mod subscriber;
#[cfg(test)]
mod tests;
pub mod zmtp;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use arc_swap::ArcSwap;
use epp_plugin_api::{EndpointId, EndpointMeta, KvSubscription, MetricHub, Snapshot};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use self::bound::{Bound, ByAddress};
use self::line::{Line, Standing};
use self::metrics::KvPage;
pub use self::net::BindError;
use self::net::{BindAddress, Dial, Tcp};
use self::subscriber::Subscriber;
use super::scrape::standing::Warnings;
use crate::tasks::Tasks;

/// As many replays are under way at once in the process; others wait for their turn, and do not read on meanwhile.
const MOST_REPLAYS: usize = 8;

/// A subscription, and the name of the plugin whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub plugin: String,
    pub subscription: KvSubscription,
}

/// What all subscribers share.
pub struct Shared {
    dial: Box<dyn Dial>,
    replays: Semaphore,
    /// Long payloads that are decoded at once, over all endpoints: as many as there are cores.
    decoding: Arc<Semaphore>,
    warnings: Warnings,
}

/// Every subscription and the endpoints that it hears.
pub struct Kv {
    shared: Arc<Shared>,
    snapshots: Arc<ArcSwap<Snapshot>>,
    tasks: Tasks,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    subscriptions: Vec<Subscription>,
    /// The membership that they follow.
    membership: Option<u64>,
}

struct Subscription {
    wanted: Wanted,
    heard: HashMap<EndpointId, Heard>,
    socket: Option<Socket>,
}

/// An endpoint that is heard for as long as this lives.
struct Heard {
    line: Arc<Line>,
    /// `None`: it connects by itself.
    task: Option<AbortHandle>,
}

/// A bound socket for as long as this lives.
struct Socket {
    bound: Arc<Bound>,
    task: AbortHandle,
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
        self.line.close();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
        self.bound.ended.send_replace(true);
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kv({} subscriptions)", self.inner.lock().subscriptions.len())
    }
}

impl Kv {
    /// Makes everything ready; hears nobody yet.
    pub fn new(snapshots: Arc<ArcSwap<Snapshot>>, tasks: Tasks, metrics: &MetricHub) -> Arc<Self> {
        Self::with(Box::new(Tcp), snapshots, tasks, metrics)
    }

    fn with(dial: Box<dyn Dial>, snapshots: Arc<ArcSwap<Snapshot>>, tasks: Tasks, metrics: &MetricHub) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let shared = Shared {
            dial,
            replays: Semaphore::new(MOST_REPLAYS),
            decoding: Arc::new(Semaphore::new(cores)),
            warnings: Warnings::default(),
        };
        let kv = Arc::new(Self { shared: Arc::new(shared), snapshots, tasks, inner: Mutex::default() });
        let page = KvPage(Arc::downgrade(&kv));
        metrics.with_registry(|registry| registry.register_collector(Box::new(page)));
        kv
    }

    /// Begins with these subscriptions, and follows the endpoints from now on.
    ///
    /// # Errors
    /// If a socket cannot be bound.
    pub fn start(self: &Arc<Self>, wanted: Vec<Wanted>, changes: watch::Receiver<u64>) -> Result<(), BindError> {
        let mut subscriptions = Vec::new();
        for wanted in wanted {
            let listener = wanted.subscription.bind.as_deref().map(listen).transpose()?;
            subscriptions.push(self.subscribe(wanted, listener));
        }
        self.inner.lock().subscriptions = subscriptions;
        self.follow(&mut self.inner.lock());
        self.tasks.spawn("kv membership", self.clone().keep_up(changes));
        Ok(())
    }

    /// Takes the subscriptions of a changed config: those that are as before go on, others end or begin. A socket that
    /// cannot be bound is tried again and again, and named in the log.
    pub fn change(&self, wanted: Vec<Wanted>) {
        let mut inner = self.inner.lock();
        let mut before = std::mem::take(&mut inner.subscriptions);
        for wanted in wanted {
            let same = before.iter().position(|s| s.wanted == wanted);
            // Those that end go first, so that their sockets are free.
            inner.subscriptions.extend(same.map(|at| before.swap_remove(at)));
            if same.is_none() {
                inner.subscriptions.push(Subscription { wanted, heard: HashMap::new(), socket: None });
            }
        }
        drop(before);
        for subscription in &mut inner.subscriptions {
            if subscription.socket.is_none()
                && let Some(address) = subscription.wanted.subscription.bind.clone()
            {
                subscription.socket = Some(self.bind(address, &subscription.wanted, None));
            }
        }
        self.follow(&mut inner);
    }

    /// The endpoint has left: nothing of it reaches a plugin once this returns.
    pub fn gone(&self, id: EndpointId) {
        for subscription in &mut self.inner.lock().subscriptions {
            subscription.heard.remove(&id);
        }
    }

    async fn keep_up(self: Arc<Self>, mut changes: watch::Receiver<u64>) {
        while changes.changed().await.is_ok() {
            let membership = self.snapshots.load().membership();
            let mut inner = self.inner.lock();
            if inner.membership != Some(membership) {
                self.follow(&mut inner);
            }
        }
    }

    /// Hears exactly the endpoints of the snapshot. It is taken under the lock, so an endpoint that [`Self::gone`] has
    /// removed does not come back by an older one.
    fn follow(&self, inner: &mut Inner) {
        let snapshot = self.snapshots.load_full();
        inner.membership = Some(snapshot.membership());
        let endpoints: HashMap<EndpointId, &Arc<EndpointMeta>> =
            snapshot.indices().map(|idx| (snapshot.id(idx), snapshot.meta(idx))).collect();
        for subscription in &mut inner.subscriptions {
            subscription.heard.retain(|id, _| endpoints.contains_key(id));
            for (id, meta) in &endpoints {
                let before = subscription.heard.get(id);
                if before.is_some_and(|heard| same_place(&heard.line.meta, meta)) {
                    continue;
                }
                let moved = before.is_some();
                subscription.heard.remove(id);
                let line = self.line((*id, Arc::clone(meta)), subscription);
                if moved {
                    // Another engine, or the same one started anew.
                    line.lost();
                }
                let task = subscription.wanted.subscription.connect.map(|ports| {
                    let filter = subscription.wanted.subscription.topic.clone();
                    let subscriber = Subscriber::new(line.clone(), self.shared.clone(), filter, ports);
                    self.tasks.spawn("kv subscriber", subscriber.run())
                });
                if task.is_some() || subscription.socket.is_some() {
                    subscription.heard.insert(*id, Heard { line, task });
                }
            }
            if let Some(socket) = &subscription.socket {
                socket.bound.endpoints.store(Arc::new(by_address(subscription.heard.values())));
            }
        }
    }

    fn line(&self, endpoint: (EndpointId, Arc<EndpointMeta>), of: &Subscription) -> Arc<Line> {
        let connects = of.wanted.subscription.connect.is_some();
        let standing = if connects { Standing::Disconnected } else { Standing::Silent };
        Line::new(endpoint, standing, of.wanted.subscription.sink.clone(), self.shared.decoding.clone())
    }

    fn subscribe(&self, wanted: Wanted, listener: Option<TcpListener>) -> Subscription {
        let address = wanted.subscription.bind.clone();
        let socket = address.map(|address| self.bind(address, &wanted, listener));
        Subscription { wanted, heard: HashMap::new(), socket }
    }

    fn bind(&self, address: String, wanted: &Wanted, listener: Option<TcpListener>) -> Socket {
        let bound = Arc::new(Bound {
            address,
            filter: wanted.subscription.topic.clone(),
            shared: self.shared.clone(),
            tasks: self.tasks.clone(),
            endpoints: ArcSwap::default(),
            publishers: AtomicUsize::new(0),
            unknown: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            last_error: Mutex::default(),
            ended: watch::Sender::new(false),
        });
        let task = self.tasks.spawn("kv socket", bound.clone().run(listener));
        Socket { bound, task }
    }
}

fn listen(address: &str) -> Result<TcpListener, BindError> {
    let listener = BindAddress::parse(address)?.listen();
    listener.map_err(|error| BindError::Listen { address: address.to_owned(), error })
}

/// Whether an entry that has changed still means the same publisher.
fn same_place(a: &EndpointMeta, b: &EndpointMeta) -> bool {
    (&a.host, a.port, a.rank) == (&b.host, b.port, b.rank)
}

fn by_address<'a>(heard: impl Iterator<Item = &'a Heard>) -> ByAddress {
    let mut endpoints = ByAddress::new();
    for heard in heard {
        let meta = &heard.line.meta;
        let raw = format!("{}:{}", meta.host, meta.port);
        if raw != meta.host_port {
            endpoints.entry(raw).or_default().push(heard.line.clone());
        }
        endpoints.entry(meta.host_port.clone()).or_default().push(heard.line.clone());
    }
    endpoints
}
