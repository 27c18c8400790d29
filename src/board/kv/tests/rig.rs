//! A network inside of the process, engines on it, and a plugin that writes down what it is told.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::{
    EndpointId, EndpointMeta, EndpointName, KvPorts, KvSink, KvSubscription, MetricHub, Observed, Snapshot, SnapshotRow,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use crate::board::kv::net::Dial;
use crate::board::kv::zmtp::connection::Io;
use crate::board::kv::zmtp::wire::{self, Decoder, GREETING, Item};
use crate::board::kv::{Kv, Wanted};
use crate::tasks::Tasks;

/// Longer than anything that comes about; time is paused, so nobody waits for it.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// What fits into a connection; small, so that messages come in pieces.
const PIPE: usize = 1 << 10;

pub const PORTS: KvPorts = KvPorts { events: 5557, replay: None };
pub const WITH_REPLAY: KvPorts = KvPorts { events: 5557, replay: Some(5558) };

/// Waits for what must come about.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(FOR_EVER, what).await.expect("it comes about")
}

type Listeners = HashMap<(String, u16), mpsc::UnboundedSender<DuplexStream>>;

/// Hosts that can be connected to.
#[derive(Clone, Default)]
pub struct Net(Arc<Mutex<Listeners>>);

impl Net {
    pub fn listen(&self, host: &str, port: u16) -> Port {
        let (listener, accepted) = mpsc::unbounded_channel();
        self.0.lock().insert((host.to_owned(), port), listener);
        Port(accepted)
    }
}

impl Dial for Net {
    fn dial(&self, host: &str, port: u16) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let taken = self.0.lock().get(&(host.to_owned(), port)).is_some_and(|port| port.send(theirs).is_ok());
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let result = if taken { Ok(Box::new(ours) as Box<dyn Io>) } else { Err(refused()) };
        Box::pin(async move { result })
    }
}

/// Where one host listens.
pub struct Port(mpsc::UnboundedReceiver<DuplexStream>);

impl Port {
    /// Waits for the next connection, without a word to it.
    pub async fn accept(&mut self) -> DuplexStream {
        soon(self.0.recv()).await.expect("the network is there")
    }

    /// Waits for the next subscriber.
    pub async fn publisher(&mut self) -> Peer {
        let mut peer = Peer::new(self.accept().await, "XPUB").await;
        assert_eq!(peer.message().await, [b"\x01kv@"]);
        peer
    }

    /// Waits until somebody asks for a replay; gives the number as well.
    pub async fn replay(&mut self) -> (Peer, u64) {
        let mut peer = Peer::new(self.accept().await, "ROUTER").await;
        let asked = peer.message().await;
        assert_eq!((asked.len(), asked[0].len(), asked[1].len()), (2, 0, 8));
        let from = asked[1][..].try_into().map(u64::from_be_bytes).expect("8 bytes are a number");
        (peer, from)
    }
}

/// The engine's end of a connection.
pub struct Peer {
    pub io: DuplexStream,
    decoder: Decoder,
}

impl Peer {
    pub async fn new(mut io: DuplexStream, socket: &str) -> Self {
        io.write_all(&wire::greeting()).await.expect("the other end reads");
        let mut greeting = [0; GREETING];
        soon(io.read_exact(&mut greeting)).await.expect("the other end greets");
        assert_eq!((greeting[10], greeting[11], greeting[32]), (3, 0, 0), "a client of ZMTP 3.0");
        let mut ready = Vec::new();
        wire::write_ready(&mut ready, socket);
        io.write_all(&ready).await.expect("the other end reads");
        let mut peer = Self { io, decoder: Decoder::default() };
        let Item::Command(command) = peer.item().await else { panic!("expected READY") };
        let expected: &[&str] = if socket == "ROUTER" { &["DEALER"] } else { &["SUB"] };
        wire::check_ready(&command, if expected == ["SUB"] { &["SUB"] } else { &["DEALER"] }).expect("it is ready");
        peer
    }

    pub async fn item(&mut self) -> Item {
        loop {
            let byte = [soon(self.io.read_u8()).await.expect("the other end goes on")];
            if let Some(item) = self.decoder.feed(&mut &byte[..]).expect("the other end keeps the protocol") {
                return item;
            }
        }
    }

    pub async fn message(&mut self) -> Vec<Vec<u8>> {
        match self.item().await {
            Item::Message(message) => message.frames().map(<[u8]>::to_vec).collect(),
            other => panic!("expected a message, found {other:?}"),
        }
    }

    pub async fn raw(&mut self, frames: &[&[u8]]) {
        let mut out = Vec::new();
        for (i, body) in frames.iter().enumerate() {
            wire::frame(&mut out, body, i + 1 < frames.len());
        }
        soon(self.io.write_all(&out)).await.expect("the other end reads");
    }

    pub async fn send(&mut self, seq: u64, payload: &str) {
        self.raw(&[b"kv@pod@m", &seq.to_be_bytes(), payload.as_bytes()]).await;
    }

    /// Answers a request for a replay with messages of these numbers, each with a payload of its own.
    pub async fn reply(&mut self, numbers: &[u64]) {
        for seq in numbers {
            self.raw(&[b"", b"kv@pod@m", &seq.to_be_bytes(), format!("old{seq}").as_bytes()]).await;
        }
    }

    pub async fn end(&mut self) {
        self.raw(&[b"", b"kv@pod@m", &u64::MAX.to_be_bytes(), b""]).await;
    }

    /// Waits until the other end is gone.
    pub async fn closed(mut self) {
        while soon(self.io.read(&mut [0; 64])).await.is_ok_and(|n| n > 0) {}
    }
}

/// Writes down what a plugin is told.
#[derive(Clone)]
pub struct Notes {
    names: Arc<Mutex<HashMap<EndpointId, String>>>,
    lines: mpsc::UnboundedSender<String>,
}

impl Notes {
    fn note(&self, from: EndpointId, what: &str) {
        let name = self.names.lock().get(&from).cloned().unwrap_or_default();
        // Nobody may read it any more.
        let _ = self.lines.send(format!("{name} {what}"));
    }
}

impl KvSink for Notes {
    fn message(&self, from: EndpointId, topic: &[u8], payload: &[u8]) {
        assert_ne!(payload, b"panic", "a plugin may be wrong");
        let topic = String::from_utf8_lossy(topic);
        let topic = if topic == "kv@pod@m" { String::new() } else { format!("{topic} ") };
        let text = match std::str::from_utf8(payload) {
            Ok(text) if text.len() < 100 => text.to_owned(),
            Ok(_) | Err(_) => format!("{} bytes", payload.len()),
        };
        self.note(from, &format!("{topic}{text}"));
    }

    fn lost(&self, from: EndpointId) {
        self.note(from, "lost");
    }
}

/// Everything together.
pub struct Rig {
    pub net: Net,
    pub kv: Arc<Kv>,
    pub hub: MetricHub,
    pub tasks: Tasks,
    sink: Notes,
    told: mpsc::UnboundedReceiver<String>,
    snapshots: Arc<ArcSwap<Snapshot>>,
    changes: watch::Sender<u64>,
    ids: BTreeMap<String, EndpointId>,
    serial: u32,
}

impl Rig {
    /// Begins with a subscription that connects to these endpoints: name, host and port of each.
    pub fn new(ports: KvPorts, endpoints: &[(&str, &str, u16)]) -> Self {
        let mut rig = Self::idle();
        rig.endpoints(endpoints);
        let wanted = vec![rig.wanted("kv@", Some(ports))];
        rig.kv.start(wanted, rig.changes.subscribe()).expect("nothing is bound");
        rig
    }

    pub fn idle() -> Self {
        let (lines, told) = mpsc::unbounded_channel();
        let (net, tasks, hub) = (Net::default(), Tasks::default(), MetricHub::default());
        let snapshots: Arc<ArcSwap<Snapshot>> = Arc::default();
        let kv = Kv::with(Box::new(net.clone()), snapshots.clone(), tasks.clone(), &hub);
        let sink = Notes { names: Arc::default(), lines };
        let changes = watch::Sender::new(0);
        Self { net, kv, hub, tasks, sink, told, snapshots, changes, ids: BTreeMap::new(), serial: 0 }
    }

    pub fn wanted(&self, topic: &str, connect: Option<KvPorts>) -> Wanted {
        let sink = Arc::new(self.sink.clone());
        let subscription = KvSubscription { topic: topic.to_owned(), bind: None, connect, sink };
        Wanted { plugin: "precise".to_owned(), subscription }
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Does with endpoints what the board does: the snapshot first, then who is gone, then the word of a change.
    pub fn endpoints(&mut self, endpoints: &[(&str, &str, u16)]) {
        let before = std::mem::take(&mut self.ids);
        let mut rows = Vec::new();
        for (slot, (name, host, port)) in endpoints.iter().enumerate() {
            let id = before.get(*name).copied().unwrap_or_else(|| {
                self.serial += 1;
                EndpointId::new(u32::try_from(slot).expect("tests are small"), self.serial)
            });
            self.ids.insert((*name).to_owned(), id);
            self.sink.names.lock().insert(id, (*name).to_owned());
            let name = EndpointName { namespace: "default".into(), name: (*name).into() };
            let meta = Arc::new(EndpointMeta::new(name, (*host).into(), *port, BTreeMap::new(), 0));
            rows.push(SnapshotRow { id, meta, observed: Observed::default() });
        }
        let membership = self.snapshots.load().membership() + 1;
        let snapshot = Snapshot::new(membership, rows, Instant::now(), Duration::from_secs(2));
        self.snapshots.store(Arc::new(snapshot));
        for (name, id) in before {
            if !self.ids.contains_key(&name) {
                self.kv.gone(id);
            }
        }
        self.changes.send_modify(|n| *n += 1);
    }

    /// The next thing that the plugin is told.
    pub async fn told(&mut self) -> String {
        soon(self.told.recv()).await.expect("the sink is there")
    }

    pub async fn is_told(&mut self, expected: &[&str]) {
        for line in expected {
            assert_eq!(self.told().await, *line);
        }
    }

    /// Asserts that the plugin has been told nothing that nobody looked at.
    pub fn is_told_nothing_more(&mut self) {
        assert_eq!(self.told.try_recv().ok(), None);
    }

    /// The lines of a metric on the page.
    pub fn metric(&self, name: &str) -> Vec<String> {
        let mut page = String::new();
        self.hub.with_registry(|r| prometheus_client::encoding::text::encode(&mut page, r)).expect("memory takes it");
        page.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
    }
}
