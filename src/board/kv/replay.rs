//! Board, KV events: asks an engine for the messages that were missed.
//!
//! A reply is `[topic, number, payload]`, or `[number, payload]` as engines sent it before, each perhaps behind an empty
//! frame; an empty payload ends the history.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::line::Line;
use super::message::{Topic, sequence};
use super::net::Dial;
use super::sequence::Replayed;
use super::zmtp::connection::{Connection, ConnectionError, Heard, Io, Socket};
use super::zmtp::wire::Message;

/// How long a replay may take in all.
const TOTAL: Duration = Duration::from_secs(120);
/// How long an engine may be silent within one attempt.
const IDLE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(100);
/// As many attempts in a row may bring nothing.
const MOST_FRUITLESS: u32 = 3;

/// Whom to ask, and for whom.
pub struct Ask<'a> {
    pub dial: &'a dyn Dial,
    pub host: &'a str,
    pub port: u16,
    pub line: &'a Arc<Line>,
    /// Messages of topics that do not begin with this are passed over.
    pub filter: &'a str,
    /// The topic of messages that come without one.
    pub topic: Option<&'a [u8]>,
}

/// How a replay went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The engine leaves topics out, and none is known before its first live message.
    TopicUnknown,
}

/// Why messages are lost for good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("expected the replay to end within {TOTAL:?}, found it unfinished")]
    TooLong,
    #[error("expected replayed messages, found {MOST_FRUITLESS} attempts without any: {0}")]
    Fruitless(String),
    #[error("expected the replayed message {expected}, found {found}")]
    Hole { expected: u64, found: u64 },
    #[error("expected the replayed message {0}, found the end")]
    Nothing(u64),
    #[error("expected a reply of topic, sequence and payload, found {0} frames")]
    Shape(usize),
    #[error("expected a message below the limits, found one of {0} bytes")]
    TooLarge(u64),
}

/// Why an attempt ended before the history did.
enum Ended {
    Well(Outcome),
    /// Another attempt may go on.
    Early(String),
}

/// Asks for everything from this number on, and applies it.
///
/// # Errors
/// If there is a hole, or the engine does not answer to the end. What was applied until then stands.
pub async fn replay(ask: Ask<'_>, from: u64, numbers: &mut Replayed) -> Result<Outcome, ReplayError> {
    let deadline = Instant::now() + TOTAL;
    let (mut next, mut fruitless) = (from, 0);
    loop {
        let before = next;
        let why = match attempt(&ask, &mut next, numbers, deadline).await? {
            Ended::Well(Outcome::Done) if next == from && from > 0 => return Err(ReplayError::Nothing(from)),
            Ended::Well(outcome) => return Ok(outcome),
            Ended::Early(why) => why,
        };
        fruitless = if next == before { fruitless + 1 } else { 0 };
        if Instant::now() >= deadline {
            return Err(ReplayError::TooLong);
        }
        if fruitless == MOST_FRUITLESS {
            return Err(ReplayError::Fruitless(why));
        }
        sleep(PAUSE).await;
    }
}

async fn attempt(
    ask: &Ask<'_>,
    next: &mut u64,
    numbers: &mut Replayed,
    deadline: Instant,
) -> Result<Ended, ReplayError> {
    let patience = || (Instant::now() + IDLE).min(deadline);
    let silent = || Ok(Ended::Early(format!("nothing was heard for {IDLE:?}")));
    let mut connection = match timeout_at(patience(), connect(ask, *next)).await {
        Err(_) => return silent(),
        Ok(Err(why)) => return Ok(Ended::Early(why.to_string())),
        Ok(Ok(connection)) => connection,
    };
    loop {
        let message = match timeout_at(patience(), connection.next()).await {
            Err(_) => return silent(),
            Ok(Err(why)) => return Ok(Ended::Early(why.to_string())),
            Ok(Ok(Heard::TooLarge { bytes, .. })) => return Err(ReplayError::TooLarge(bytes)),
            Ok(Ok(Heard::Message(message))) => message,
        };
        let reply = Reply::of(&message).ok_or(ReplayError::Shape(message.frames().len()))?;
        let Some(found) = reply.seq else { return Ok(Ended::Well(Outcome::Done)) };
        if found != *next {
            return Err(ReplayError::Hole { expected: *next, found });
        }
        let topic = match (reply.topic, ask.topic) {
            (Some(topic), _) => topic,
            (None, Some(topic)) => Topic::Known(topic.to_vec()),
            (None, None) => return Ok(Ended::Well(Outcome::TopicUnknown)),
        };
        if reply.topic_text.is_none_or(|text| text.starts_with(ask.filter.as_bytes())) {
            let message = ask.line.apply(topic, message).await;
            connection.reuse(message);
        }
        numbers.applied(found);
        *next = found.saturating_add(1);
        let mut told = ask.line.told.lock();
        (told.replayed_messages, told.last_sequence) = (told.replayed_messages + 1, Some(found));
    }
}

async fn connect(ask: &Ask<'_>, from: u64) -> Result<Connection<Box<dyn Io>>, ConnectionError> {
    let io = ask.dial.dial(ask.host, ask.port).await?;
    let mut connection = Connection::open(io, Socket::Dealer).await?;
    connection.send(&[b"", &from.to_be_bytes()]).await?;
    Ok(connection)
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
struct Reply<'a> {
    /// `None`: the history ends.
    seq: Option<u64>,
    /// Where its topic is; `None`: it has none.
    topic: Option<Topic>,
    topic_text: Option<&'a [u8]>,
}

impl<'a> Reply<'a> {
    fn of(message: &'a Message) -> Option<Self> {
        let frames: Vec<&[u8]> = message.frames().collect();
        let (topic, seq, payload) = match frames[..] {
            [b"", topic, seq, payload] => (Some((Topic::Second, topic)), seq, payload),
            [b"", seq, payload] => (None, seq, payload),
            [topic, seq, payload] => (Some((Topic::First, topic)), seq, payload),
            [seq, payload] => (None, seq, payload),
            _ => return None,
        };
        let seq = if payload.is_empty() { None } else { Some(sequence(seq)?) };
        let (topic, topic_text) = topic.unzip();
        Some(Self { seq, topic, topic_text })
    }
}
