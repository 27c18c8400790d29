//! The usage that a response of the messages API reports. A stream tells the input in its first event and the output in a
//! late one; both make one report.

use epp_plugin_api::{ResponseKind, ResponseParser, Usage};

use super::super::response::events::{Events, Report};
use super::super::response::number;
use super::super::response::whole::Whole;
use crate::json::{Fault, Field, Scanner};

/// Makes a reader for one response.
pub fn reader(kind: ResponseKind) -> Box<dyn ResponseParser> {
    match kind {
        ResponseKind::Whole => Box::new(Whole::new(|document| {
            let Counts { input, output, cached } = read(document).ok()?.own?;
            report(input, output, cached)
        })),
        ResponseKind::Events => Box::new(Events::new(AnthropicEvents)),
    }
}

struct AnthropicEvents;

impl Report for AnthropicEvents {
    const WORD: &'static str = "usage";
    const LAST_WORD: &'static str = "message_stop";

    fn event(&mut self, data: &[u8], usage: &mut Option<Usage>) -> bool {
        let Ok(event) = read(data) else { return false };
        let held = usage.unwrap_or_default();
        match (event.of, event.own, event.of_message) {
            (Event::Start, _, Some(start)) => *usage = report(start.input, held.completion, start.cached),
            (Event::Delta, Some(delta), _) => {
                *usage = report(held.prompt, delta.output.or(held.completion), held.cached);
            }
            _ => {}
        }
        event.of == Event::Stop
    }
}

fn report(prompt: Option<u64>, completion: Option<u64>, cached: Option<u64>) -> Option<Usage> {
    let total = prompt.zip(completion).map(|(prompt, completion)| prompt.saturating_add(completion));
    let usage = Usage { prompt, completion, cached, total };
    Some(usage).filter(|usage| *usage != Usage::default())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Event {
    Start,
    Delta,
    Stop,
    #[default]
    Other,
}

#[derive(Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cached: Option<u64>,
}

/// What one document reports.
#[derive(Default)]
struct Document {
    of: Event,
    own: Option<Counts>,
    of_message: Option<Counts>,
}

fn read(document: &[u8]) -> Result<Document, Fault> {
    let mut found = Document::default();
    let mut s = Scanner::new(document);
    s.object(|s, key| {
        if key.is("usage") {
            found.own = counts(s)?;
        } else if key.is("type") {
            if let Field::Is(of) = s.text()? {
                let events =
                    [("message_start", Event::Start), ("message_delta", Event::Delta), ("message_stop", Event::Stop)];
                found.of = events.iter().find(|(name, _)| of.is(document, name)).map_or(Event::Other, |&(_, of)| of);
            }
        } else if key.is("message") {
            s.entry("usage", |s| {
                found.of_message = counts(s)?;
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

fn counts(s: &mut Scanner<'_>) -> Result<Option<Counts>, Fault> {
    let mut counts = Counts::default();
    let field = s.object(|s, key| {
        if key.is("input_tokens") {
            counts.input = number(s)?;
        } else if key.is("output_tokens") {
            counts.output = number(s)?;
        } else if key.is("cache_read_input_tokens") {
            counts.cached = number(s)?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    Ok(match field {
        Field::Is(()) => Some(counts),
        Field::Null | Field::Wrong => None,
    })
}
