//! Asks an engine for the tokens of a prompt.

use bytes::Bytes;
use epp_plugin_api::{Api, Call, Headers, InferenceRequest, rewrite_model};
use xxhash_rust::xxh3::Xxh3;

use super::cache::Key;
use super::config::Engine;
use super::messages;
use super::rendered::Rendered;
use crate::json::Scanner;

/// Headers of the request that go with the question, so that both are one trace.
const PASSED_ON: [&str; 2] = ["traceparent", "tracestate"];

/// What an engine is asked for one request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// What is sent: completions or a chat.
    pub api: Api,
    pub body: Bytes,
    /// The content of a message is a list.
    pub has_parts: bool,
}

impl Asked {
    /// What the answer is remembered by.
    pub fn key(&self) -> Key {
        let mut hash = Xxh3::new();
        hash.update(&[self.api as u8]);
        hash.update(&self.body);
        hash.digest128()
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// Says what was expected if it is something else.
    pub fn read(&self, answer: &[u8]) -> Result<Rendered, String> {
        match self.api {
            Api::Completions => Rendered::of_completions(answer),
            Api::Chat | Api::Messages | Api::Other => Rendered::of_chat(answer),
        }
    }
}

impl Engine {
    /// What to ask for the tokens of this request.
    ///
    /// # Errors
    /// If engines do not render requests of its kind.
    pub fn asked(&self, request: &InferenceRequest) -> Result<Asked, String> {
        let sent = || rewrite_model(&request.body, &request.parsed, &self.model);
        let (api, body) = match request.parsed.api {
            Api::Completions => (Api::Completions, sent()),
            Api::Chat => (Api::Chat, sent()),
            Api::Messages => (Api::Chat, messages::as_chat(&request.body, &self.model)?),
            Api::Other => return Err(NOT_RENDERED.into()),
        };
        let has_parts = api == Api::Chat && has_parts(&body);
        Ok(Asked { api, body: body.into(), has_parts })
    }

    /// The call for that.
    pub fn call(&self, asked: &Asked, headers: &Headers) -> Call {
        let path = match asked.api {
            Api::Completions => "/v1/completions/render",
            Api::Chat | Api::Messages | Api::Other => "/v1/chat/completions/render",
        };
        let passed_on = PASSED_ON.iter().filter_map(|&name| Some((name, headers.find(name)?.to_owned())));
        Call {
            url: format!("{}{path}", self.base),
            headers: passed_on.collect(),
            body: asked.body.clone(),
            timeout: if asked.has_parts { self.mm_timeout } else { self.timeout },
        }
    }
}

/// Why a request has no tokens.
pub const NOT_RENDERED: &str =
    "expected completions, a chat or messages, found a request that no prompt is rendered of";

/// Whether the content of any message is a list of something.
fn has_parts(body: &[u8]) -> bool {
    let mut found = false;
    let mut s = Scanner::new(body);
    // The body has been read before, so its grammar is sound.
    let _ = s.object(|s, key| {
        if !key.folds_to("messages") {
            return s.skip().map(drop);
        }
        s.array(|s, _| {
            let message = s.object(|s, key| {
                found |= key.folds_to("content") && s.first_kind().is_some();
                s.skip().map(drop)
            });
            message.map(drop)
        })
        .map(drop)
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_contents_is_seen() {
        for (body, has) in [
            (r#"{"messages":[{"role":"user","content":"x"},{"content":[{"type":"text"}]}]}"#, true),
            (r#"{"messages":[{"content":[]},{"content":null},{"x":[1]}],"content":[1]}"#, false),
            (r#"{"prompt":[1]}"#, false),
            ("{", false),
        ] {
            assert_eq!(has_parts(body.as_bytes()), has, "{body}");
        }
    }
}
