//! `anthropic-parser`: the messages API of Anthropic.
//!
//! `messages/count_tokens` is sent on unread, and nobody looks at its response.

mod blocks;
mod usage;

use std::ops::Range;

use epp_plugin_api::{
    Api, Headers, Kind, ParseError, Parsed, Parser, Piece, PluginType, ResponseKind, ResponseParser, Stability,
};

use super::draft::{self, Draft};
use super::refuse;
use super::response::Unread;
use crate::json::text::Text;
use crate::json::{Fault, Kind as JsonKind, Scanner};
use blocks::Place;

pub static TYPE: PluginType = PluginType {
    name: "anthropic-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "anthropic-parser",
    summary: "Reads requests and responses of Anthropic's messages API.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, Anthropic),
};

const COUNT_TOKENS: &str = "/messages/count_tokens";
const MESSAGES: &str = "/messages";

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct Anthropic;

impl Parser for Anthropic {
    fn paths(&self) -> &'static [&'static str] {
        &["messages", "messages/count_tokens"]
    }

    fn parse(&self, path: &str, _headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        if path.ends_with(COUNT_TOKENS) {
            return Ok(Parsed { skip_response: true, ..Parsed::default() });
        }
        if !path.ends_with(MESSAGES) {
            return refuse(format_args!("unsupported API endpoint: {path}"));
        }
        let mut draft = Draft::default();
        let mut request = Request::default();
        let parsed = match draft::read(body, &["max_tokens"], |s, key| {
            if key.folds_to("messages") {
                request.messages(&mut draft, s)
            } else if key.folds_to("system") {
                request.system(&mut draft, s)
            } else if key.folds_to("tools") {
                request.tools = tools(&mut draft, s)?;
                Ok(())
            } else if key.folds_to("cache_salt") {
                draft.want_salt(s)
            } else {
                s.skip().map(drop)
            }
        }) {
            Ok(parsed) => parsed,
            Err(fault) => return refuse(format_args!("error unmarshaling request body: {fault}")),
        };
        if draft.wrong {
            return refuse("error parsing messages request: a field has the wrong type");
        }
        if request.n_messages == 0 {
            return refuse("invalid messages request: must have at least one message");
        }
        request.complete(&mut draft);
        Ok(Parsed { api: Api::Messages, ..draft.into_parsed(parsed) })
    }

    fn response(&self, path: &str, kind: ResponseKind) -> Box<dyn ResponseParser> {
        match path.ends_with(COUNT_TOKENS) {
            true => Box::new(Unread),
            false => usage::reader(kind),
        }
    }
}

/// What stands before the messages in the prompt, wherever it stands in the body.
#[derive(Default)]
struct Request {
    n_messages: usize,
    tools: Option<Range<usize>>,
    system: Vec<Piece>,
}

impl Request {
    fn messages(&mut self, draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
        if s.kind()? == JsonKind::Array {
            draft.restart();
        }
        let n = s.array(|s, _| message(draft, s))?;
        if let Some(n) = draft.want(n) {
            self.n_messages = n;
        }
        Ok(())
    }

    fn system(&mut self, draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
        let messages = std::mem::take(&mut draft.pieces);
        let read = blocks::content(draft, s, Place::System);
        self.system = std::mem::replace(&mut draft.pieces, messages);
        read
    }

    fn complete(self, draft: &mut Draft) {
        let tools = self.tools.map(|at| Piece::Raw { at });
        draft.pieces.splice(0..0, tools.into_iter().chain(self.system));
    }
}

fn message(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
    let start = draft.pieces.len();
    let mut role: Option<Text> = None;
    let field = s.object(|s, key| {
        if key.folds_to("role") {
            role = draft.want_text(s)?;
            Ok(())
        } else if key.folds_to("content") {
            draft.pieces.truncate(start);
            blocks::content(draft, s, Place::Message)
        } else {
            s.skip().map(drop)
        }
    })?;
    draft.want(field);
    if let Some(Text { at, escaped }) = role {
        draft.pieces.insert(start, Piece::Text { at, escaped });
    }
    draft.bound();
    Ok(())
}

/// Reads the tools. Returns where they stand, if there are any.
fn tools(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<Option<Range<usize>>, Fault> {
    let start = s.start();
    let n = s.array(|s, _| {
        let field = s.object(|s, key| {
            if key.folds_to("name") || key.folds_to("description") {
                draft.want_text(s).map(drop)
            } else if key.folds_to("strict") || key.folds_to("defer_loading") {
                draft.want_boolean(s)
            } else {
                s.skip().map(drop)
            }
        })?;
        draft.want(field);
        Ok(())
    })?;
    Ok(draft.want(n).filter(|&n| n > 0).map(|_| start..s.at()))
}

#[cfg(test)]
mod tests;
