//! Batch files of the OpenAI API: whole requests with their text, all of them at once.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Out, Parser};
use crate::bad::Complaint;
use crate::field::{Raw, found, given, items, object, text, tokens, whole};
use crate::prompt::Prompt;
use crate::record::{Record, Who};

/// More answers to one prompt than this nobody asks for.
const MOST_SAMPLES: u32 = 65_536;

pub struct Batch;

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    method: Raw<'a>,
    #[serde(borrow)]
    url: Raw<'a>,
    #[serde(borrow)]
    body: Raw<'a>,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    model: Raw<'a>,
    #[serde(borrow)]
    user: Raw<'a>,
    #[serde(borrow)]
    messages: Raw<'a>,
    #[serde(borrow)]
    prompt: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    n: Raw<'a>,
    #[serde(borrow)]
    max_tokens: Raw<'a>,
    #[serde(borrow)]
    max_completion_tokens: Raw<'a>,
    #[serde(borrow)]
    max_output_tokens: Raw<'a>,
}

impl Parser for Batch {
    fn take(&mut self, line: &str, out: &mut Out) -> Result<(), Complaint> {
        let line: Line = object(line)?;
        match text("method", line.method)?.as_deref() {
            None | Some("POST") => {}
            Some(other) => {
                return Err(Complaint::new("method", format!("expected POST, found {}", found(Some(other)))));
            }
        }
        let path = text("url", line.url)?.filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| {
            let found = found(line.url.map(RawValue::get));
            Complaint::new("url", format!("expected a path that begins with /, found {found}"))
        })?;
        let raw = line.body.map(RawValue::get);
        let raw = raw.ok_or_else(|| Complaint::new("body", "expected a JSON object, found nothing"))?;
        out.push(record(&path, raw).map_err(|complaint| complaint.inside("body"))?);
        Ok(())
    }
}

fn record(path: &str, raw: &str) -> Result<Record, Complaint> {
    let body: Body = object(raw)?;
    let output = [
        ("max_completion_tokens", body.max_completion_tokens),
        ("max_tokens", body.max_tokens),
        ("max_output_tokens", body.max_output_tokens),
    ];
    let output = output.into_iter().find_map(|(name, raw)| Some((name, given(raw)?)));
    let output = output.map(|(name, text)| tokens(name, Some(text))).transpose()?;
    let samples = given(body.n).map(|text| whole("n", Some(text), MOST_SAMPLES)).transpose()?;
    let who = Who { model: text("model", body.model)?, tenant: text("user", body.user)?, ..Who::default() };
    let prompt = prompt(path, raw, &body)?;
    Ok(Record { samples: samples.unwrap_or(1).max(1), who, ..Record::new(Duration::ZERO, prompt, output) })
}

/// A prompt of token ids, or the part of the body that the model reads.
fn prompt(path: &str, raw: &str, body: &Body) -> Result<Prompt, Complaint> {
    let part = given(body.messages).or(given(body.prompt)).or(given(body.input));
    let part = part.ok_or_else(|| Complaint::new("messages", "expected messages, prompt or input, found none"))?;
    let is_ids = part.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    if is_ids {
        let ids = items("prompt", body.prompt.or(body.input))?;
        return Ok(Prompt::Ids(ids.map(|id| whole("prompt", Some(id), u32::MAX)).collect::<Result<_, _>>()?));
    }
    // The part was borrowed from the body.
    let begin = (part.as_ptr() as usize).saturating_sub(raw.as_ptr() as usize);
    Ok(Prompt::Text { path: path.into(), body: raw.as_bytes().to_vec(), prompt: begin..begin + part.len() })
}
