//! `openai-parser`: chat, completions, responses, conversations, embeddings and images as OpenAI has them.
//!
//! The end of the path says which API it is. Keys of the prompt match in any case, `model`, `stream` and the caps on the
//! output by their exact name. Several prompts of one request, as texts or as token ids, are kept apart.

mod chat;
mod items;
mod prompt;
pub(super) mod usage;

use epp_plugin_api::{Headers, Kind, ParseError, Parsed, Parser, PluginType, ResponseKind, ResponseParser, Stability};

use super::draft::{self, Draft};
use super::refuse;
use crate::json::{Fault, Key, Scanner};

pub static TYPE: PluginType = PluginType {
    name: "openai-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "openai-parser",
    summary: "Reads requests and responses of the OpenAI API.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, OpenAi),
};

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct OpenAi;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Conversations,
    Responses,
    Chat,
    Completions,
    Embeddings,
    Images,
}

impl Api {
    fn of(path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let path = path.strip_suffix("completions/render").map_or(path, |start| &path[..start.len() + 11]);
        [
            ("conversations", Self::Conversations),
            ("responses", Self::Responses),
            ("chat/completions", Self::Chat),
            ("completions", Self::Completions),
            ("embeddings", Self::Embeddings),
            ("images/generations", Self::Images),
        ]
        .into_iter()
        .find(|(suffix, _)| path.ends_with(suffix))
        .map_or(Self::Completions, |(_, api)| api)
    }

    /// The keys of the client's cap on the tokens of the answer, first choice first.
    fn caps(self) -> &'static [&'static str] {
        match self {
            Self::Chat => &["max_completion_tokens", "max_tokens"],
            Self::Completions => &["max_tokens"],
            Self::Responses => &["max_output_tokens"],
            Self::Conversations | Self::Embeddings | Self::Images => &[],
        }
    }

    /// What the body is for those who hand it on.
    fn rendered_as(self) -> epp_plugin_api::Api {
        match self {
            Self::Chat => epp_plugin_api::Api::Chat,
            Self::Completions => epp_plugin_api::Api::Completions,
            Self::Conversations | Self::Responses | Self::Embeddings | Self::Images => epp_plugin_api::Api::Other,
        }
    }

    fn refusal(self) -> &'static str {
        match self {
            Self::Conversations => "invalid conversations request: must have items field",
            Self::Responses => "invalid responses request: must have input field",
            Self::Chat => "invalid chat completions request: must have valid messages field",
            Self::Completions => "invalid completions request: must have prompt field",
            Self::Embeddings => "invalid embeddings request: must have input field",
            Self::Images => "invalid images generations request: must have prompt field",
        }
    }
}

/// One API's own fields. Each takes those that it types and passes over the others.
trait Fields {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault>;
    /// Completes the prompt. Says whether there is one, as the API demands it.
    fn complete(self, draft: &mut Draft) -> bool;
}

fn parse(api: Api, body: &[u8], mut fields: impl Fields) -> Result<Parsed, ParseError> {
    let mut draft = Draft::default();
    let parsed = match draft::read(body, api.caps(), |s, key| fields.field(&mut draft, s, key)) {
        Ok(parsed) => parsed,
        Err(fault) => return refuse(format_args!("error unmarshaling request bodyMap: {fault}")),
    };
    match fields.complete(&mut draft) && !draft.wrong {
        true => Ok(Parsed { api: api.rendered_as(), ..draft.into_parsed(parsed) }),
        false => refuse(api.refusal()),
    }
}

impl Parser for OpenAi {
    fn paths(&self) -> &'static [&'static str] {
        &[
            "chat/completions",
            "completions",
            "embeddings",
            "responses",
            "conversations",
            "chat/completions/render",
            "completions/render",
            "images/generations",
        ]
    }

    fn parse(&self, path: &str, _headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        let api = Api::of(path);
        match api {
            Api::Conversations => parse(api, body, items::Conversation::default()),
            Api::Responses => parse(api, body, items::Response::default()),
            Api::Chat => parse(api, body, chat::Chat::default()),
            Api::Completions => parse(api, body, prompt::Prompt::under("prompt")),
            Api::Embeddings => parse(api, body, prompt::Prompt::under("input")),
            Api::Images => parse(api, body, prompt::Image::default()),
        }
    }

    fn response(&self, _path: &str, kind: ResponseKind) -> Box<dyn ResponseParser> {
        usage::reader(kind)
    }
}

#[cfg(test)]
mod tests;
