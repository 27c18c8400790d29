//! `token-producer`: the tokens of the request's prompts. `tokenizer` is its old name.
//!
//! Estimates without a tokenizer: the text of a prompt is packed four bytes a token, so that equal text gives equal
//! tokens and the count comes near the real one. Token ids that the request holds are taken as they are, without a
//! copy. An image, a video or a sound becomes as many copies of one token, made of its hash, as it would take tokens.
//! Writes the value `TokenizedPrompt`, unless the request has no prompt. Costs one copy of the text.
//!
//! ```yaml
//! - type: token-producer
//!   parameters:
//!     estimate:
//!       image: {mode: dynamic, defaultResolution: {width: 640, height: 360}, dynamic: {factor: 1024}}
//!       video: {defaultDuration: 10, frames: {mode: sampled, sampled: {sampleFPS: 2}}, maxVideoTokens: 0}
//! ```

mod config;
mod image_size;
mod media;
mod pack;
pub(super) mod text;

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Instance, Kind, Piece, PluginType, Producer, RequestKey, Stability,
};

use self::config::{Config, Estimate};
use crate::attributes::TokenizedPrompt;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "token-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "token-producer",
    summary: "Estimates the tokens of the request's prompts.",
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
    summary: "Estimates the tokens of the request's prompts.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let producer = Tokens { estimate: cfg.estimating()?, prompt: cx.writes_request() };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

struct Tokens {
    estimate: Estimate,
    prompt: RequestKey<TokenizedPrompt>,
}

impl Producer for Tokens {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let parsed = &cx.request.parsed;
        if parsed.pieces.iter().any(holds_tokens) {
            let prompt = columns.write_request(self.prompt);
            prompt.clear();
            pack::pack(&self.estimate, cx.request, prompt);
        }
        Ok(())
    }
}

fn holds_tokens(piece: &Piece) -> bool {
    match piece {
        Piece::NextPrompt => false,
        Piece::Text { at, .. } | Piece::Raw { at } | Piece::Ids { at } => !at.is_empty(),
        Piece::Literal(text) => !text.is_empty(),
        Piece::Image { .. } | Piece::Video { .. } | Piece::Audio { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Parsed;
    use serde_json::json;

    use crate::testing::{Rig, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"estimate": {}}));

    fn tokens_of(pieces: Vec<Piece>) -> Option<usize> {
        let rig = Rig::default();
        let producer = rig.build(&TYPE, json!(null)).producer.unwrap();
        let (board, request) = (snapshot(1, []), request(b"hello", Parsed { pieces, ..Parsed::default() }));
        let mut columns = Columns::default();
        producer.produce(&cycle(&board, &request), &mut columns).unwrap();
        columns.read_request(rig.slots.request::<TokenizedPrompt>("token-producer")).map(TokenizedPrompt::tokens)
    }

    #[test]
    fn a_request_without_a_prompt_has_no_tokens() {
        assert_eq!(tokens_of(vec![]), None);
        assert_eq!(tokens_of(vec![Piece::Text { at: 3..3, escaped: false }, Piece::NextPrompt]), None);
        assert_eq!(tokens_of(vec![Piece::Text { at: 0..5, escaped: false }]), Some(2));
    }

    #[test]
    fn both_names_build_and_the_old_one_says_what_replaces_it() {
        let rig = Rig::default();
        assert!(rig.build(&ALIAS, json!(null)).producer.is_some());
        assert_eq!(ALIAS.replaced_by, Some("token-producer"));
    }

    #[test]
    fn refuses_other_backends_and_unknown_modes() {
        for (parameters, culprit) in [
            (json!({"modelName": "x", "estimate": {}}), "one backend"),
            (json!({"modelName": "x"}), "not built into this version yet"),
            (json!({"vllm": {"url": "http://h"}}), "modelName"),
            (json!({"modelName": "x", "vllm": {"url": "http://h"}}), "not built into this version yet"),
            (json!({"udsTokenizerConfig": {"socketFile": "/s"}}), "not built into this version yet"),
            (json!({"estimate": {"image": {"mode": "guess"}}}), "estimate.image.mode"),
            (json!({"estimate": {"video": {"frames": {"mode": "all"}}}}), "estimate.video.frames.mode"),
            (json!({"estimate": {"image": {"dynamic": {"factor": -1}}}}), "estimate.image.dynamic.factor"),
            (json!({"estimate": {"video": {"defaultDuration": -1}}}), "estimate.video.defaultDuration"),
            (json!({"model": "x"}), "model"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
