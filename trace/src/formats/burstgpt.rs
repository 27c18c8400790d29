//! BurstGPT: lengths and models; sessions where the later releases tell of them. Nothing of what prompts share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::csv::Columns;
use crate::field::{time, tokens};
use crate::prompt::{Prompt, Rows};
use crate::record::{FilledBy, Record, Since, Turn, Who};

const COLUMNS: [&str; 6] = ["Timestamp", "Model", "Request tokens", "Response tokens", "Session ID", "Elapsed time"];

#[derive(Default)]
pub struct BurstGpt {
    columns: Option<Columns<6>>,
    sessions: HashMap<String, Last>,
    /// Two models come again and again.
    model: Option<Arc<str>>,
}

/// The last request of a session.
struct Last {
    session: u32,
    turn: u32,
    record: u32,
    arrival: Duration,
    /// Unknown in the first release.
    took: Option<Duration>,
}

impl Parser for BurstGpt {
    fn take(&mut self, text: &str, out: &mut Out) -> Result<(), Complaint> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::find(text, COLUMNS, 4)?);
            return Ok(());
        };
        let [at, model, input, output, session, elapsed] = columns.row(text);
        let arrival = time(at.0, at.1, 1.0)?;
        let (input, output) = (tokens(input.0, input.1)?, tokens(output.0, output.1)?);
        let took = elapsed.1.filter(|text| !text.is_empty());
        let took = took.map(|text| time(elapsed.0, Some(text), 1.0)).transpose()?;
        let record = out.next_number();
        let turn = session.1.filter(|id| !id.is_empty()).map(|id| self.turn(id, arrival, took, record));
        if self.model.as_deref() != model.1 {
            self.model = model.1.filter(|name| !name.is_empty()).map(Arc::from);
        }
        let who = Who { model: self.model.clone(), ..Who::default() };
        let prompt = Prompt::Rows(Rows::alone(record, input));
        out.push(Record { turn, who, ..Record::new(arrival, prompt, Some(output)) });
        Ok(())
    }
}

impl BurstGpt {
    fn turn(&mut self, id: &str, arrival: Duration, took: Option<Duration>, record: u32) -> Turn {
        let n_sessions = self.sessions.len() as u32;
        let Some(last) = self.sessions.get_mut(id) else {
            self.sessions.insert(id.into(), Last { session: n_sessions, turn: 0, record, arrival, took });
            return Turn::first(n_sessions);
        };
        let turn = Turn {
            session: last.session,
            number: last.turn.saturating_add(1),
            after: vec![last.record],
            gap: arrival.saturating_sub(last.arrival + last.took.unwrap_or_default()),
            since: if last.took.is_some() { Since::End } else { Since::Start },
            filled_by: FilledBy::Person,
        };
        *last = Last { session: last.session, turn: turn.number, record, arrival, took };
        turn
    }
}
