//! The families of a request: their names, labels and buckets, and the older names they also go by.

use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

use crate::telemetry::families::{Counters, Gauges, Histograms, histograms, put, put_deprecated};

/// The labels of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    /// The model that the client asked for.
    pub model_name: Arc<str>,
    /// The model that the engine is asked for.
    pub target_model_name: Arc<str>,
    pub fairness_id: Arc<str>,
    pub priority: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ErrorLabels {
    #[prometheus(flatten)]
    pub request: RequestLabels,
    pub error_code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StreamingLabels {
    #[prometheus(flatten)]
    pub request: RequestLabels,
    pub streaming: bool,
}

/// The labels of most families under their older names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OldLabels {
    pub model_name: Arc<str>,
    pub target_model_name: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OldTotalLabels {
    #[prometheus(flatten)]
    pub models: OldLabels,
    pub priority: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OldErrorLabels {
    #[prometheus(flatten)]
    pub models: OldLabels,
    pub error_code: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OldRunningLabels {
    pub model_name: Arc<str>,
}

/// A family of histograms and the same under its older name.
#[derive(Debug)]
pub(super) struct WithOld {
    pub new: Histograms<RequestLabels>,
    pub old: Histograms<OldLabels>,
}

impl WithOld {
    fn new(buckets: &'static [f64]) -> Self {
        Self { new: histograms(buckets), old: histograms(buckets) }
    }

    fn register(&self, registry: &mut MetricRegistry, name: &str, old: &str, help: &str) {
        put(registry, name, help, self.new.clone());
        put_deprecated(registry, &format!("inference_objective_{old}"), name, self.old.clone());
    }
}

/// Every family of a request.
#[derive(Debug)]
pub(super) struct RequestFamilies {
    pub total: Counters<RequestLabels>,
    pub total_old: Counters<OldTotalLabels>,
    pub errors: Counters<ErrorLabels>,
    pub errors_old: Counters<OldErrorLabels>,
    pub running: Gauges<RequestLabels>,
    pub running_old: Gauges<OldRunningLabels>,
    pub duration: WithOld,
    pub request_size: WithOld,
    pub response_size: WithOld,
    pub input_tokens: WithOld,
    pub output_tokens: WithOld,
    pub cached_tokens: WithOld,
    /// Time per output token, the time to the first one included.
    pub ntpot: WithOld,
    pub ttft: Histograms<StreamingLabels>,
    /// Time per output token after the first.
    pub tpot: Histograms<RequestLabels>,
    /// Time between two pieces of a response.
    pub itl: Histograms<RequestLabels>,
    pub request_processing: Histogram,
    pub response_processing: Histogram,
}

impl Default for RequestFamilies {
    fn default() -> Self {
        Self {
            total: Counters::default(),
            total_old: Counters::default(),
            errors: Counters::default(),
            errors_old: Counters::default(),
            running: Gauges::default(),
            running_old: Gauges::default(),
            duration: WithOld::new(&LATENCY),
            request_size: WithOld::new(&REQUEST_BYTES),
            response_size: WithOld::new(RESPONSE_BYTES),
            input_tokens: WithOld::new(INPUT_TOKENS),
            output_tokens: WithOld::new(OUTPUT_TOKENS),
            cached_tokens: WithOld::new(INPUT_TOKENS),
            ntpot: WithOld::new(NTPOT),
            ttft: histograms(LATENCY.split_at(UP_TO_TWO_MINUTES).0),
            tpot: histograms(TPOT),
            itl: histograms(ITL),
            request_processing: Histogram::new(REQUEST_PROCESSING.iter().copied()),
            response_processing: Histogram::new(RESPONSE_PROCESSING.iter().copied()),
        }
    }
}

impl MetricFamilies for RequestFamilies {
    fn register(&self, r: &mut MetricRegistry) {
        put(r, "request", "Requests that got an endpoint", self.total.clone());
        put_deprecated(r, "inference_objective_request", "request", self.total_old.clone());
        put(r, "request_error", "Requests that were refused or that the engine failed", self.errors.clone());
        put_deprecated(r, "inference_objective_request_error", "request_error", self.errors_old.clone());
        put(r, "request_running", "Requests sent on whose stream is open", self.running.clone());
        put_deprecated(r, "inference_objective_running_requests", "request_running", self.running_old.clone());
        for (family, name, old, help) in [
            (
                &self.duration,
                "request_duration_seconds",
                "request_duration_seconds",
                "From receipt to the end of the response",
            ),
            (&self.request_size, "request_size_bytes", "request_sizes", "Size of the request body as it is sent on"),
            (&self.response_size, "response_size_bytes", "response_sizes", "Size of the response body"),
            (&self.input_tokens, "request_input_tokens", "input_tokens", "Prompt tokens, as the engine reports them"),
            (
                &self.output_tokens,
                "request_output_tokens",
                "output_tokens",
                "Generated tokens, as the engine reports them",
            ),
            (
                &self.cached_tokens,
                "request_cached_tokens",
                "prompt_cached_tokens",
                "Prompt tokens that the engine had in its cache, as it reports them",
            ),
            (
                &self.ntpot,
                "request_ntpot_seconds",
                "normalized_time_per_output_token_seconds",
                "Duration of the request by generated token",
            ),
        ] {
            family.register(r, name, old, help);
        }
        put(r, "request_ttft_seconds", "From receipt to the first piece of the response body", self.ttft.clone());
        let help = "Time by generated token after the first, of streamed responses";
        put(r, "request_streaming_tpot_seconds", help, self.tpot.clone());
        put(r, "request_streaming_itl_seconds", "Time between two pieces of a streamed response", self.itl.clone());
        let help = "From receipt to the answer of the picker, refusals and waiting included";
        put(r, "request_processing_duration_seconds", help, self.request_processing.clone());
        let help = "Time that the picker spent on a response";
        put(r, "response_processing_duration_seconds", help, self.response_processing.clone());
    }
}

static LATENCY: [f64; 35] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// How many bounds of [`LATENCY`] the time to the first token uses.
const UP_TO_TWO_MINUTES: usize = 24;

/// Powers of two from 64 to 2^30.
static REQUEST_BYTES: [f64; 25] = {
    let mut bounds = [64.0; 25];
    let mut i = 1;
    while i < bounds.len() {
        bounds[i] = bounds[i - 1] * 2.0;
        i += 1;
    }
    bounds
};

/// The 32778 is no power of two, but dashboards know it.
static SIZES: [f64; 19] = [
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32778.0, 65536.0,
    131072.0, 262144.0, 524288.0, 1048576.0,
];

static INPUT_TOKENS: &[f64] = &SIZES;
static RESPONSE_BYTES: &[f64] = SIZES.split_at(15).0;
static OUTPUT_TOKENS: &[f64] = SIZES.split_at(12).0;

static NTPOT: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];

static TPOT: &[f64] =
    &[0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 2.0];

static ITL: &[f64] = &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0];

static REQUEST_PROCESSING: &[f64] =
    &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

static RESPONSE_PROCESSING: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_longer_lists_end_where_they_should() {
        for (bounds, last) in [
            (&LATENCY[..UP_TO_TWO_MINUTES], 120.0),
            (&REQUEST_BYTES, 1_073_741_824.0),
            (RESPONSE_BYTES, 65_536.0),
            (OUTPUT_TOKENS, 8192.0),
        ] {
            assert_eq!(bounds.last(), Some(&last));
        }
    }
}
