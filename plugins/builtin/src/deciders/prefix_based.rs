//! `prefix-based-pd-decider`: a stage is worth it when the chosen endpoint would have much of the prompt to compute.
//!
//! Wanted if prompt tokens - cached blocks * block size >= `nonCachedTokens` on the endpoint that is to decode, and the
//! prompt has `promptTokens` tokens or more. An endpoint of which nothing is known has nothing cached. Not wanted while
//! nobody is chosen to decode, or without a prompt. Reads the column `PrefixCacheMatchInfoDataKey` and the value
//! `TokenizedPrompt`.
//!
//! ```yaml
//! - type: prefix-based-pd-decider
//!   parameters:
//!     nonCachedTokens: 512    # 0 or more; 0: never
//!     promptTokens: 0         # 0 or more
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, ColumnKey, Columns, Cycle, Decider, EndpointIdx, Instance, Kind, NodeError, PluginType,
    RequestKey, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::{PrefixMatch, TokenizedPrompt};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "prefix-based-pd-decider",
    kinds: &[Kind::Decider],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "prefix-based-pd-decider",
    summary: "Wants the stage when much of the prompt is not cached.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Tokens that must be left to compute. 0 or more; 0 wants nothing. Default 0.
    #[schemars(range(min = 0))]
    non_cached_tokens: i64,
    /// Tokens that the prompt must have. 0 or more. Default 0.
    #[schemars(range(min = 0))]
    prompt_tokens: i64,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Vec::new();
    let mut tokens = |path: &str, value: i64| {
        u64::try_from(value).unwrap_or_else(|_| {
            let message = format!("expected 0 tokens or more, found {value}");
            mistakes.push(NodeError { place: None, path: path.to_owned(), message });
            0
        })
    };
    let decider = PrefixBased {
        non_cached_tokens: tokens("nonCachedTokens", cfg.non_cached_tokens),
        prompt_tokens: tokens("promptTokens", cfg.prompt_tokens),
        prompt: cx.reads_request(""),
        matches: cx.reads(""),
    };
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    Ok(Instance { decider: Some(Arc::new(decider)), ..Instance::default() })
}

struct PrefixBased {
    non_cached_tokens: u64,
    prompt_tokens: u64,
    prompt: RequestKey<TokenizedPrompt>,
    matches: ColumnKey<PrefixMatch>,
}

impl Decider for PrefixBased {
    fn wanted(&self, _cx: &Cycle<'_>, columns: &Columns, chosen: Option<EndpointIdx>) -> bool {
        let (Some(chosen), Some(prompt)) = (chosen, columns.read_request(self.prompt)) else { return false };
        if self.non_cached_tokens == 0 {
            return false;
        }
        let length = prompt.tokens() as u64;
        let known = columns.read(self.matches).and_then(|matches| matches.get(chosen.row()));
        let cached = known.map_or(0, |known| u64::from(known.cached_blocks) * u64::from(known.block_tokens));
        length >= self.prompt_tokens && length.saturating_sub(cached) >= self.non_cached_tokens
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Rig, Row, cycle, request, snapshot};

    crate::conformance!(TYPE, json!({"nonCachedTokens": 1}));

    /// Whether prefill is wanted for a prompt of so many tokens, when the endpoint has these blocks.
    fn wanted(parameters: Value, length: Option<usize>, known: Option<PrefixMatch>, chosen: Option<u32>) -> bool {
        let rig = Rig::default();
        let decider = rig.build(&TYPE, parameters).decider.unwrap();
        let (board, request) = (snapshot(1, vec![Row::default(); 2]), request(b"", Default::default()));
        let mut columns = Columns::default();
        columns.reset(2);
        if let Some(length) = length {
            let prompt = columns.write_request(rig.slots.request::<TokenizedPrompt>("token-producer"));
            prompt.push_packed(|packed| packed.resize(4 * length, 0));
        }
        if let Some(known) = known {
            columns.write(rig.slots.column("approx-prefix-cache-producer"))[1] = known;
        }
        decider.wanted(&cycle(&board, &request), &columns, chosen.map(EndpointIdx))
    }

    fn cached(blocks: u32, block_tokens: u32) -> Option<PrefixMatch> {
        Some(PrefixMatch {
            match_blocks: blocks,
            total_blocks: blocks,
            block_tokens,
            cached_blocks: blocks,
            host_blocks: None,
        })
    }

    #[test]
    fn wanted_when_enough_is_not_cached() {
        for (limit, at_least, length, known, want) in [
            (0, 0, 10, cached(0, 1), false),
            (5, 0, 10, cached(8, 1), false),
            (5, 0, 10, cached(5, 1), true),
            (5, 0, 10, cached(0, 1), true),
            (3, 0, 10, cached(2, 1), true),
            (1, 0, 10, cached(10, 1), false),
            (1, 0, 10, cached(11, 1), false),
            (20, 0, 10, cached(0, 1), false),
            (5, 20, 10, cached(0, 1), false),
            (5, 10, 10, cached(5, 1), true),
            (512, 0, 4096, cached(192, 16), true),
        ] {
            let parameters = json!({"nonCachedTokens": limit, "promptTokens": at_least});
            assert_eq!(wanted(parameters, Some(length), known, Some(1)), want, "{limit} {at_least} {length} {known:?}");
        }
    }

    #[test]
    fn counts_cached_blocks_of_any_tier() {
        let known = PrefixMatch {
            match_blocks: 192,
            total_blocks: 256,
            block_tokens: 16,
            cached_blocks: 240,
            host_blocks: None,
        };
        assert!(!wanted(json!({"nonCachedTokens": 512}), Some(4096), Some(known), Some(1)));
    }

    #[test]
    fn without_prefix_data_the_length_of_the_prompt_decides() {
        for (length, want) in [(100, true), (4, false)] {
            assert_eq!(wanted(json!({"nonCachedTokens": 5}), Some(length), None, Some(1)), want);
        }
    }

    #[test]
    fn nothing_is_wanted_without_a_chosen_endpoint_or_a_prompt() {
        assert!(!wanted(json!({"nonCachedTokens": 5}), Some(100), cached(0, 1), None));
        assert!(!wanted(json!({"nonCachedTokens": 5}), None, cached(0, 1), Some(1)));
    }

    #[test]
    fn refuses_bad_limits() {
        let both = json!({"nonCachedTokens": -1, "promptTokens": -2});
        let why =
            "nonCachedTokens: expected 0 tokens or more, found -1\npromptTokens: expected 0 tokens or more, found -2";
        assert_eq!(Rig::default().refused(&TYPE, both), why);
        let why = Rig::default().refused(&TYPE, json!({"nonCachedTokens": 1.5}));
        assert!(why.starts_with("nonCachedTokens: "), "{why}");
    }
}
