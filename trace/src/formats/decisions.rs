//! Decision records of this picker, as `/debug/decisions` shows them: one a line, or a list of them.
//!
//! They hold nothing of bodies, so lengths and prompts stay unknown.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, found, json, object, text};
use crate::moment::moment;
use crate::prompt::Prompt;
use crate::record::{Record, Who};

pub struct Decisions;

#[derive(Deserialize)]
struct Decision<'a> {
    #[serde(borrow)]
    at: Raw<'a>,
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    priority: Raw<'a>,
}

impl Parser for Decisions {
    fn take(&mut self, line: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: &RawValue = json(line, "JSON")?;
        if !line.get().starts_with('[') {
            out.push(record(line)?);
            return Ok(());
        }
        let list: Vec<&RawValue> = json(line.get(), "a list of JSON objects")?;
        for (i, one) in list.into_iter().enumerate() {
            match record(one) {
                Ok(record) => out.push(record),
                Err(complaint) => out.complain(complaint.inside(&format!("[{i}]"))),
            }
        }
        Ok(())
    }
}

fn record(json_text: &RawValue) -> Result<Record, Complaint> {
    let decision: Decision = object(json_text.get())?;
    let at = text("at", decision.at)?;
    let priority = decision.priority.map(|raw| {
        let wrong = || format!("expected a whole number, found {}", found(Some(raw.get())));
        raw.get().parse().map_err(|_| Complaint::new("priority", wrong()))
    });
    let model = text("model", decision.model)?.filter(|name: &Arc<str>| !name.is_empty());
    let who = Who { model, priority: priority.transpose()?, ..Who::default() };
    Ok(Record { who, ..Record::new(moment("at", at.as_deref())?, Prompt::Unknown, None) })
}
