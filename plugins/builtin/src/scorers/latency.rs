//! `latency-scorer`: prefers endpoints by how far their predicted latencies keep below the objectives.
//!
//! Only one group of candidates scores, the others get 0: those that keep both objectives, or of which nothing is
//! predicted; if there are none, those with nothing in flight; if there are none, those that miss only the time per
//! output token, else only the time to first token, else both. Within the group T and P are the distances to the two
//! objectives, scaled to 0 to 1 over the group (0.5 where all are equal); c = `ttftWeight` * T + `tpotWeight` * P, with
//! weights that add up to 1, and all weight on one of them where the other is equal for all. Score = 1 - c with the
//! strategy `least`, c with `most`, down to hundredths and one hundredth up; `least` always where an objective is missed.
//! So the least distance that suffices wins, and the smallest miss.
//!
//! Without any prediction the score is the weighted mean of free KV cache, (max - v) / max of waiting requests, and the
//! share of the prompt that is cached, in hundredths. Reads the columns `LatencyPredictionInfoDataKey` and
//! `PrefixCacheMatchInfoDataKey`. Costs a few passes over the first.
//!
//! ```yaml
//! - type: latency-scorer
//!   parameters:
//!     ttftWeight: 0.8
//!     tpotWeight: 0.2
//!     headroomSelectionStrategy: least   # or most
//!     compositeKVWeight: 1
//!     compositeQueueWeight: 1
//!     compositePrefixWeight: 1
//!     latencyPredictionInfoProducerName: ""   # default: predicted-latency-producer
//!     prefixMatchInfoProducerName: ""         # default: approx-prefix-cache-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::{LatencyPrediction, PrefixMatch};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "latency-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "latency-scorer",
    summary: "Prefers endpoints by how far their predicted latencies keep below the objectives.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How much the time to first token counts. Default 0.8.
    ttft_weight: f64,
    /// How much the time per output token counts. Default 0.2.
    tpot_weight: f64,
    /// `most`: the more headroom the better; anything else: the less. Default `least`.
    headroom_selection_strategy: String,
    /// How much free KV cache counts without predictions. Default 1.
    #[serde(rename = "compositeKVWeight")]
    composite_kv_weight: f64,
    /// How much a short queue counts without predictions. Default 1.
    composite_queue_weight: f64,
    /// How much a cached prompt counts without predictions. Default 1.
    composite_prefix_weight: f64,
    /// The instance that predicts. Default `predicted-latency-producer`.
    latency_prediction_info_producer_name: String,
    /// The instance that knows what is cached. Default `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            headroom_selection_strategy: "least".into(),
            composite_kv_weight: 1.0,
            composite_queue_weight: 1.0,
            composite_prefix_weight: 1.0,
            latency_prediction_info_producer_name: String::new(),
            prefix_match_info_producer_name: String::new(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let (kv, queue, prefix) = (cfg.composite_kv_weight, cfg.composite_queue_weight, cfg.composite_prefix_weight);
    let sum = kv + queue + prefix;
    let scorer = Latency {
        weights: normalized(cfg.ttft_weight, cfg.tpot_weight),
        strategy: if cfg.headroom_selection_strategy == "most" { Strategy::Most } else { Strategy::Least },
        composite: if sum > 0.0 { [kv / sum, queue / sum, prefix / sum] } else { [1.0, 0.0, 0.0] },
        predictions: cx.reads(&cfg.latency_prediction_info_producer_name),
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
    };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

fn normalized(ttft: f64, tpot: f64) -> (f64, f64) {
    let sum = ttft + tpot;
    if sum > 0.0 { (ttft / sum, tpot / sum) } else { (1.0, 0.0) }
}

struct Latency {
    weights: (f64, f64),
    strategy: Strategy,
    /// For free KV cache, queue and prefix.
    composite: [f64; 3],
    predictions: ColumnKey<LatencyPrediction>,
    matches: ColumnKey<PrefixMatch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Least,
    Most,
}

/// What an endpoint is predicted to do, the best first; only the best group that has endpoints scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Keeps both objectives, or nothing is known.
    Keeps,
    /// Misses an objective, but has nothing in flight.
    Idle,
    MissesTpot,
    MissesTtft,
    MissesBoth,
}

impl Group {
    fn of(prediction: &LatencyPrediction) -> Self {
        match (prediction.ttft_headroom < 0.0, prediction.tpot_headroom < 0.0) {
            (false, false) => Self::Keeps,
            _ if prediction.dispatched == 0 => Self::Idle,
            (false, true) => Self::MissesTpot,
            (true, false) => Self::MissesTtft,
            (true, true) => Self::MissesBoth,
        }
    }
}

/// The least and the most of some distances.
#[derive(Clone, Copy, Debug)]
struct Span {
    least: f64,
    most: f64,
}

/// Below this all distances count as equal.
const EPSILON: f64 = 1e-9;

impl Span {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let none = Self { least: f64::INFINITY, most: f64::NEG_INFINITY };
        values.fold(none, |span, v| Self { least: span.least.min(v), most: span.most.max(v) })
    }

    fn is_wide(self) -> bool {
        self.most - self.least > EPSILON
    }

    fn scale(self, value: f64) -> f64 {
        if self.is_wide() { (value - self.least) / (self.most - self.least) } else { 0.5 }
    }
}

impl Latency {
    fn score_predicted(&self, predictions: &[LatencyPrediction], among: &Candidates, scores: &mut [f64]) {
        let group_of = |row: usize| Group::of(&predictions[row]);
        let Some(best) = among.iter().map(|idx| group_of(idx.row())).min() else { return };
        let group = || among.iter().map(|idx| idx.row()).filter(|row| group_of(*row) == best);
        let ttft = |row: usize| predictions[row].ttft_headroom.abs();
        let tpot = |row: usize| predictions[row].tpot_headroom.abs();
        let (ttft_span, tpot_span) = (Span::of(group().map(ttft)), Span::of(group().map(tpot)));
        let (alpha, beta) = match (ttft_span.is_wide(), tpot_span.is_wide()) {
            (false, true) => (0.0, 1.0),
            (true, false) => (1.0, 0.0),
            (true, true) | (false, false) => self.weights,
        };
        let strategy = if best == Group::Keeps { self.strategy } else { Strategy::Least };
        for row in group() {
            let c = alpha * ttft_span.scale(ttft(row)) + beta * tpot_span.scale(tpot(row));
            let share = match strategy {
                Strategy::Least => 1.0 - c,
                Strategy::Most => c,
            };
            scores[row] = (((share * 100.0).trunc() + 1.0) / 100.0).clamp(0.0, 1.0);
        }
    }

    fn score_composite(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let matches = columns.read(self.matches);
        let waiting = cx.load.waiting;
        let most = among.iter().map(|idx| waiting[idx.row()]).fold(0.0, f64::max);
        let [kv, queue, prefix] = self.composite;
        super::fill(among, scores, |row| {
            let free = 1.0 - cx.load.kv_usage[row];
            let shortness = if most > 0.0 { (most - waiting[row]) / most } else { 1.0 };
            let known = matches.map(|matches| matches[row]).filter(|known| known.total_blocks > 0);
            let cached = known.map_or(0.0, |known| f64::from(known.match_blocks) / f64::from(known.total_blocks));
            let score = kv * free + queue * shortness + prefix * cached;
            ((100.0 * score).round() / 100.0).clamp(0.0, 1.0)
        });
    }
}

impl Scorer for Latency {
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        match columns.read(self.predictions) {
            Some(predictions) if among.iter().any(|idx| predictions[idx.row()].is_there()) => {
                self.score_predicted(predictions, among, scores);
            }
            Some(_) | None => self.score_composite(cx, columns, among, scores),
        }
    }
}

#[cfg(test)]
#[path = "latency_tests.rs"]
mod tests;
