//! Board, KV events: the task that hears one endpoint.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use epp_plugin_api::KvPorts;
use tokio::time::{Duration, Instant, sleep};

use super::Shared;
use super::line::{Line, Operation, Standing};
use super::message::{Topic, shape};
use super::net::Backoff;
use super::replay::{Ask, Outcome, replay};
use super::sequence::{Plain, Replayed, Step};
use super::zmtp::connection::{Connection, ConnectionError, Heard, Socket};
use super::zmtp::wire::Message;

/// An endpoint that was not heard for so long is named in the log: engines take time to start.
const WORTH_A_WARNING: Duration = Duration::from_secs(30);

/// Hears one endpoint.
pub struct Subscriber {
    line: Arc<Line>,
    shared: Arc<Shared>,
    /// What topics begin with.
    filter: String,
    ports: KvPorts,
    numbers: Numbers,
    /// The topic of the last live message.
    topic: Option<Vec<u8>>,
}

enum Numbers {
    Plain(Plain),
    Replayed(Replayed),
}

impl Subscriber {
    /// Makes the task; nothing happens before it runs.
    pub fn new(line: Arc<Line>, shared: Arc<Shared>, filter: String, ports: KvPorts) -> Self {
        let numbers = match ports.replay {
            None => Numbers::Plain(Plain::default()),
            Some(_) => Numbers::Replayed(Replayed::default()),
        };
        Self { line, shared, filter, ports, numbers, topic: None }
    }

    /// Connects again and again, for ever. What is known of the numbers outlives a connection.
    pub async fn run(mut self) {
        let (mut backoff, mut silent_since, mut warned) = (Backoff::default(), Instant::now(), false);
        loop {
            let mut connected = None;
            let why = match self.session(&mut connected).await {
                Err(why) => why.to_string(),
                Ok(never) => match never {},
            };
            let now = Instant::now();
            if let Some(at) = connected {
                self.line.failed(Operation::Receive, why.clone());
                (silent_since, warned) = (now, false);
                if now.saturating_duration_since(at) >= Backoff::LONGEST {
                    backoff = Backoff::default();
                }
            } else {
                self.line.failed(Operation::Connect, why.clone());
            }
            self.line.stands(Standing::Disconnected);
            if !warned && now.saturating_duration_since(silent_since) >= WORTH_A_WARNING {
                warned = true;
                if self.shared.warnings.one_more(now) {
                    let (endpoint, port) = (&self.line.meta.name, self.port(self.ports.events).unwrap_or_default());
                    tracing::warn!(%endpoint, port, error = why, "no KV events: the endpoint's publisher is not reached");
                }
            }
            sleep(backoff.pause()).await;
            self.line.counts.reconnections.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The port of this endpoint's rank.
    fn port(&self, base: u16) -> Result<u16, ConnectionError> {
        let port = u32::from(base).saturating_add(self.line.meta.rank);
        u16::try_from(port).map_err(|_| {
            let message = format!("expected a port up to 65535, found {base} and the rank {}", self.line.meta.rank);
            std::io::Error::new(std::io::ErrorKind::InvalidInput, message).into()
        })
    }

    async fn session(&mut self, connected: &mut Option<Instant>) -> Result<Infallible, ConnectionError> {
        let port = self.port(self.ports.events)?;
        let io = self.shared.dial.dial(&self.line.meta.host, port).await?;
        let mut connection = Connection::open(io, Socket::Sub).await?;
        connection.subscribe(&self.filter).await?;
        *connected = Some(Instant::now());
        self.line.stands(Standing::Connected);
        tracing::debug!(endpoint = %self.line.meta.name, port, "KV events: connected");
        if let Numbers::Replayed(numbers) = &self.numbers
            && let Some(from) = numbers.on_connect(Instant::now())
        {
            self.replay(from).await;
        }
        loop {
            match connection.next().await? {
                Heard::Message(message) => {
                    if let Some(message) = self.take(message).await {
                        connection.reuse(message);
                    }
                }
                Heard::TooLarge { bytes, frames } => self.line.failed(
                    Operation::Message,
                    format!("expected a message below the limits, found {bytes} bytes in {frames} frames"),
                ),
            }
        }
    }

    /// Does with a message what its number says. Gives it back.
    async fn take(&mut self, message: Message) -> Option<Message> {
        let (topic, seq) = match shape(&message) {
            Ok((topic, seq)) => (topic, seq),
            Err(why) => {
                self.line.failed(Operation::Message, why);
                return Some(message);
            }
        };
        if !topic.starts_with(self.filter.as_bytes()) {
            return Some(message);
        }
        if self.topic.as_deref() != Some(topic) {
            self.topic = Some(topic.to_vec());
        }
        self.line.counts.messages.fetch_add(1, Ordering::Relaxed);
        let step = match &mut self.numbers {
            Numbers::Plain(numbers) => numbers.on_live(seq),
            Numbers::Replayed(numbers) => numbers.on_live(seq, Instant::now()),
        };
        self.line.told.lock().last_sequence = Some(seq);
        match step {
            Step::Apply => {}
            Step::Restarted => self.restarted(seq),
            Step::Known | Step::Drop => return Some(message),
            Step::Replay { from, restarted } => {
                if restarted {
                    self.restarted(seq);
                }
                let went_well = self.replay(from).await;
                self.line.told.lock().last_sequence = Some(seq);
                if !(went_well && matches!(&self.numbers, Numbers::Replayed(numbers) if numbers.follows(seq))) {
                    return Some(message);
                }
            }
        }
        let message = self.line.apply(Topic::First, message).await;
        if let Numbers::Replayed(numbers) = &mut self.numbers {
            numbers.applied(seq);
        }
        Some(message)
    }

    fn restarted(&self, seq: u64) {
        tracing::info!(endpoint = %self.line.meta.name, seq, "KV events begin again: the engine has been started again");
        self.line.lost();
    }

    /// Asks for what is missing; whether that went well. If not, what is known is given up.
    async fn replay(&mut self, from: u64) -> bool {
        let (Numbers::Replayed(numbers), Some(port)) = (&mut self.numbers, self.ports.replay) else { return false };
        self.line.stands(Standing::WaitingForReplay);
        // Never closed.
        let _turn = self.shared.replays.acquire().await;
        self.line.stands(Standing::Replaying);
        self.line.told.lock().replays += 1;
        let port = u16::try_from(u32::from(port).saturating_add(self.line.meta.rank)).unwrap_or_default();
        let ask = Ask {
            dial: &*self.shared.dial,
            host: &self.line.meta.host,
            port,
            line: &self.line,
            filter: &self.filter,
            topic: self.topic.as_deref(),
        };
        let outcome = replay(ask, from, numbers).await;
        self.line.stands(Standing::Connected);
        match outcome {
            Ok(Outcome::Done | Outcome::TopicUnknown) => true,
            Err(why) => {
                self.line.failed(Operation::Replay, why.to_string());
                numbers.failed(Instant::now());
                self.line.lost();
                false
            }
        }
    }
}
