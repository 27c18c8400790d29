//! `token-producer`: the tokens of the request's prompts. `tokenizer` is its old name.
//!
//! Token ids that the request holds are taken as they are, without a copy. Those of a text come from one of three
//! backends:
//!
//! - `estimate`, the default, has no tokenizer: text is packed four bytes a token, so that equal text gives equal tokens
//!   and the count comes near the real one. An image, a video or a sound becomes as many copies of one token, made of its
//!   hash, as it would take tokens. Costs one copy of the text.
//! - `vllm` asks an engine: completions, chats, and messages of Anthropic, which are rebuilt as a chat, are posted to
//!   `/v1/completions/render` or `/v1/chat/completions/render` under the name `modelName`. Costs a call, unless the body
//!   was sent before and is remembered. Nothing is asked before the first request needs it, so an engine that renders its
//!   first prompt slowly makes that request wait; no longer than `timeout`.
//! - `local` has the tokenizer and the chat template of a model in this process; only in builds with the cargo feature
//!   `tokenizers`. Long texts take milliseconds, on threads of their own. A request with media has no tokens then.
//!
//! Without tokens, as when an engine does not answer or for kinds of requests that are not rendered, a request goes on and
//! is picked without what needs them. What is remembered is known by a hash of the whole body, so that a client that
//! changes a seed asks anew. Writes the value `TokenizedPrompt`, unless the request has no prompt.
//!
//! ```yaml
//! - type: token-producer
//!   parameters:
//!     estimate:
//!       image: {mode: dynamic, defaultResolution: {width: 640, height: 360}, dynamic: {factor: 1024}}
//!       video: {defaultDuration: 10, frames: {mode: sampled, sampled: {sampleFPS: 2}}, maxVideoTokens: 0}
//! ```
//!
//! ```yaml
//! - type: token-producer
//!   parameters:
//!     modelName: Qwen/Qwen3-8B
//!     vllm:
//!       url: http://localhost:8000
//!       timeout: 5s                # mmTimeout, 30s, for chats whose contents are lists
//!       cache: {maxPrompts: 1024, maxMegabytes: 64}
//! ```
//!
//! ```yaml
//! - type: token-producer
//!   parameters:
//!     local:
//!       tokenizer: models/Qwen3-8B # the directory of tokenizer.json, or the file itself
//!       chatTemplate: ""           # a file of Jinja; default: what the directory has
//! ```

mod asking;
mod cache;
mod config;
mod engine;
mod estimate;
mod image_size;
#[cfg(feature = "tokenizers")]
mod local;
mod media;
pub mod messages;
mod pack;
mod python_json;
pub mod rendered;
#[cfg(test)]
mod tests;
pub(super) mod text;

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Instance, Kind, Parsed, Piece, PluginType, Producer, RequestKey,
    Stability,
};

use self::asking::Asking;
use self::config::{Backend, Config};
use self::estimate::Estimate;
use crate::attributes::TokenizedPrompt;

const SUMMARY: &str = "Makes the tokens of the request's prompts, by an estimate, an engine or a tokenizer.";

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "token-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "token-producer",
    summary: SUMMARY,
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// The registry's line for the old name.
pub static ALIAS: PluginType = PluginType {
    name: "tokenizer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: Some("token-producer"),
    reported: "tokenizer",
    summary: SUMMARY,
    schema: Some(crate::schema::of::<Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let asking = match cfg.backend()? {
        Backend::Estimate(estimate) => {
            let producer = Tokens { estimate, prompt: cx.writes_request() };
            return Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() });
        }
        Backend::Vllm(engine) => Arc::new(Asking::engine(engine, cx)),
        Backend::Local(local) => Arc::new(Asking::local(&local, cx)?),
    };
    Ok(Instance { producer: Some(asking.clone()), remote: Some(asking), ..Instance::default() })
}

struct Tokens {
    estimate: Estimate,
    prompt: RequestKey<TokenizedPrompt>,
}

impl Producer for Tokens {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        if has_prompt(&cx.request.parsed) {
            let prompt = columns.write_request(self.prompt);
            prompt.clear();
            pack::pack(&self.estimate, cx.request, prompt);
        }
        Ok(())
    }
}

/// Whether there is anything to make tokens of.
fn has_prompt(parsed: &Parsed) -> bool {
    parsed.pieces.iter().any(holds_tokens)
}

fn holds_tokens(piece: &Piece) -> bool {
    match piece {
        Piece::NextPrompt => false,
        Piece::Text { at, .. } | Piece::Raw { at } | Piece::Ids { at } => !at.is_empty(),
        Piece::Literal(text) => !text.is_empty(),
        Piece::Image { .. } | Piece::Video { .. } | Piece::Audio { .. } => true,
    }
}
