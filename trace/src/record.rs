//! One request of a trace, whatever format it was recorded in.

use std::sync::Arc;
use std::time::Duration;

use crate::prompt::Prompt;

/// One request as a reader gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// When it was sent, since a moment that is the same for the whole trace: 1970 or the first request, as the format has
    /// it. [`Trace`](crate::trace::Trace) counts from its first request.
    pub arrival: Duration,
    pub prompt: Prompt,
    /// Tokens of the answer; `None` if the trace does not say.
    pub output_tokens: Option<u32>,
    /// Answers that are asked for to this one prompt; at least 1.
    pub samples: u32,
    /// Requests with one number are samples of one prompt, as rollouts send them.
    pub group: Option<u32>,
    pub turn: Option<Turn>,
    pub who: Who,
}

/// Whom a request is for and from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Who {
    pub model: Option<Arc<str>>,
    pub lora: Option<Arc<str>>,
    pub tenant: Option<Arc<str>>,
    pub objective: Option<Arc<str>>,
    pub priority: Option<i32>,
}

/// The place of a request in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Dense, in the order in which sessions first show up.
    pub session: u32,
    /// From 0.
    pub number: u32,
    /// The requests that it cannot do without, by the order in which the reader gave them, each before this one. Empty
    /// for the first turn of a session, unless it is a sub-agent's: that waits for a request of its parent, and the
    /// parent for all of them.
    pub after: Vec<u32>,
    /// How long it waited after the last of these.
    pub gap: Duration,
    pub since: Since,
    pub filled_by: FilledBy,
}

/// Where the gap of a turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// When the answer was complete.
    End,
    /// When the earlier request was sent, because the trace does not say when it was answered.
    Start,
}

/// What happened in the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilledBy {
    Unknown,
    /// A person read and thought.
    Person,
    /// Tools ran.
    Tools,
}

impl Record {
    /// A request about which nothing more is known.
    pub fn new(arrival: Duration, prompt: Prompt, output_tokens: Option<u32>) -> Self {
        Self { arrival, prompt, output_tokens, samples: 1, group: None, turn: None, who: Who::default() }
    }
}

impl Turn {
    /// The first turn of a session.
    pub fn first(session: u32) -> Self {
        Self {
            session,
            number: 0,
            after: Vec::new(),
            gap: Duration::ZERO,
            since: Since::End,
            filled_by: FilledBy::Unknown,
        }
    }
}
