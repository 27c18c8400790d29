//! Board, KV events: a socket that engines connect to by themselves. The topic says which endpoint speaks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use epp_plugin_api::EndpointId;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::line::{Line, Operation, Standing};
use super::message::{Topic, shape};
use super::net::{Backoff, BindAddress, keep_alive};
use super::sequence::{Plain, Step};
use super::zmtp::connection::{Connection, ConnectionError, Heard, Io, Socket};
use super::zmtp::wire::Message;
use crate::tasks::Tasks;

/// As many publishers may be connected to one socket; others are turned away and try again.
const MOST_PUBLISHERS: usize = 16_384;
/// A port that cannot be had for so many attempts is named in the log: the socket before may still be closing.
const ATTEMPTS_WORTH_AN_ERROR: u32 = 4;

/// Endpoints by `host:port`; two may share one.
pub type ByAddress = HashMap<String, Vec<Arc<Line>>>;

/// A bound socket.
pub struct Bound {
    pub address: String,
    pub filter: String,
    pub shared: Arc<Shared>,
    pub tasks: Tasks,
    pub endpoints: ArcSwap<ByAddress>,
    pub publishers: AtomicUsize,
    /// Errors that belong to no endpoint.
    pub unknown: AtomicU64,
    pub broken: AtomicU64,
    pub last_error: Mutex<Option<String>>,
    /// Tells every connection when the subscription ends.
    pub ended: watch::Sender<bool>,
}

impl Bound {
    /// Takes publishers in until the task ends. Without a listener it makes one, again and again.
    pub async fn run(self: Arc<Self>, listener: Option<TcpListener>) {
        let listener = match listener {
            Some(listener) => listener,
            None => self.listen().await,
        };
        let mut backoff = Backoff::default();
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    backoff = Backoff::default();
                    self.take_in(stream);
                }
                Err(error) => {
                    // Out of files, most likely.
                    self.failed(&Operation::Connect, format!("a publisher cannot be taken in: {error}"));
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    async fn listen(&self) -> TcpListener {
        let mut backoff = Backoff::default();
        for attempt in 1.. {
            let listener = BindAddress::parse(&self.address).map_err(|e| e.to_string());
            let why = match listener.and_then(|a| a.listen().map_err(|e| e.to_string())) {
                Ok(listener) => return listener,
                Err(why) => why,
            };
            if attempt == ATTEMPTS_WORTH_AN_ERROR {
                tracing::error!(address = self.address, error = why, "cannot listen for KV events, and goes on trying");
            }
            self.failed(&Operation::Connect, why);
            sleep(backoff.pause()).await;
        }
        unreachable!("attempts are counted without an end")
    }

    fn failed(&self, operation: &Operation, why: String) {
        tracing::debug!(address = self.address, operation = operation.label(), error = why, "KV events: an error");
        self.broken.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(why);
    }

    fn take_in(self: &Arc<Self>, stream: TcpStream) {
        if self.publishers.load(Ordering::Relaxed) >= MOST_PUBLISHERS || keep_alive(&stream).is_err() {
            self.failed(&Operation::Connect, format!("expected at most {MOST_PUBLISHERS} publishers, found one more"));
            return;
        }
        let (bound, mut ended) = (self.clone(), self.ended.subscribe());
        self.tasks.spawn("kv publisher", async move {
            tokio::select! {
                () = bound.hear(stream) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
        });
    }

    /// Hears one publisher to its end.
    pub async fn hear(self: Arc<Self>, io: impl Io) {
        let mut publisher = Publisher::new(self.clone());
        let why = match publisher.session(io).await {
            Err(why) => why,
            Ok(never) => match never {},
        };
        if !matches!(why, ConnectionError::Closed) {
            self.failed(&Operation::Receive, why.to_string());
        }
    }
}

/// One connection, and what each endpoint that speaks over it last said.
struct Publisher {
    bound: Arc<Bound>,
    /// Numbers count by connection: the ranks of one engine may speak for one endpoint, each with numbers of its own.
    speaks: HashMap<EndpointId, (Arc<Line>, Plain)>,
    warned: bool,
}

impl Publisher {
    fn new(bound: Arc<Bound>) -> Self {
        bound.publishers.fetch_add(1, Ordering::Relaxed);
        Self { bound, speaks: HashMap::new(), warned: false }
    }

    async fn session(&mut self, io: impl Io) -> Result<std::convert::Infallible, ConnectionError> {
        let mut connection = Connection::open(io, Socket::Sub).await?;
        connection.subscribe(&self.bound.filter).await?;
        loop {
            match connection.next().await? {
                Heard::Message(message) => {
                    let message = self.take(message).await;
                    connection.reuse(message);
                }
                Heard::TooLarge { bytes, frames } => {
                    let why = format!("expected a message below the limits, found {bytes} bytes in {frames} frames");
                    self.bound.failed(&Operation::Message, why);
                }
            }
        }
    }

    async fn take(&mut self, mut message: Message) -> Message {
        let (topic, seq) = match shape(&message) {
            Ok(shape) => shape,
            Err(why) => {
                self.bound.failed(&Operation::Message, why);
                return message;
            }
        };
        if !topic.starts_with(self.bound.filter.as_bytes()) {
            return message;
        }
        let lines = speaker(topic).and_then(|name| self.bound.endpoints.load().get(name).cloned());
        let Some(lines) = lines else {
            self.unknown(topic);
            return message;
        };
        for line in lines {
            line.counts.messages.fetch_add(1, Ordering::Relaxed);
            line.told.lock().last_sequence = Some(seq);
            if self.step(&line, seq) == Step::Restarted {
                let endpoint = &line.meta.name;
                tracing::info!(%endpoint, seq, "KV events begin again: the engine has been started again");
                line.lost();
            }
            message = line.apply(Topic::First, message).await;
        }
        message
    }

    fn step(&mut self, line: &Arc<Line>, seq: u64) -> Step {
        // An endpoint that has moved is heard by another line.
        if self.speaks.get(&line.id).is_none_or(|(known, _)| !Arc::ptr_eq(known, line)) {
            line.stands(Standing::Connected);
            let numbers = line.speakers.lock().come();
            self.speaks.insert(line.id, (line.clone(), numbers));
        }
        self.speaks.get_mut(&line.id).map_or(Step::Apply, |(_, numbers)| numbers.on_live(seq))
    }

    fn unknown(&mut self, topic: &[u8]) {
        self.bound.unknown.fetch_add(1, Ordering::Relaxed);
        let topic: String = String::from_utf8_lossy(topic).chars().take(128).collect();
        tracing::debug!(topic, "KV events: no endpoint is known by the topic's second part");
        if !std::mem::replace(&mut self.warned, true) && self.bound.shared.warnings.one_more(Instant::now()) {
            tracing::warn!(
                topic,
                "KV events of an unknown endpoint are left out: expected kv@ADDRESS:PORT@MODEL of an endpoint of the file"
            );
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.bound.publishers.fetch_sub(1, Ordering::Relaxed);
        for (line, numbers) in self.speaks.values() {
            if line.speakers.lock().go(*numbers) {
                line.stands(Standing::Disconnected);
            }
        }
    }
}

/// The second of exactly three parts of a topic.
fn speaker(topic: &[u8]) -> Option<&str> {
    let mut parts = std::str::from_utf8(topic).ok()?.split('@');
    let (_, second, _) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speaker_is_the_second_of_three_parts() {
        for (topic, name) in [
            (&b"kv@10.0.0.1:8000@m"[..], Some("10.0.0.1:8000")),
            (b"kv@[::1]:8000@m", Some("[::1]:8000")),
            (b"kv@@", Some("")),
            (b"kv@10.0.0.1:8000", None),
            (b"kv@10.0.0.1:8000@org@m", None),
            (b"kv@\xff@m", None),
            (b"", None),
        ] {
            assert_eq!(speaker(topic), name);
        }
    }
}
