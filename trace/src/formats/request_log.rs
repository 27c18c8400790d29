//! The request log of RL rollouts: one JSON object a request that has ended, in the order of the ends.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, object, text, time, tokens};
use crate::ids::{seed_of_name, seed_of_number};
use crate::prompt::{Prompt, Rows};
use crate::record::{FilledBy, Record, Since, Turn};

#[derive(Default)]
pub struct RequestLog {
    sessions: HashMap<String, Session>,
    groups: HashMap<String, u32>,
}

/// A trajectory: what its first prompt was, and its last request.
#[derive(Clone, Copy)]
struct Session {
    number: u32,
    first: Rows,
    group: u32,
    turn: u32,
    record: u32,
    end: Duration,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    ts: Raw<'a>,
    #[serde(borrow)]
    request_id: Raw<'a>,
    #[serde(borrow)]
    prompt_hash: Raw<'a>,
    #[serde(borrow)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    pick_s: Raw<'a>,
    #[serde(borrow)]
    gen_s: Raw<'a>,
}

impl Parser for RequestLog {
    fn take(&mut self, line: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: Line = object(line)?;
        let end = time("ts", line.ts.map(|raw| raw.get()), 1.0)?;
        let mut took = time("gen_s", line.gen_s.map(|raw| raw.get()), 1.0)?;
        if let Some(pick) = line.pick_s.map(|raw| raw.get()).filter(|text| *text != "null") {
            took += time("pick_s", Some(pick), 1.0)?;
        }
        let arrival = end.checked_sub(took).ok_or_else(|| {
            let (end, took) = (end.as_secs_f64(), took.as_secs_f64());
            Complaint::new("ts", format!("expected at least gen_s and pick_s, {took}, found {end}"))
        })?;
        let input = tokens("prompt_tokens", line.prompt_tokens.map(|raw| raw.get()))?;
        let output = tokens("output_tokens", line.output_tokens.map(|raw| raw.get()))?;
        let hash = needed("prompt_hash", line.prompt_hash)?;
        let id = needed("request_id", line.request_id)?;
        let (prompt, group, turn) = self.place(&id, &hash, input, (arrival, end), out.next_number());
        let record = Record::new(arrival, Prompt::Rows(prompt), Some(output));
        out.push(Record { group: Some(group), turn: Some(turn), ..record });
        Ok(())
    }
}

impl RequestLog {
    /// The first prompt of a trajectory is known by its hash, and later ones go on from it. What is said in between is the
    /// trajectory's own.
    fn place(
        &mut self,
        id: &str,
        hash: &str,
        input: u32,
        (arrival, end): (Duration, Duration),
        record: u32,
    ) -> (Rows, u32, Turn) {
        if let Some(session) = self.sessions.get_mut(id) {
            let turn = Turn {
                session: session.number,
                number: session.turn.saturating_add(1),
                after: vec![session.record],
                gap: arrival.saturating_sub(session.end),
                since: Since::End,
                filled_by: FilledBy::Tools,
            };
            (session.turn, session.record, session.end) = (turn.number, record, end);
            return (Rows { tokens: input, ..session.first }, session.group, turn);
        }
        let n_groups = self.groups.len() as u32;
        let group = *self.groups.entry(hash.to_owned()).or_insert(n_groups);
        let number = self.sessions.len() as u32;
        let own = seed_of_number(u64::from(number));
        let first = Rows { seed: seed_of_name(hash), shared: input, own, tokens: input };
        self.sessions.insert(id.to_owned(), Session { number, first, group, turn: 0, record, end });
        (first, group, Turn::first(number))
    }
}

fn needed(name: &str, raw: Raw) -> Result<std::sync::Arc<str>, Complaint> {
    text(name, raw)?.ok_or_else(|| Complaint::new(name, "expected a text, found nothing"))
}
