//! A whole trace, in the order of arrival and small enough for a million requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bad::{Error, OnBad, Skipped};
use crate::format::Format;
use crate::prompt::{Prompt, PromptRef, Rows, Run};
use crate::reader::Reader;
use crate::record::{FilledBy, Record, Since, Who};

/// A whole trace. Requests are in the order of their arrival, the first one at 0.
#[derive(Debug)]
pub struct Trace {
    pub format: Format,
    pub requests: Vec<Request>,
    pub skipped: Skipped,
    /// Requests that came before the one that stands before them, in a format that has them in order.
    pub n_out_of_order: u64,
    pub n_sessions: u32,
    kept: Kept,
    after: Vec<u32>,
    who: Vec<Who>,
}

/// What the requests of a trace ask, without all else that is known of them.
#[derive(Debug)]
pub struct Prompts {
    stored: Vec<Stored>,
    kept: Kept,
}

/// One request of a trace. What it asks and what it waits for the trace keeps.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Since the first request of the trace.
    pub arrival: Duration,
    pub output_tokens: Option<u32>,
    pub samples: u32,
    pub group: Option<u32>,
    pub turn: Option<Turn>,
    prompt: Stored,
    who: u32,
}

/// The place of a request in its session, as in [`record::Turn`](crate::record::Turn).
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub session: u32,
    pub number: u32,
    pub gap: Duration,
    pub since: Since,
    pub filled_by: FilledBy,
    after: Span,
}

/// A part of one of the lists of a trace.
#[derive(Clone, Copy, Debug)]
struct Span {
    begin: usize,
    len: u32,
}

/// What prompts are made of.
#[derive(Debug, Default)]
struct Kept {
    runs: Vec<Run>,
    ids: Vec<u32>,
    text: Vec<u8>,
    paths: Vec<Arc<str>>,
}

/// A prompt, by its place in what is kept.
#[derive(Clone, Copy, Debug)]
enum Stored {
    Unknown,
    Blocks {
        runs: Span,
        block_tokens: u32,
        tokens: u32,
    },
    Rows(Rows),
    Ids(Span),
    /// The prompt is so far from the begin of the body.
    Text {
        path: u32,
        body: Span,
        skip: u32,
        len: u32,
    },
}

impl Trace {
    /// Reads all there is.
    ///
    /// # Errors
    /// If the input cannot be read, has no request, or has a bad record and `on_bad` says to stop.
    pub fn read(reader: Reader, on_bad: OnBad) -> Result<Self, Error> {
        Self::read_watched(reader, on_bad, &mut |_| {})
    }

    /// Reads all there is, and says after each record how many bytes that was so far.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_watched(mut reader: Reader, on_bad: OnBad, tell: &mut dyn FnMut(u64)) -> Result<Self, Error> {
        let mut builder = Builder::new(reader.format());
        while let Some(record) = reader.next() {
            tell(reader.n_bytes());
            match (record, on_bad) {
                (Ok(record), _) => builder.push(record),
                (Err(Error::Bad(bad)), OnBad::Skip) => builder.trace.skipped.push(bad),
                (Err(why), _) => return Err(why),
            }
        }
        builder.finish()
    }

    /// What a request of this trace asks.
    pub fn prompt(&self, request: &Request) -> PromptRef<'_> {
        self.kept.prompt(request.prompt)
    }

    /// Keeps what the requests ask, and gives up all else.
    pub fn into_prompts(self) -> Prompts {
        Prompts { stored: self.requests.iter().map(|request| request.prompt).collect(), kept: self.kept }
    }

    /// The requests that a turn cannot do without, as places in [`requests`](Self::requests), all before its own.
    pub fn after(&self, turn: &Turn) -> &[u32] {
        part(&self.after, turn.after)
    }

    /// Whom a request of this trace is for and from.
    pub fn who(&self, request: &Request) -> &Who {
        &self.who[request.who as usize]
    }

    /// The place in [`whos`](Self::whos) of what [`who`](Self::who) says.
    pub fn who_number(&self, request: &Request) -> u32 {
        request.who
    }

    /// All different answers of [`who`](Self::who), by their numbers.
    pub fn whos(&self) -> &[Who] {
        &self.who
    }

    /// From the first arrival to the last.
    pub fn duration(&self) -> Duration {
        self.requests.last().map_or(Duration::ZERO, |last| last.arrival)
    }
}

impl Prompts {
    /// What the request at this place of the trace asks; unknown if there is none.
    pub fn at(&self, place: usize) -> PromptRef<'_> {
        self.stored.get(place).map_or(PromptRef::Unknown, |stored| self.kept.prompt(*stored))
    }
}

impl Kept {
    fn prompt(&self, stored: Stored) -> PromptRef<'_> {
        match stored {
            Stored::Unknown => PromptRef::Unknown,
            Stored::Blocks { runs, block_tokens, tokens } => {
                PromptRef::Blocks { runs: part(&self.runs, runs), block_tokens, tokens }
            }
            Stored::Rows(rows) => PromptRef::Rows(rows),
            Stored::Ids(ids) => PromptRef::Ids(part(&self.ids, ids)),
            Stored::Text { path, body, skip, len } => {
                let body = part(&self.text, body);
                let prompt = body.get(skip as usize..(skip + len) as usize).unwrap_or_default();
                PromptRef::Text { path: &self.paths[path as usize], body, prompt }
            }
        }
    }
}

fn part<T>(of: &[T], span: Span) -> &[T] {
    &of[span.begin..span.begin + span.len as usize]
}

/// Appends, and says where.
fn keep<T: Copy>(to: &mut Vec<T>, items: &[T]) -> Span {
    let span = Span { begin: to.len(), len: items.len() as u32 };
    to.extend_from_slice(items);
    span
}

struct Builder {
    trace: Trace,
    whos: HashMap<Who, u32>,
    paths: HashMap<Arc<str>, u32>,
    latest: Duration,
}

impl Builder {
    fn new(format: Format) -> Self {
        let trace = Trace {
            format,
            requests: Vec::new(),
            skipped: Skipped::default(),
            n_out_of_order: 0,
            n_sessions: 0,
            kept: Kept::default(),
            after: Vec::new(),
            who: Vec::new(),
        };
        Self { trace, whos: HashMap::new(), paths: HashMap::new(), latest: Duration::ZERO }
    }

    fn push(&mut self, record: Record) {
        let trace = &mut self.trace;
        if record.arrival < self.latest && trace.format.is_in_order() {
            trace.n_out_of_order += 1;
        }
        self.latest = record.arrival;
        let after = record.turn.as_ref().map_or(&[][..], |turn| &turn.after);
        // A clock that goes backwards does not send a turn before the one it answers.
        let earliest =
            after.iter().filter_map(|i| trace.requests.get(*i as usize)).map(|earlier| earlier.arrival).max();
        let arrival = record.arrival.max(earliest.unwrap_or_default());
        let turn = record.turn.map(|turn| {
            trace.n_sessions = trace.n_sessions.max(turn.session.saturating_add(1));
            Turn {
                session: turn.session,
                number: turn.number,
                gap: turn.gap,
                since: turn.since,
                filled_by: turn.filled_by,
                after: keep(&mut trace.after, &turn.after),
            }
        });
        let prompt = trace.kept.keep(&record.prompt, &mut self.paths);
        let who = match self.whos.get(&record.who) {
            Some(who) => *who,
            None => {
                let number = trace.who.len() as u32;
                trace.who.push(record.who.clone());
                self.whos.insert(record.who, number);
                number
            }
        };
        let Record { output_tokens, samples, group, .. } = record;
        trace.requests.push(Request { arrival, output_tokens, samples, group, turn, prompt, who });
    }

    /// Sorts, and counts from the first arrival.
    fn finish(self) -> Result<Trace, Error> {
        let mut trace = self.trace;
        let Some(first) = trace.requests.iter().map(|request| request.arrival).min() else {
            return Err(Error::Empty(trace.skipped));
        };
        let mut order: Vec<u32> = (0..trace.requests.len() as u32).collect();
        // Those of one moment keep their order.
        order.sort_by_key(|i| trace.requests[*i as usize].arrival);
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, from)| place[*from as usize] = to as u32);
        trace.requests.sort_by_key(|request| request.arrival);
        trace.requests.iter_mut().for_each(|request| request.arrival -= first);
        trace.after.iter_mut().for_each(|i| *i = place[*i as usize]);
        trace.requests.shrink_to_fit();
        Ok(trace)
    }
}

impl Kept {
    fn keep(&mut self, prompt: &Prompt, paths: &mut HashMap<Arc<str>, u32>) -> Stored {
        match prompt {
            Prompt::Unknown => Stored::Unknown,
            Prompt::Blocks { runs, block_tokens, tokens } => {
                Stored::Blocks { runs: keep(&mut self.runs, runs), block_tokens: *block_tokens, tokens: *tokens }
            }
            Prompt::Rows(rows) => Stored::Rows(*rows),
            Prompt::Ids(ids) => Stored::Ids(keep(&mut self.ids, ids)),
            Prompt::Text { path, body, prompt } => {
                let path = paths.get(path.as_str()).copied().unwrap_or_else(|| {
                    let path: Arc<str> = path.as_str().into();
                    paths.insert(path.clone(), self.paths.len() as u32);
                    self.paths.push(path);
                    self.paths.len() as u32 - 1
                });
                let (skip, len) = (prompt.start as u32, prompt.len() as u32);
                Stored::Text { path, body: keep(&mut self.text, body), skip, len }
            }
        }
    }
}
