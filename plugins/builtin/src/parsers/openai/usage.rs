//! The usage that a response of the OpenAI API reports.

use epp_plugin_api::{ResponseKind, ResponseParser, Usage};

use super::super::response::count;
use super::super::response::events::{Events, Report};
use super::super::response::whole::Whole;
use crate::json::{Fault, Field, Scanner};

/// Makes a reader for one response.
pub fn reader(kind: ResponseKind) -> Box<dyn ResponseParser> {
    match kind {
        ResponseKind::Whole => Box::new(Whole::new(|document| read(document).ok()?.usage)),
        ResponseKind::Events => Box::new(Events::new(OpenAiEvents)),
    }
}

struct OpenAiEvents;

impl Report for OpenAiEvents {
    const WORD: &'static str = "usage";
    const LAST_WORD: &'static str = "[DONE]";

    fn event(&mut self, data: &[u8], usage: &mut Option<Usage>) -> bool {
        if data == b"[DONE]" {
            return true;
        }
        let Ok(document) = read(data) else { return false };
        let completed = if document.completed { document.of_response } else { None };
        if let Some(reported) = document.usage.or(completed) {
            *usage = Some(reported);
        }
        document.completed
    }
}

/// What one document reports.
#[derive(Default)]
struct Document {
    usage: Option<Usage>,
    /// It is the event that holds a whole response.
    completed: bool,
    /// The usage inside that response.
    of_response: Option<Usage>,
}

fn read(document: &[u8]) -> Result<Document, Fault> {
    let mut found = Document::default();
    let mut s = Scanner::new(document);
    s.object(|s, key| {
        if key.is("usage") {
            found.usage = usage(s)?;
        } else if key.is("type") {
            found.completed = matches!(s.text()?, Field::Is(of) if of.is(document, "response.completed"));
        } else if key.is("response") {
            s.entry("usage", |s| {
                found.of_response = usage(s)?;
                Ok(())
            })?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    s.end()?;
    Ok(found)
}

/// Reads the object of usage; `None` if it is no object or reports nothing.
fn usage(s: &mut Scanner<'_>) -> Result<Option<Usage>, Fault> {
    let mut found = Usage::default();
    let (mut input, mut output, mut input_cached) = (None, None, None);
    s.object(|s, key| {
        if key.is("prompt_tokens") {
            found.prompt = count(s)?;
        } else if key.is("input_tokens") {
            input = count(s)?;
        } else if key.is("completion_tokens") {
            found.completion = count(s)?;
        } else if key.is("output_tokens") {
            output = count(s)?;
        } else if key.is("total_tokens") {
            found.total = count(s)?;
        } else if key.is("input_tokens_details") {
            input_cached = cached_tokens(s)?;
        } else if key.is("prompt_tokens_details") {
            found.cached = cached_tokens(s)?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    let usage = Usage {
        prompt: found.prompt.or(input),
        completion: found.completion.or(output),
        cached: input_cached.or(found.cached),
        total: found.total,
    };
    Ok(Some(usage).filter(|usage| *usage != Usage::default()))
}

fn cached_tokens(s: &mut Scanner<'_>) -> Result<Option<u64>, Fault> {
    let mut cached = None;
    s.entry("cached_tokens", |s| {
        cached = count(s)?;
        Ok(())
    })?;
    Ok(cached)
}
