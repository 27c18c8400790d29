//! `vertexai-parser`: Vertex AI's prediction service over gRPC; see `proto/vertex.proto`.
//!
//! A message wraps the body of an OpenAI request, which is read where it stands. The wrapping announces lengths, so the
//! model is read but never rewritten. Other methods of the service are passed on unread, and so are their answers.

mod response;

use std::ops::Range;

use epp_plugin_api::{
    Api, Headers, Kind, ParseError, Parsed, Parser, Piece, PluginType, ResponseKind, ResponseParser, Stability,
};

use super::grpc::first_message;
use super::grpc::wire::{Fields, Malformed, Value, text};
use super::openai::OpenAi;
use super::refuse;
use super::response::Unread;

pub static TYPE: PluginType = PluginType {
    name: "vertexai-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "vertexai-parser",
    summary: "Reads requests and responses of Vertex AI's prediction service over gRPC.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, VertexAi),
};

/// A method, its request message, and the path under which the body inside is read.
struct Method {
    suffix: &'static str,
    message: &'static str,
    inner: &'static str,
}

const METHODS: [Method; 3] = [
    Method {
        suffix: "PredictionService/ChatCompletions",
        message: "ChatCompletionsRequest",
        inner: "/chat/completions",
    },
    Method { suffix: "PredictionService/StreamRawPredict", message: "StreamRawPredictRequest", inner: "/responses" },
    Method { suffix: "PredictionService/RawPredict", message: "RawPredictRequest", inner: "/responses" },
];

impl Method {
    fn of(path: &str) -> Option<&'static Self> {
        METHODS.iter().find(|method| path.ends_with(method.suffix))
    }
}

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct VertexAi;

impl Parser for VertexAi {
    fn paths(&self) -> &'static [&'static str] {
        const PATHS: &[&str] = &[METHODS[0].suffix, METHODS[1].suffix, METHODS[2].suffix];
        PATHS
    }

    fn parse(&self, path: &str, headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        let Some(method) = Method::of(path) else {
            return Ok(Parsed { skip_response: true, ..Parsed::default() });
        };
        let name = method.message;
        let message = match first_message(body) {
            Ok(message) => message,
            Err(why) => return refuse(format_args!("invalid or unsupported gRPC payload: {why}")),
        };
        let data = match wrapped(body, message) {
            Ok(Some(data)) => data,
            Ok(None) => return refuse(format_args!("{name} has no HttpBody")),
            Err(fault) => return refuse(format_args!("unmarshaling {name}: {fault}")),
        };
        match OpenAi.parse(method.inner, headers, &body[data.clone()]) {
            Ok(parsed) => Ok(moved(parsed, data.start)),
            Err(why) => refuse(format_args!("parsing {name}: {why}")),
        }
    }

    fn response(&self, path: &str, _kind: ResponseKind) -> Box<dyn ResponseParser> {
        match Method::of(path) {
            Some(_) => Box::new(response::Bodies::default()),
            None => Box::new(Unread),
        }
    }
}

/// Where the data of the message's `HttpBody` stand; `None` if it has none.
fn wrapped(body: &[u8], message: Range<usize>) -> Result<Option<Range<usize>>, Malformed> {
    let mut data = None;
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Bytes(at)) => drop(text(body, &at)?),
            (2, Value::Bytes(at)) => {
                let found = data.get_or_insert(at.start..at.start);
                if let Some(inside) = http_body(body, at)?.data {
                    *found = inside;
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(data)
}

/// An `HttpBody`, where its fields stand.
#[derive(Default)]
struct HttpBody {
    content_type: Range<usize>,
    data: Option<Range<usize>>,
}

fn http_body(body: &[u8], message: Range<usize>) -> Result<HttpBody, Malformed> {
    let mut found = HttpBody::default();
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Bytes(at)) => {
                text(body, &at)?;
                found.content_type = at;
            }
            (2, Value::Bytes(at)) => found.data = Some(at),
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

/// Moves what was read inside the message to where it stands in the body. The model's place is forgotten.
fn moved(mut parsed: Parsed, by: usize) -> Parsed {
    for piece in &mut parsed.pieces {
        match piece {
            Piece::NextPrompt | Piece::Literal(_) | Piece::Ids { .. } => {}
            Piece::Text { at, .. } | Piece::Raw { at } | Piece::Image { at, .. } | Piece::Video { at, .. } => {
                shift(at, by);
            }
            Piece::Audio { at, format, .. } => {
                shift(at, by);
                shift(format, by);
            }
        }
    }
    Parsed { api: Api::Other, model_at: None, insert_at: None, model_aware: false, ..parsed }
}

fn shift(range: &mut Range<usize>, by: usize) {
    *range = range.start + by..range.end + by;
}

#[cfg(test)]
mod tests;
