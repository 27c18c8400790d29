//! `token-load-scorer`: prefers endpoints with few tokens in flight from this picker.
//!
//! Score = 1 - min(v, T) / T, where v is the tokens in flight and those of this prompt that the endpoint would have to
//! compute, and T is `queueThresholdTokens`. From 0 to 1. Reads the columns `InFlightLoadDataKey` and
//! `UncachedRequestTokensDataKey`; what is missing counts as 0. Costs one pass over both.
//!
//! ```yaml
//! - type: token-load-scorer
//!   parameters:
//!     queueThresholdTokens: 4194304   # tokens; zero and less count as the default
//!     inFlightLoadProducerName: inflight-load-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer,
    Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::{InFlight, UncachedTokens};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "token-load-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "token-load-scorer",
    summary: "Prefers endpoints with few tokens in flight from this picker.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// 128 requests of 32768 tokens.
const DEFAULT_THRESHOLD: i64 = 128 * 32_768;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// From how many tokens on an endpoint scores 0. Default, and for zero and less, 4194304.
    queue_threshold_tokens: i64,
    /// The instance that counts. Default: `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let threshold = if cfg.queue_threshold_tokens > 0 { cfg.queue_threshold_tokens } else { DEFAULT_THRESHOLD };
    let in_flight = cx.reads(&cfg.in_flight_load_producer_name);
    let producer = match cfg.in_flight_load_producer_name.trim() {
        "" => InFlight::DEFAULT_PRODUCER.unwrap_or_default(),
        _ => &cfg.in_flight_load_producer_name,
    };
    let scorer = TokenLoad { threshold: threshold as f64, in_flight, uncached: cx.reads(producer) };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct TokenLoad {
    threshold: f64,
    in_flight: ColumnKey<InFlight>,
    uncached: ColumnKey<UncachedTokens>,
}

impl Scorer for TokenLoad {
    fn score(&self, _cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let (in_flight, uncached) = (columns.read(self.in_flight), columns.read(self.uncached));
        super::fill(among, scores, |row| {
            let tokens = in_flight.map_or(0, |counts| counts[row].tokens) as f64;
            let load = tokens + uncached.map_or(0, |uncached| uncached[row].0) as f64;
            1.0 - load.clamp(0.0, self.threshold) / self.threshold
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"queueThresholdTokens": 1000}));

    fn check(threshold: i64, loads: &[(i64, i64)], expected: &[f64]) {
        let rig = Rig::default();
        let scorer = rig.build(&TYPE, json!({"queueThresholdTokens": threshold})).scorer.unwrap();
        let uncached: Vec<_> = loads.iter().map(|&(_, uncached)| UncachedTokens(uncached)).collect();
        let mut columns = rig.column("inflight-load-producer", &uncached);
        let in_flight = columns.write(rig.slots.column::<InFlight>("inflight-load-producer"));
        in_flight.iter_mut().zip(loads).for_each(|(cell, &(tokens, _))| cell.tokens = tokens);
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); loads.len()]), &columns), expected);
    }

    #[test]
    fn falls_to_nothing_at_the_threshold() {
        check(1000, &[(0, 0), (500, 0), (1000, 0), (-5, 0)], &[1.0, 0.5, 0.0, 1.0]);
        check(1000, &[(0, 250), (250, 250), (750, 250), (5000, 0)], &[0.75, 0.5, 0.0, 0.0]);
        for threshold in [0, -1] {
            check(threshold, &[(0, 64), (32_704, 64)], &[1.0 - 64.0 / 4_194_304.0, 1.0 - 32_768.0 / 4_194_304.0]);
        }
    }

    #[test]
    fn without_counts_all_are_idle() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 2]), &Columns::default()), &[1.0, 1.0]);
    }

    #[test]
    fn reads_both_of_the_producer_that_it_names() {
        for (name, expected) in [("", "inflight-load-producer"), ("mine", "mine")] {
            let [reads, ..] = Rig::default().keys(&TYPE, json!({"inFlightLoadProducerName": name}));
            let reads: Vec<_> = reads.iter().map(|key| key.producer.as_str()).collect();
            assert_eq!(reads, [expected, expected]);
        }
    }
}
