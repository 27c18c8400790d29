//! `vllmhttp-parser`: vLLM's own path for requests in token ids, `/inference/v1/generate`.

pub(crate) mod features;

use epp_plugin_api::{
    Headers, Kind, ParseError, Parsed, Parser, Piece, PluginType, ResponseKind, ResponseParser, Stability,
};

use super::draft::{self, Draft};
use super::openai::usage;
use super::refuse;
use crate::json::ids::{BadId, Ids};
use crate::json::{Fault, Field, Scanner};

pub static TYPE: PluginType = PluginType {
    name: "vllmhttp-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "vllmhttp-parser",
    summary: "Reads requests in token ids as vLLM takes them over HTTP.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, VllmHttp),
};

const PATH: &str = "inference/v1/generate";

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct VllmHttp;

impl Parser for VllmHttp {
    fn paths(&self) -> &'static [&'static str] {
        &[PATH]
    }

    fn parse(&self, path: &str, _headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        if !path.ends_with(PATH) {
            return refuse(format_args!("unsupported path: {path}"));
        }
        match read(body) {
            Ok(Ok(parsed)) => Ok(parsed),
            Ok(Err(why)) => refuse(format_args!("invalid generate request: {why}")),
            Err(fault) => refuse(format_args!("invalid generate request: {fault}")),
        }
    }

    fn response(&self, _path: &str, kind: ResponseKind) -> Box<dyn ResponseParser> {
        usage::reader(kind)
    }
}

/// What is wrong with a body that is good JSON.
type Refusal = String;

fn read(body: &[u8]) -> Result<Result<Parsed, Refusal>, Fault> {
    let mut draft = Draft::default();
    let mut ids = Field::Null;
    let mut features = Vec::new();
    let mut wrong: Option<&'static str> = None;
    let mut cap = None;
    let parsed = draft::read(body, &[], |s, key| {
        if key.folds_to("token_ids") {
            draft.restart();
            ids = s.ids(&mut draft.ids)?;
        } else if key.folds_to("cache_salt") {
            draft.want_salt(s)?;
            if std::mem::take(&mut draft.wrong) {
                wrong = Some("cache_salt: expected a string");
            }
        } else if key.folds_to("features") {
            match features::read(s)? {
                Some(read) => features = read,
                None => wrong = Some("features: expected hashes and placeholders by modality"),
            }
        } else if key.is("sampling_params") {
            cap = sampling_cap(s, "max_tokens")?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    let refusal = match (wrong, ids) {
        (Some(wrong), _) => wrong.to_owned(),
        (None, Field::Wrong) => "token_ids: expected an array of numbers".to_owned(),
        (None, Field::Is(Ids { bad: Some((i, BadId::Type)), .. })) => format!("token_ids[{i}]: expected a number"),
        (None, Field::Null | Field::Is(Ids { n: 0, .. })) => "must have non-empty token_ids field".to_owned(),
        (None, Field::Is(Ids { bad: Some((i, BadId::Value)), .. })) => format!("token_ids[{i}]: invalid value"),
        (None, Field::Is(Ids { n, bad: None | Some((_, BadId::Null)) })) => {
            draft.pieces.push(Piece::Ids { at: 0..n });
            return Ok(Ok(draft.into_parsed(Parsed { features, max_output_tokens: cap, ..parsed })));
        }
    };
    Ok(Err(refusal))
}

/// Reads the cap on the tokens of the answer from among the sampling parameters; what is malformed there is ignored.
pub(super) fn sampling_cap(s: &mut Scanner<'_>, name: &str) -> Result<Option<u64>, Fault> {
    let mut cap = None;
    s.entry(name, |s| {
        cap = draft::read_cap(s)?;
        Ok(())
    })?;
    Ok(cap)
}

#[cfg(test)]
mod tests;
