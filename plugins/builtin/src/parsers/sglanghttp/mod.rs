//! `sglanghttp-parser`: SGLang's own path for requests in token ids, `/generate`.
//!
//! The path names no model, so none is read and none can be rewritten.

use epp_plugin_api::{
    Headers, Kind, ParseError, Parsed, Parser, Piece, PluginType, ResponseKind, ResponseParser, Stability, Usage,
};

use super::response::events::{Events, Report};
use super::response::number;
use super::response::whole::Whole;
use super::vllmhttp::sampling_cap;
use super::{draft, refuse};
use crate::json::ids::Ids;
use crate::json::{Fault, Field, Kind as JsonKind, Scanner};

pub static TYPE: PluginType = PluginType {
    name: "sglanghttp-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "sglanghttp-parser",
    summary: "Reads requests in token ids as SGLang takes them over HTTP.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, SglangHttp),
};

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct SglangHttp;

impl Parser for SglangHttp {
    fn paths(&self) -> &'static [&'static str] {
        &["generate"]
    }

    fn parse(&self, path: &str, _headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        let trimmed = path.trim();
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        if trimmed.strip_prefix('/').unwrap_or(trimmed) != "generate" {
            return refuse(format_args!("unsupported path: {path}"));
        }
        match read(body) {
            Ok(parsed) => parsed.map_err(|why| ParseError(why.to_owned())),
            Err(fault) => refuse(format_args!("invalid generate request: {fault}")),
        }
    }

    fn response(&self, _path: &str, kind: ResponseKind) -> Box<dyn ResponseParser> {
        match kind {
            ResponseKind::Whole => Box::new(Whole::new(|document| read_meta(document).ok()?.usage)),
            ResponseKind::Events => Box::new(Events::new(SglangEvents)),
        }
    }
}

fn read(body: &[u8]) -> Result<Result<Parsed, &'static str>, Fault> {
    let mut ids = Field::Null;
    let mut bytes = Vec::new();
    let mut salt = Field::Null;
    let mut cap = None;
    let mut stream = Field::Is(false);
    draft::fields(body, |s, key| {
        if key.folds_to("input_ids") {
            bytes.clear();
            ids = s.ids(&mut bytes)?;
        } else if key.folds_to("extra_key") {
            salt = s.text()?;
        } else if key.folds_to("stream") {
            stream = s.boolean()?;
        } else if key.folds_to("sampling_params") {
            cap = sampling_cap(s, "max_new_tokens")?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    let n = match ids {
        _ if stream == Field::Wrong => return Ok(Err("invalid generate request: stream must be a boolean")),
        Field::Null => return Ok(Err("invalid generate request: input_ids must be provided")),
        Field::Is(Ids { n: 0, .. }) => return Ok(Err("invalid generate request: input_ids cannot be empty")),
        Field::Is(Ids { n, bad: None }) => n,
        Field::Is(Ids { bad: Some(_), .. }) | Field::Wrong => {
            return Ok(Err("invalid generate request: input_ids must be an array of uint32 integers"));
        }
    };
    let cache_salt = match salt {
        Field::Is(text) => text.read(body),
        Field::Null => String::new(),
        Field::Wrong => return Ok(Err("unsupported generate request: extra_key must be a string")),
    };
    Ok(Ok(Parsed {
        stream: stream == Field::Is(true),
        max_output_tokens: cap,
        cache_salt,
        pieces: vec![Piece::Ids { at: 0..n }],
        ids: bytes,
        ..Parsed::default()
    }))
}

struct SglangEvents;

impl Report for SglangEvents {
    const WORD: &'static str = "meta_info";
    const LAST_WORD: &'static str = "[DONE]";

    fn event(&mut self, data: &[u8], usage: &mut Option<Usage>) -> bool {
        if data == b"[DONE]" {
            return true;
        }
        if let Ok(Meta { usage: Some(reported), finished: true }) = read_meta(data) {
            *usage = Some(reported);
        }
        false
    }
}

/// What an answer says of itself.
#[derive(Default)]
struct Meta {
    usage: Option<Usage>,
    finished: bool,
}

fn read_meta(document: &[u8]) -> Result<Meta, Fault> {
    let mut meta = Meta::default();
    let mut s = Scanner::new(document);
    s.object(|s, key| {
        if !key.is("meta_info") {
            return s.skip().map(drop);
        }
        let mut usage = Usage::default();
        s.object(|s, key| {
            if key.is("prompt_tokens") {
                usage.prompt = number(s)?;
            } else if key.is("completion_tokens") {
                usage.completion = number(s)?;
            } else if key.is("cached_tokens") {
                usage.cached = number(s)?;
            } else {
                meta.finished |= key.is("finish_reason") && s.kind()? != JsonKind::Null;
                s.skip()?;
            }
            Ok(())
        })?;
        meta.usage = Some(usage).filter(|usage| usage.prompt.is_some() || usage.completion.is_some());
        Ok(())
    })?;
    s.end()?;
    Ok(meta)
}

#[cfg(test)]
mod tests;
