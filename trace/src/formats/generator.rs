//! Traffic out of parameters: clients, each with a rate, a burstiness and lengths, and together the whole.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::lengths::{Chance, Length};
use super::{Out, Parser, Unit};
use crate::bad::Complaint;
use crate::field::{MOST_TOKENS, json};
use crate::ids::seed_of_number;
use crate::prompt::{OWN, Prompt, Rows};
use crate::record::{FilledBy, Record, Since, Turn, Who};

/// More requests than this are not made.
const MOST_REQUESTS: u64 = 100_000_000;
const MOST_CLIENTS: usize = 100_000;
const MOST_PER_SECOND: f64 = 1e6;

/// The parameters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Parameters {
    /// What all chance begins with.
    #[serde(default)]
    seed: u64,
    /// How many requests to make, at most 100 million.
    requests: u64,
    /// Ends earlier, after this many seconds.
    seconds: Option<f64>,
    clients: Vec<Client>,
}

/// Someone who sends requests.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Client {
    /// Sessions, which are single requests unless `turns` says more, a second.
    rate: f64,
    /// Coefficient of variation of the gaps between their beginnings, which have a gamma distribution: 1 is a Poisson
    /// process, 0 a clock, more than 1 comes in bursts.
    #[serde(default = "one")]
    cv: f64,
    /// Tokens that a turn adds to the prompt.
    input: Length,
    /// Tokens of an answer.
    output: Length,
    /// Tokens that all prompts of this client begin with.
    #[serde(default)]
    shared_tokens: u32,
    /// Turns of a session.
    turns: Option<Length>,
    /// Seconds between an answer and the next turn.
    think_seconds: Option<Length>,
    model: Option<Arc<str>>,
    lora: Option<Arc<str>>,
    tenant: Option<Arc<str>>,
    objective: Option<Arc<str>>,
    priority: Option<i32>,
}

fn one() -> f64 {
    1.0
}

#[derive(Default)]
pub struct Generator(Option<Traffic>);

/// Traffic in the making.
struct Traffic {
    parameters: Parameters,
    chance: Chance,
    /// What comes next: when, and in which order if at the same time.
    ahead: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    n_events: u64,
    n_sessions: u32,
    n_left: u64,
    end: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    client: usize,
    /// A later turn of a session; otherwise one begins.
    session: Option<Session>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Session {
    number: u32,
    turn: u32,
    n_turns: u32,
    /// Tokens said so far.
    context: u32,
    /// The request before this one, and the pause since its answer.
    after: u32,
    gap: Duration,
}

impl Parser for Generator {
    fn unit(&self) -> Unit {
        Unit::File
    }

    fn take(&mut self, text: &str, _out: &mut Out) -> Result<(), Complaint> {
        let parameters: Parameters = json(text, "parameters of traffic")?;
        check(&parameters)?;
        let end = parameters.seconds.map(Duration::try_from_secs_f64).and_then(Result::ok).unwrap_or(Duration::MAX);
        let mut traffic = Traffic {
            chance: Chance::new(parameters.seed),
            ahead: BinaryHeap::new(),
            n_events: 0,
            n_sessions: 0,
            n_left: parameters.requests,
            end,
            parameters,
        };
        for client in 0..traffic.parameters.clients.len() {
            traffic.begin_next(client, Duration::ZERO);
        }
        self.0 = Some(traffic);
        Ok(())
    }

    fn more(&mut self, out: &mut Out) {
        if let Some(record) = self.0.as_mut().and_then(|traffic| traffic.next(out.next_number())) {
            out.push(record);
        }
    }
}

fn check(parameters: &Parameters) -> Result<(), Complaint> {
    if !(1..=MOST_REQUESTS).contains(&parameters.requests) {
        let what = format!("expected 1 to {MOST_REQUESTS}, found {}", parameters.requests);
        return Err(Complaint::new("requests", what));
    }
    if let Some(seconds) = parameters.seconds.filter(|s| Duration::try_from_secs_f64(*s).is_err()) {
        return Err(Complaint::new("seconds", format!("expected a number from 0 on, found {seconds}")));
    }
    if !(1..=MOST_CLIENTS).contains(&parameters.clients.len()) {
        let what = format!("expected 1 to {MOST_CLIENTS}, found {}", parameters.clients.len());
        return Err(Complaint::new("clients", what));
    }
    for (i, client) in parameters.clients.iter().enumerate() {
        mistake_of(client).map_or(Ok(()), |complaint| Err(complaint.inside(&format!("clients[{i}]"))))?;
    }
    Ok(())
}

fn mistake_of(client: &Client) -> Option<Complaint> {
    if !(client.rate > 0.0 && client.rate <= MOST_PER_SECOND) {
        let what = format!("expected more than 0 and at most {MOST_PER_SECOND} a second, found {}", client.rate);
        return Some(Complaint::new("rate", what));
    }
    if !(0.0..=100.0).contains(&client.cv) {
        return Some(Complaint::new("cv", format!("expected 0 to 100, found {}", client.cv)));
    }
    if client.shared_tokens > MOST_TOKENS {
        let what = format!("expected at most {MOST_TOKENS}, found {}", client.shared_tokens);
        return Some(Complaint::new("sharedTokens", what));
    }
    let lengths = [
        ("input", Some(&client.input)),
        ("output", Some(&client.output)),
        ("turns", client.turns.as_ref()),
        ("thinkSeconds", client.think_seconds.as_ref()),
    ];
    lengths.into_iter().find_map(|(name, length)| Some(Complaint::new(name, length?.mistake()?)))
}

impl Traffic {
    fn push(&mut self, at: Duration, event: Event) {
        self.n_events += 1;
        self.ahead.push(Reverse((at, self.n_events, event)));
    }

    /// Says when the client begins its next session.
    fn begin_next(&mut self, client: usize, now: Duration) {
        let Client { rate, cv, .. } = self.parameters.clients[client];
        let at = now.saturating_add(seconds(self.chance.gamma(cv) / rate));
        self.push(at, Event { client, session: None });
    }

    fn next(&mut self, record: u32) -> Option<Record> {
        let Reverse((now, _, event)) = self.ahead.pop()?;
        if now > self.end || self.n_left == 0 {
            self.ahead.clear();
            return None;
        }
        self.n_left -= 1;
        let session = event.session.unwrap_or_else(|| {
            self.begin_next(event.client, now);
            self.n_sessions += 1;
            let turns = self.parameters.clients[event.client].turns.as_ref();
            let n_turns = turns.map_or(1, |turns| tokens(turns.draw(&mut self.chance)));
            Session { number: self.n_sessions - 1, turn: 0, n_turns, context: 0, after: 0, gap: Duration::ZERO }
        });
        let client = &self.parameters.clients[event.client];
        let input = (client.shared_tokens.max(session.context))
            .saturating_add(tokens(client.input.draw(&mut self.chance)))
            .min(MOST_TOKENS);
        let output = tokens(client.output.draw(&mut self.chance));
        let pause = client.think_seconds.as_ref().map_or(0.0, |length| length.draw(&mut self.chance));
        let made = record_of(client, event.client, session, (now, input, output));
        if session.turn + 1 < session.n_turns {
            let (turn, context, gap) = (session.turn + 1, input.saturating_add(output), seconds(pause));
            let next = Session { turn, context, after: record, gap, ..session };
            self.push(now.saturating_add(gap), Event { client: event.client, session: Some(next) });
        }
        Some(made)
    }
}

fn record_of(client: &Client, number: usize, session: Session, (now, input, output): (Duration, u32, u32)) -> Record {
    let rows = Rows {
        seed: seed_of_number(number as u64),
        shared: client.shared_tokens,
        own: seed_of_number(OWN | u64::from(session.number)),
        tokens: input,
    };
    let turn = (session.n_turns > 1).then(|| Turn {
        session: session.number,
        number: session.turn,
        after: if session.turn == 0 { Vec::new() } else { vec![session.after] },
        gap: session.gap,
        since: Since::End,
        filled_by: FilledBy::Person,
    });
    let who = Who {
        model: client.model.clone(),
        lora: client.lora.clone(),
        tenant: client.tenant.clone(),
        objective: client.objective.clone(),
        priority: client.priority,
    };
    Record { turn, who, ..Record::new(now, Prompt::Rows(rows), Some(output)) }
}

/// At least one token, or turn.
fn tokens(drawn: f64) -> u32 {
    drawn.round().clamp(1.0, f64::from(MOST_TOKENS)) as u32
}

fn seconds(drawn: f64) -> Duration {
    Duration::try_from_secs_f64(drawn).unwrap_or(Duration::MAX)
}
