//! `prefix-cache-affinity-filter`: keeps the endpoints that have most of the prompt in their KV cache, unless they are
//! so busy that another would answer much sooner.
//!
//! Keeps those whose share of cached blocks is at least `affinityThreshold`. All stay if there are none, if the best
//! estimated time to first token among them is more than `maxTTFTPenaltyMs` above the best of the others, or with the
//! probability `explorationProbability`. The time is tokens in flight / `peakPrefillThroughput`, or what is predicted.
//! Reads the columns `PrefixCacheMatchInfoDataKey` and, for the time, `InFlightLoadDataKey` or
//! `LatencyPredictionInfoDataKey`. Costs three passes over columns.
//!
//! ```yaml
//! - type: prefix-cache-affinity-filter
//!   parameters:
//!     affinityThreshold: 0.8               # share of the prompt, at most 1; 0 turns the filter off
//!     explorationProbability: 0            # 0 to 1
//!     maxTTFTPenaltyMs: 18000              # 0: cached endpoints are kept however busy they are
//!     ttftSource: prefillThroughput        # or latencyPredictor
//!     peakPrefillThroughput: 15928         # tokens a second
//!     prefixMatchInfoProducerName: ""      # default: approx-prefix-cache-producer
//!     inFlightLoadProducerName: ""         # default: inflight-load-producer
//!     latencyPredictionInfoProducerName: ""   # default: predicted-latency-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Filter, Instance, Kind, NodeError, PluginType,
    Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Chance;
use crate::attributes::{InFlight, LatencyPrediction, PrefixMatch};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "prefix-cache-affinity-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "prefix-cache-affinity-filter",
    summary: "Keeps the endpoints that have most of the prompt in their KV cache, unless they are too busy.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The share of the prompt from which on an endpoint counts as having it. At most 1; 0 and less turn the filter
    /// off. Default 0.8.
    #[schemars(range(max = 1))]
    affinity_threshold: f64,
    /// How often all stay, as a share. 0 to 1. Default 0.
    #[schemars(range(min = 0, max = 1))]
    exploration_probability: f64,
    /// By how much later, in milliseconds, a cached endpoint may answer than another. 0 or more; 0: however much.
    /// Default 18000.
    #[serde(rename = "maxTTFTPenaltyMs")]
    #[schemars(range(min = 0))]
    max_ttft_penalty_ms: f64,
    /// Where the time to the first token comes from. Default `prefillThroughput`.
    ttft_source: TtftSource,
    /// Prompt tokens that an endpoint computes in a second. Above 0 where it is needed. Default 15928.
    #[schemars(range(min = 0))]
    peak_prefill_throughput: f64,
    /// The instance that knows what is cached. Default `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// The instance that predicts. Default `predicted-latency-producer`.
    latency_prediction_info_producer_name: String,
    /// The instance that counts what is in flight. Default `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum TtftSource {
    PrefillThroughput,
    LatencyPredictor,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            affinity_threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
            ttft_source: TtftSource::PrefillThroughput,
            peak_prefill_throughput: 15_928.0,
            prefix_match_info_producer_name: String::new(),
            latency_prediction_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
        }
    }
}

impl Config {
    fn needs_throughput(&self) -> bool {
        self.ttft_source == TtftSource::PrefillThroughput && self.max_ttft_penalty_ms > 0.0
    }

    fn mistakes(&self) -> Vec<NodeError> {
        let mut mistakes = Vec::new();
        let mut check = |is_right: bool, path: &str, expected: &str, found: f64| {
            if !is_right {
                let message = format!("expected {expected}, found {found}");
                mistakes.push(NodeError { place: None, path: path.into(), message });
            }
        };
        let at = self.affinity_threshold;
        check(at <= 1.0, "affinityThreshold", "a number of at most 1", at);
        let explores = self.exploration_probability;
        check((0.0..=1.0).contains(&explores), "explorationProbability", "a number from 0 to 1", explores);
        let penalty = self.max_ttft_penalty_ms;
        check(penalty >= 0.0, "maxTTFTPenaltyMs", "0 or more", penalty);
        let throughput = self.peak_prefill_throughput;
        check(throughput >= 0.0, "peakPrefillThroughput", "0 or more", throughput);
        let is_missing = self.needs_throughput() && throughput == 0.0;
        check(!is_missing, "peakPrefillThroughput", "a number above 0 for the estimate", throughput);
        mistakes
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mistakes = cfg.mistakes();
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let source = match cfg.ttft_source {
        TtftSource::PrefillThroughput if cfg.max_ttft_penalty_ms > 0.0 => Some(Source::PrefillThroughput {
            in_flight: cx.reads(&cfg.in_flight_load_producer_name),
            tokens_per_ms: cfg.peak_prefill_throughput / 1000.0,
        }),
        TtftSource::LatencyPredictor if cfg.max_ttft_penalty_ms > 0.0 => {
            Some(Source::LatencyPredictor(cx.reads(&cfg.latency_prediction_info_producer_name)))
        }
        TtftSource::PrefillThroughput | TtftSource::LatencyPredictor => None,
    };
    let filter = PrefixAffinity {
        threshold: cfg.affinity_threshold,
        exploration: Chance::new(cfg.exploration_probability, cx.name),
        most_penalty_ms: cfg.max_ttft_penalty_ms,
        source,
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
    };
    let remembers = cfg.exploration_probability > 0.0;
    Ok(Instance { filter: Some(Arc::new(filter)), remembers, ..Instance::default() })
}

struct PrefixAffinity {
    threshold: f64,
    exploration: Chance,
    most_penalty_ms: f64,
    /// `None`: the load does not matter.
    source: Option<Source>,
    matches: ColumnKey<PrefixMatch>,
}

/// Where the time to the first token comes from.
enum Source {
    PrefillThroughput { in_flight: ColumnKey<InFlight>, tokens_per_ms: f64 },
    LatencyPredictor(ColumnKey<LatencyPrediction>),
}

impl Source {
    /// The time to the first token of every row, in milliseconds; what is not predicted takes for ever.
    fn times<'a>(&self, columns: &'a Columns) -> impl Fn(usize) -> f64 + use<'a> {
        let (in_flight, predictions, tokens_per_ms) = match *self {
            Self::PrefillThroughput { in_flight, tokens_per_ms } => (columns.read(in_flight), None, tokens_per_ms),
            Self::LatencyPredictor(key) => (None, columns.read(key), 0.0),
        };
        let is_predicted = matches!(self, Self::LatencyPredictor(_));
        move |row| {
            if is_predicted {
                predictions.map(|p| &p[row]).filter(|p| p.is_there()).map_or(f64::MAX, |p| p.ttft)
            } else {
                in_flight.map_or(0.0, |counts| counts[row].tokens as f64 / tokens_per_ms)
            }
        }
    }
}

impl Filter for PrefixAffinity {
    fn filter(&self, _cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        if self.threshold <= 0.0 || keep.count() <= 1 || self.exploration.comes_up() {
            return;
        }
        let Some(matches) = columns.read(self.matches) else { return };
        let is_sticky = |row: usize| {
            let PrefixMatch { match_blocks, total_blocks, .. } = matches[row];
            total_blocks > 0 && f64::from(match_blocks) / f64::from(total_blocks) >= self.threshold
        };
        let n_sticky = keep.iter().filter(|idx| is_sticky(idx.row())).count();
        if n_sticky == 0 || n_sticky == keep.count() {
            return;
        }
        if let Some(source) = &self.source {
            let time = source.times(columns);
            let best = |sticky: bool| {
                let times = keep.iter().map(|idx| idx.row()).filter(|row| is_sticky(*row) == sticky).map(&time);
                times.fold(f64::MAX, f64::min)
            };
            if best(true) - best(false) > self.most_penalty_ms {
                return;
            }
        }
        keep.retain(|idx| is_sticky(idx.row()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept_with, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    /// Percent of the prompt that is cached, tokens in flight, predicted time to the first token.
    type Known = (u32, i64, Option<f64>);

    fn check(parameters: serde_json::Value, known: &[Known], expected: &[u32]) {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, parameters.clone()).filter.unwrap();
        let matches: Vec<_> = known
            .iter()
            .map(|&(match_blocks, ..)| PrefixMatch { match_blocks, total_blocks: 100, ..PrefixMatch::default() })
            .collect();
        let mut columns = rig.column("approx-prefix-cache-producer", &matches);
        let in_flight = columns.write(rig.slots.column::<InFlight>("inflight-load-producer"));
        in_flight.iter_mut().zip(known).for_each(|(cell, &(_, tokens, _))| cell.tokens = tokens);
        let predicted = columns.write(rig.slots.column::<LatencyPrediction>("predicted-latency-producer"));
        predicted.iter_mut().zip(known).for_each(|(cell, &(.., ttft))| cell.ttft = ttft.unwrap_or_default());
        let board = snapshot(1, vec![Row::default(); known.len()]);
        assert_eq!(kept_with(&*filter, &board, &columns), expected, "{parameters} {known:?}");
    }

    fn cached(percent: &[u32]) -> Vec<Known> {
        percent.iter().map(|&percent| (percent, 0, None)).collect()
    }

    #[test]
    fn keeps_those_that_know_the_prompt() {
        check(json!(null), &cached(&[90, 85, 10]), &[0, 1]);
        check(json!(null), &cached(&[80, 75]), &[0]);
        check(json!(null), &cached(&[10, 20, 50]), &[0, 1, 2]);
        check(json!({"affinityThreshold": 0.5}), &cached(&[10, 20, 50]), &[2]);
        check(json!({"affinityThreshold": 1}), &cached(&[95, 100]), &[1]);
    }

    #[test]
    fn keeps_all_where_it_is_off_or_explores() {
        for parameters in
            [json!({"affinityThreshold": 0}), json!({"affinityThreshold": -1}), json!({"explorationProbability": 1})]
        {
            check(parameters, &cached(&[90, 10]), &[0, 1]);
        }
    }

    #[test]
    fn lets_go_of_a_busy_endpoint() {
        let known = [(90, 500, None), (10, 50, None)];
        for (penalty, expected) in [(100, &[0, 1][..]), (449, &[0, 1]), (450, &[0]), (1000, &[0]), (0, &[0])] {
            check(json!({"peakPrefillThroughput": 1000, "maxTTFTPenaltyMs": penalty}), &known, expected);
        }
        check(json!({"maxTTFTPenaltyMs": 0, "peakPrefillThroughput": 0}), &[(90, 5000, None), (10, 0, None)], &[0]);
    }

    #[test]
    fn compares_predicted_latency() {
        let predictor = |penalty: i64| json!({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": penalty});
        check(predictor(5000), &[(90, 0, Some(100.0)), (85, 0, Some(120.0)), (10, 0, Some(50.0))], &[0, 1]);
        check(predictor(100), &[(90, 0, Some(500.0)), (10, 0, Some(50.0))], &[0, 1]);
        check(predictor(450), &[(90, 0, Some(500.0)), (10, 0, Some(50.0))], &[0]);
        check(predictor(100), &[(90, 0, None), (10, 0, None)], &[0]);
        check(predictor(100), &[(90, 0, Some(500.0)), (10, 0, None)], &[0]);
        check(predictor(100), &[(90, 0, None), (10, 0, Some(50.0))], &[0, 1]);
    }

    #[test]
    fn reads_only_what_its_estimate_needs() {
        for (parameters, expected) in [
            (json!(null), vec!["InFlightLoadDataKey/inflight-load-producer"]),
            (
                json!({"ttftSource": "latencyPredictor"}),
                vec!["LatencyPredictionInfoDataKey/predicted-latency-producer"],
            ),
            (json!({"maxTTFTPenaltyMs": 0}), vec![]),
        ] {
            let [reads, ..] = Rig::default().keys(&TYPE, parameters);
            let reads: Vec<_> = reads.iter().map(ToString::to_string).collect();
            let matches = "PrefixCacheMatchInfoDataKey/approx-prefix-cache-producer";
            assert_eq!(reads, [expected, vec![matches]].concat());
        }
    }

    #[test]
    fn refuses_numbers_out_of_range() {
        for (parameters, culprit) in [
            (json!({"affinityThreshold": 1.1}), "affinityThreshold"),
            (json!({"explorationProbability": 1.1}), "explorationProbability"),
            (json!({"explorationProbability": -0.1}), "explorationProbability"),
            (json!({"maxTTFTPenaltyMs": -1}), "maxTTFTPenaltyMs"),
            (json!({"peakPrefillThroughput": 0}), "peakPrefillThroughput"),
            (json!({"ttftSource": ""}), "ttftSource"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
