//! Board, KV events: one endpoint as one subscription hears it: what was heard, and the way to the plugin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use epp_plugin_api::{EndpointId, EndpointMeta, KvSink};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::Instant;

use super::message::Topic;
use super::speakers::Speakers;
use super::zmtp::wire::Message;

/// A longer payload is decoded away from the threads that serve requests.
const LONG_PAYLOAD: usize = 64 << 10;

/// What went wrong, as the metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Connect,
    Receive,
    /// A message of a shape that none has, or one above the limits.
    Message,
    Replay,
    UnknownEndpoint,
}

impl Operation {
    /// Every one, in the order of the counters.
    pub const ALL: [Self; 5] = [Self::Connect, Self::Receive, Self::Message, Self::Replay, Self::UnknownEndpoint];

    /// The value of the label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Receive => "receive",
            Self::Message => "message",
            Self::Replay => "replay",
            Self::UnknownEndpoint => "unknown-endpoint",
        }
    }
}

/// How it stands with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// No connection has come about yet, or the last one is lost.
    Disconnected,
    Connected,
    /// Other replays come first.
    WaitingForReplay,
    Replaying,
    /// The engine is to connect and name itself, and has not yet.
    Silent,
}

/// What there is to tell of an endpoint.
#[derive(Clone, Debug)]
pub struct Told {
    pub standing: Standing,
    pub since: Instant,
    pub last_sequence: Option<u64>,
    pub last_error: Option<String>,
    pub replays: u64,
    pub replayed_messages: u64,
}

/// Counters of an endpoint.
#[derive(Debug, Default)]
pub struct Counts {
    /// Messages of the right shape.
    pub messages: AtomicU64,
    pub reconnections: AtomicU64,
    errors: [AtomicU64; Operation::ALL.len()],
    /// Times that what was known of the engine was given up.
    pub lost: AtomicU64,
}

impl Counts {
    /// Counts an error.
    pub fn error(&self, operation: Operation) {
        self.errors[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often this went wrong.
    pub fn errors(&self, operation: Operation) -> u64 {
        self.errors[operation as usize].load(Ordering::Relaxed)
    }
}

/// One endpoint as one subscription hears it.
pub struct Line {
    pub id: EndpointId,
    pub meta: Arc<EndpointMeta>,
    pub counts: Counts,
    pub told: Mutex<Told>,
    /// The connections that speak for it, if engines connect by themselves.
    pub speakers: Mutex<Speakers>,
    /// Whether the plugin is told. Held while it is, so that nothing comes to it after the endpoint is gone.
    open: Mutex<bool>,
    sink: Arc<dyn KvSink>,
    /// Places for the decoding of long payloads.
    decoding: Arc<Semaphore>,
    /// The plugin has panicked on a message once.
    panicked: AtomicBool,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Line({:?}, {})", self.id, self.meta.name)
    }
}

impl Line {
    /// Begins with an endpoint.
    pub fn new(
        (id, meta): (EndpointId, Arc<EndpointMeta>),
        standing: Standing,
        sink: Arc<dyn KvSink>,
        decoding: Arc<Semaphore>,
    ) -> Arc<Self> {
        let told = Told {
            standing,
            since: Instant::now(),
            last_sequence: None,
            last_error: None,
            replays: 0,
            replayed_messages: 0,
        };
        let line = Self {
            id,
            meta,
            counts: Counts::default(),
            told: Mutex::new(told),
            speakers: Mutex::default(),
            open: Mutex::new(true),
            sink,
            decoding,
            panicked: AtomicBool::new(false),
        };
        line.guarded(|| line.sink.begins(line.id, &line.meta.name));
        Arc::new(line)
    }

    /// Tells the plugin nothing more. When this returns no call is under way.
    pub fn close(&self) {
        *self.open.lock() = false;
    }

    /// How it stands now.
    pub fn stands(&self, standing: Standing) {
        let mut told = self.told.lock();
        if told.standing != standing {
            (told.standing, told.since) = (standing, Instant::now());
        }
    }

    /// Something went wrong: counted, and kept for the debug page.
    pub fn failed(&self, operation: Operation, error: String) {
        self.counts.error(operation);
        tracing::debug!(endpoint = %self.meta.name, operation = operation.label(), error, "KV events: an error");
        self.told.lock().last_error = Some(error);
    }

    /// What the plugin knows of the endpoint is not certain any more.
    pub fn lost(&self) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
        let open = self.open.lock();
        if *open {
            self.guarded(|| self.sink.lost(self.id));
        }
    }

    /// Gives the plugin a message whose payload is its last frame. One that takes long is taken in elsewhere, while this
    /// waits: what comes after it stays behind it. Gives the message back.
    pub async fn apply(self: &Arc<Self>, topic: Topic, message: Message) -> Message {
        let length = message.frames().last().map_or(0, <[u8]>::len);
        if length <= LONG_PAYLOAD {
            self.apply_now(&topic, &message);
            // A flood from one engine lets others have their turn.
            yield_now().await;
            return message;
        }
        // Never closed. The place is kept by the work itself, which goes on if nobody waits for it any more.
        let place = self.decoding.clone().acquire_owned().await;
        let line = self.clone();
        let work = spawn_blocking(move || {
            let _place = place;
            line.apply_now(&topic, &message);
            message
        });
        work.await.unwrap_or_default()
    }

    fn apply_now(&self, topic: &Topic, message: &Message) {
        let mut frames = message.frames();
        let topic = match topic {
            Topic::First => frames.clone().next().unwrap_or_default(),
            Topic::Second => frames.clone().nth(1).unwrap_or_default(),
            Topic::Known(topic) => topic,
        };
        let payload = frames.next_back().unwrap_or_default();
        let open = self.open.lock();
        if *open {
            self.guarded(|| self.sink.message(self.id, topic, payload));
        }
    }

    /// A panic of the plugin costs the one message, not the subscriber.
    fn guarded(&self, call: impl FnOnce()) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        if outcome.is_err() && !self.panicked.swap(true, Ordering::Relaxed) {
            tracing::error!(endpoint = %self.meta.name, "a plugin panicked on a KV event, which is left out");
        }
    }
}
