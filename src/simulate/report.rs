//! What a simulation came to, as JSON; `epp schema --report` describes it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calibration::Calibration;
use super::schedule::Change;

/// A whole report. Times are in seconds and token counts in tokens. Equal input gives equal bytes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// What was simulated.
    pub setup: Setup,
    /// One for each way of choosing, in the order in which they were asked for.
    pub arms: Vec<ArmReport>,
}

/// What was simulated.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// The name of the trace, or the parameters of the rollouts.
    pub traffic: String,
    pub requests: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub endpoints: u64,
    /// How fast the engines are, in turns; 1 is as calibrated.
    pub speeds: Vec<f64>,
    pub seed: u64,
    /// How many times as fast as recorded requests came.
    pub rate_scale: f64,
    /// How often each engine was asked for its load, and after how long the picker knew.
    pub scrape_interval_seconds: f64,
    pub scrape_delay_seconds: f64,
    /// After how long the picker knew what an engine said of its cache.
    pub event_delay_seconds: f64,
    /// Endpoints that were there for prefill only, the first ones; 0: each was for both.
    pub prefill_endpoints: u64,
    /// What happened to engines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    pub engine: Calibration,
}

/// What one way of choosing came to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmReport {
    pub name: String,
    /// Requests that were sent, whatever became of them.
    pub requests: u64,
    /// Requests that were answered to the end.
    pub completed: u64,
    /// Requests that were not, by the reason.
    pub failures: BTreeMap<String, u64>,
    /// Prompt and output tokens of those that were answered.
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Prompt tokens that engines had in their caches.
    pub reused_tokens: u64,
    /// Prompt tokens that one cache for all, which forgets nothing but for new weights, would have had.
    pub reusable_tokens: u64,
    /// Reused by reusable tokens; 1 if nothing was reusable.
    pub reuse_share: f64,
    /// The largest mean of requests in flight of an endpoint by the mean over all of them; 1 is even.
    pub inflight_max_over_mean: f64,
    /// The same at each moment: the mean over time of the largest count by the mean count. It is large where little is in
    /// flight, whoever chooses.
    pub inflight_momentary_max_over_mean: f64,
    /// From the first arrival to the last end.
    pub makespan_seconds: f64,
    /// From the arrival to the first token.
    pub ttft_seconds: Spread,
    /// Between two tokens of an answer, on average.
    pub tpot_seconds: Spread,
    /// From the arrival to the last token.
    pub e2e_seconds: Spread,
    /// From the arrival at the picker to a place in the batch of the engine.
    pub wait_seconds: Spread,
    /// Requests that an engine put back for want of blocks, as often as it did.
    pub preemptions: u64,
    /// Requests that were lost with their engine and picked for once more.
    pub retries: u64,
    /// Requests whose prompt was computed by another engine than the one that answered.
    pub prefilled_elsewhere: u64,
    /// What of the arm's config was not played.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How many requests each endpoint was given.
    pub picks_per_endpoint: Vec<u64>,
    pub histograms: Histograms,
    pub series: Series,
    /// What matters to rollouts, if these were some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollouts: Option<RolloutReport>,
}

/// How values are spread; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

/// How many values were at most each bound and above the one before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    pub bounds: Vec<f64>,
    pub counts: Vec<u64>,
}

/// Times of requests, in seconds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Histograms {
    pub ttft: Histogram,
    pub tpot: Histogram,
    pub e2e: Histogram,
}

/// Means over stretches of time, from the beginning on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// How long each stretch is.
    pub seconds_each: f64,
    /// Requests in flight by endpoint; empty if there are more than 64 of them.
    pub in_flight_per_endpoint: Vec<Vec<f64>>,
    /// Requests in flight of an endpoint: the mean and the largest of all.
    pub in_flight_mean: Vec<f64>,
    pub in_flight_max: Vec<f64>,
    /// Requests that wait in engines, all together.
    pub waiting: Vec<f64>,
    /// Share of the KV caches in use.
    pub kv_usage: Vec<f64>,
}

/// Rollouts and their steps.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutReport {
    /// Groups of which every request went to one endpoint, by all groups.
    pub colocated_groups: f64,
    /// Mean over the steps of how much longer the last trajectory took than the median one.
    pub straggler_ratio: f64,
    /// Mean over the steps of the part of it that was left when nine in ten trajectories were over.
    pub tail_share: f64,
    /// Mean over the steps and endpoints of the part of a step in which an endpoint had nothing to do any more.
    pub idle_share: f64,
    pub steps: Vec<StepReport>,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    pub began_seconds: f64,
    pub makespan_seconds: f64,
    /// How long trajectories took.
    pub trajectory_seconds: Spread,
    /// When each endpoint was done, since the step began; empty if there are more than 64 of them.
    pub endpoint_done_seconds: Vec<f64>,
}

/// The JSON Schema of a report.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Report).to_value();
    schema["title"] = "Report of epp simulate".into();
    schema
}

impl Report {
    /// Reads what [`json`](Self::json) gives.
    ///
    /// # Errors
    /// If it is none, with the place and what was expected there.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// As it is written to a file.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a report has text as keys");
        text.push('\n');
        text
    }
}

/// Cuts what cannot be measured off, so that reports are short.
pub(super) fn rounded(value: f64) -> f64 {
    if value.is_finite() { (value * 1e6).round() / 1e6 } else { 0.0 }
}
