//! Recordings of this picker's decisions, as `--record` makes them: lines of cycles, and lines of what they are about.
//!
//! They hold nothing of a prompt but its length, and of that only where a plugin counts tokens. Requests of one session
//! are its turns; when answers ended is not recorded, so a gap counts from the arrival of the turn before.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{MOST_TOKENS, Raw, found, given, object, text, time, whole};
use crate::prompt::{Prompt, Rows};
use crate::record::{FilledBy, Record, Since, Turn, Who};

/// The values whose producers count a prompt's tokens, and know its session.
const TOKENS: &str = "TokenizedPrompt/";
const SESSION: &str = "SessionIDDataKey/";

#[derive(Default)]
pub struct Recording {
    /// Places in a cycle's `values` and `headers`, by the last config.
    tokens: Option<usize>,
    session: Option<usize>,
    session_header: Option<usize>,
    sessions: HashMap<String, Last>,
}

/// The newest turn of a session.
#[derive(Clone, Copy)]
struct Last {
    session: u32,
    turn: u32,
    record: u32,
    arrival: Duration,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    config: Raw<'a>,
    #[serde(borrow)]
    endpoints: Raw<'a>,
    #[serde(borrow)]
    observed: Raw<'a>,
    #[serde(borrow)]
    cycle: Raw<'a>,
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    priority: Raw<'a>,
    #[serde(borrow)]
    flow: Raw<'a>,
    #[serde(borrow)]
    headers: Raw<'a>,
    #[serde(borrow)]
    values: Raw<'a>,
}

/// Texts, and nothing where there is none.
type Texts<'a> = Vec<Option<Cow<'a, str>>>;

fn texts<'a>(name: &str, raw: Raw<'a>) -> Result<Texts<'a>, Complaint> {
    let Some(list) = given(raw) else { return Ok(Vec::new()) };
    let wrong = || Complaint::new(name, format!("expected a list of texts, found {}", found(Some(list))));
    serde_json::from_str(list).map_err(|_| wrong())
}

impl Parser for Recording {
    fn take(&mut self, line: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: Line = object(line)?;
        if line.config.is_some() {
            return self.config(&line);
        }
        if line.cycle.is_some() {
            let record = self.record(&line, out.next_number())?;
            out.push(record);
            return Ok(());
        }
        if line.endpoints.is_some() || line.observed.is_some() {
            return Ok(());
        }
        Err(Complaint::new("", "expected a line with cycle, config, endpoints or observed, found none of them"))
    }
}

impl Recording {
    fn config(&mut self, line: &Line<'_>) -> Result<(), Complaint> {
        let (values, headers) = (texts("values", line.values)?, texts("headers", line.headers)?);
        let place = |begin: &str| values.iter().flatten().position(|name| name.starts_with(begin));
        (self.tokens, self.session) = (place(TOKENS), place(SESSION));
        // A token names an endpoint, and no session.
        let is_session = |name: &&Cow<'_, str>| name.contains("session") && !name.contains("token");
        self.session_header = headers.iter().position(|name| name.as_ref().is_some_and(|name| is_session(&name)));
        Ok(())
    }

    fn record(&mut self, line: &Line<'_>, number: u32) -> Result<Record, Complaint> {
        let arrival = time("cycle", line.cycle.map(RawValue::get), 1e6)?;
        let (values, headers) = (texts("values", line.values)?, texts("headers", line.headers)?);
        let of = |texts: &Texts<'_>, place: Option<usize>| texts.get(place?)?.as_ref().map(|text| text.to_string());
        let tokens = of(&values, self.tokens);
        let tokens = tokens.map(|tokens| whole("values", Some(&tokens), MOST_TOKENS)).transpose()?;
        let prompt = match tokens {
            Some(tokens) if tokens > 0 => Prompt::Rows(Rows::alone(number, tokens)),
            Some(_) | None => Prompt::Unknown,
        };
        let session = of(&values, self.session).or_else(|| of(&headers, self.session_header));
        let turn = session.filter(|session| !session.is_empty()).map(|id| self.turn(id, number, arrival));
        let priority = given(line.priority).map(|text| {
            let wrong = || format!("expected a whole number, found {}", found(Some(text)));
            text.parse().map_err(|_| Complaint::new("priority", wrong()))
        });
        let model = text("model", line.model)?.filter(|name: &Arc<str>| !name.is_empty());
        let who = Who { model, tenant: text("flow", line.flow)?, priority: priority.transpose()?, ..Who::default() };
        Ok(Record { who, turn, ..Record::new(arrival, prompt, None) })
    }

    fn turn(&mut self, id: String, record: u32, arrival: Duration) -> Turn {
        let session = self.sessions.len() as u32;
        let last = self.sessions.entry(id).or_insert(Last { session, turn: 0, record, arrival });
        if last.record == record {
            return Turn::first(session);
        }
        let turn = Turn {
            session: last.session,
            number: last.turn.saturating_add(1),
            after: vec![last.record],
            gap: arrival.saturating_sub(last.arrival),
            since: Since::Start,
            filled_by: FilledBy::Unknown,
        };
        (last.turn, last.record, last.arrival) = (turn.number, record, arrival);
        turn
    }
}
