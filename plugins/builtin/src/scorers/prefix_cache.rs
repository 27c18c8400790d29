//! `prefix-cache-scorer`: prefers endpoints that have the beginning of the prompt in their KV cache. Among clusters it is
//! called `multicluster-prefix-cache-scorer`.
//!
//! ratio = matched blocks / blocks of the prompt; length = min(1, matched tokens / `matchLengthScaleTokens`)²;
//! score = w * length + (1 - w) * ratio with w = `matchLengthWeight`. From 0 to 1; 0 if nothing is known. Reads the
//! column `PrefixCacheMatchInfoDataKey`. Costs one pass over the column.
//!
//! ```yaml
//! - type: prefix-cache-scorer
//!   parameters:
//!     prefixMatchInfoProducerName: ""   # default: approx-prefix-cache-producer
//!     matchLengthWeight: 0.0            # 0 to 1
//!     matchLengthScaleTokens: 8192      # above 0
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::PrefixMatch;

/// The registry's line for this plugin.
pub static TYPE: PluginType = plugin_type("prefix-cache-scorer", Stability::Beta);

/// The registry's line for the scorer of clusters.
pub static MULTICLUSTER: PluginType = plugin_type("multicluster-prefix-cache-scorer", Stability::Alpha);

const fn plugin_type(name: &'static str, stability: Stability) -> PluginType {
    PluginType {
        name,
        kinds: &[Kind::Scorer],
        stability,
        replaced_by: None,
        reported: name,
        summary: "Prefers endpoints that have the beginning of the prompt in their KV cache.",
        schema: Some(crate::schema::of::<Config>),
        build,
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that knows what is cached. Default: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// How much the length of the match counts against its share of the prompt. 0 to 1. Default 0.
    #[schemars(range(min = 0, max = 1))]
    match_length_weight: f64,
    /// The length of a match, in tokens, that counts in full. Default 8192.
    match_length_scale_tokens: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: String::new(),
            match_length_weight: 0.0,
            match_length_scale_tokens: 8192,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if !(0.0..=1.0).contains(&cfg.match_length_weight) {
        return Err(BuildError::at(
            "matchLengthWeight",
            format!("expected a number from 0 to 1, found {}", cfg.match_length_weight),
        ));
    }
    if cfg.match_length_weight > 0.0 && cfg.match_length_scale_tokens <= 0 {
        return Err(BuildError::at(
            "matchLengthScaleTokens",
            format!("expected a number above 0, found {}", cfg.match_length_scale_tokens),
        ));
    }
    let scorer = PrefixCache {
        weight: cfg.match_length_weight,
        scale: cfg.match_length_scale_tokens as f64,
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
    };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

/// Scores a column by the share of the prompt that is cached.
pub fn by_ratio(matches: ColumnKey<PrefixMatch>) -> Arc<dyn Scorer> {
    Arc::new(PrefixCache { weight: 0.0, scale: 1.0, matches })
}

struct PrefixCache {
    weight: f64,
    scale: f64,
    matches: ColumnKey<PrefixMatch>,
}

impl PrefixCache {
    fn score_of(&self, known: PrefixMatch) -> f64 {
        if known.total_blocks == 0 {
            return 0.0;
        }
        let blocks = f64::from(known.match_blocks);
        let ratio = (blocks / f64::from(known.total_blocks)).min(1.0);
        if self.weight == 0.0 {
            return ratio;
        }
        let length = (blocks * f64::from(known.block_tokens) / self.scale).min(1.0).powi(2);
        self.weight * length + (1.0 - self.weight) * ratio
    }
}

impl Scorer for PrefixCache {
    fn score(&self, _cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        if let Some(matches) = columns.read(self.matches) {
            super::fill(among, scores, |row| self.score_of(matches[row]));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"matchLengthWeight": 0.5}));

    fn check(parameters: serde_json::Value, known: &[(u32, u32, u32)], expected: &[f64]) {
        let rig = Rig::default();
        let scorer = rig.build(&TYPE, parameters).scorer.unwrap();
        let mut columns = Columns::default();
        columns.reset(known.len());
        let column = columns.write(rig.slots.column::<PrefixMatch>("approx-prefix-cache-producer"));
        for (cell, &(match_blocks, total_blocks, block_tokens)) in column.iter_mut().zip(known) {
            *cell = PrefixMatch {
                match_blocks,
                total_blocks,
                block_tokens,
                cached_blocks: match_blocks,
                host_blocks: None,
            };
        }
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); known.len()]), &columns), expected);
    }

    #[test]
    fn scores_the_share_of_the_prompt_that_is_cached() {
        check(json!(null), &[(5, 10, 1), (2, 10, 1)], &[0.5, 0.2]);
        check(json!(null), &[(5, 10, 1), (0, 0, 0), (0, 0, 64)], &[0.5, 0.0, 0.0]);
    }

    #[test]
    fn rewards_long_matches_when_asked_to() {
        let half = json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 100});
        check(half.clone(), &[(5, 10, 1)], &[0.25125]);
        check(half, &[(50, 100, 1)], &[0.375]);
        let whole = |scale| json!({"matchLengthWeight": 1, "matchLengthScaleTokens": scale});
        check(whole(256), &[(2, 4, 64)], &[0.25]);
        check(whole(64), &[(2, 4, 64)], &[1.0]);
        check(whole(8192), &[(2, 4, 64)], &[(128.0f64 / 8192.0).powi(2)]);
    }

    #[test]
    fn refuses_weights_and_scales_out_of_range() {
        for (parameters, culprit) in [
            (json!({"matchLengthWeight": 1.1}), "matchLengthWeight"),
            (json!({"matchLengthWeight": -0.1}), "matchLengthWeight"),
            (json!({"matchLengthWeight": 0.5, "matchLengthScaleTokens": 0}), "matchLengthScaleTokens"),
            (json!({"weight": 1}), "weight"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
    }
}
