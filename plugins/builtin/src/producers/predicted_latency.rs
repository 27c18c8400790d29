//! `predicted-latency-producer`: how long each endpoint will take for the request, by a service that learns from answers.
//!
//! The service is told the load of every candidate and answers with the time to the first token and per output token.
//! A prediction is valid if it is below the request's objective, from the headers `x-llm-d-slo-ttft-ms` and
//! `x-llm-d-slo-tpot-ms`, or if there is none; the objective per output token counts times `sloBufferFactor`, and that of
//! the strictest request running on an endpoint binds there. Without streaming, and on endpoints of the role `prefill`,
//! the time per output token is not judged. Candidates beyond the first 100 are asked for in further calls, all at once;
//! if one of them fails, nothing is predicted.
//!
//! What answers really took is taught to the training service, which needs response bodies: the first answer at once,
//! and then those of a second together, with the next one that is complete; what is more than
//! `LATENCY_MAX_SAMPLE_SIZE` (1000) of them is thinned out. Once a minute a request also asks a prediction service how it
//! is, beside its predictions and for as long as those may take; `/debug/plugins/state` shows the answer.
//!
//! The environment says where the services are: `PREDICTION_SERVER_URL`, a list by commas, and `TRAINING_SERVER_URL`; and
//! how they are asked: `LATENCY_HTTP_TIMEOUT_SEC` (10; a prediction is waited for 0.4 s at most),
//! `LATENCY_MAX_BULK_SIZE` (100), `LATENCY_FLUSH_INTERVAL_SEC` (1), `LATENCY_METRICS_INTERVAL_SEC` (60). Reads the value
//! `TokenizedPrompt` and the columns `PrefixCacheMatchInfoDataKey` and `InFlightLoadDataKey`; writes the column
//! `LatencyPredictionInfoDataKey`. Costs a call to a service for each 100 candidates. A reload that changes it forgets
//! what waits to be taught.
//!
//! ```yaml
//! - type: predicted-latency-producer
//!   parameters:
//!     sloBufferFactor: 1.0      # above 0
//!     streamingMode: false
//!     endpointRoleLabel: ""     # the label that the service is told as the type of an endpoint
//!     predictInProduce: true    # false: only trains
//! ```

mod lessons;
mod metrics;
mod observing;
mod running;
mod services;
mod status;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use epp_plugin_api::{
    Answers, BuildContext, BuildError, Call, Candidates, ColumnKey, Columns, Cycle, EndpointIdx, Held, Instance, Kind,
    Picked, PluginType, Producer, Question, Remote, RequestKey, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use self::lessons::Lessons;
use self::metrics::LatencyMetrics;
use self::observing::{Observing, Stage};
use self::running::Running;
use self::services::Services;
use self::status::Status;
use self::wire::{Features, Prediction};
use crate::attributes::{EncoderMatch, InFlight, LatencyPrediction, PrefixMatch, TokenizedPrompt};
use crate::slo::Objectives;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "predicted-latency-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "predicted-latency-producer",
    summary: "Predicts how long each endpoint will take, by a service that learns from answers.",
    schema: Some(crate::schema::of::<Config>),
    build: |cx| build(cx, Services::of(|name| std::env::var(name).ok())),
};

/// The role of an endpoint that computes first tokens only.
const PREFILL: &str = "prefill";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The objective per output token counts times this. Above 0. Default 1.
    #[schemars(extend("exclusiveMinimum" = 0))]
    slo_buffer_factor: f64,
    /// Not used any more: what is kept of a request goes with it.
    #[serde(rename = "contextTTL")]
    _context_ttl: Option<u64>,
    /// Whether answers are streamed, so that their first token can be told from the rest. Default false.
    streaming_mode: bool,
    /// The label whose value the service is told as the type of an endpoint. Default: none.
    endpoint_role_label: String,
    /// Whether predictions are asked for; else the service only learns. Default true.
    predict_in_produce: bool,
    /// The instance that knows what is cached. Default: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// The instance that counts. Default: `inflight-load-producer`.
    in_flight_load_producer_name: String,
    /// The instance that knows what encoders have cached. Default: `mm-embeddings-cache-producer`.
    encoder_cache_match_info_producer_name: String,
    /// Whether the service is told what encoders have cached. Default false.
    use_encoder_cache_features: bool,
    /// Not used any more.
    #[serde(rename = "samplingMean")]
    _sampling_mean: f64,
    /// Not used any more.
    #[serde(rename = "maxDecodeTokenSamplesForPrediction")]
    _max_decode_token_samples: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            slo_buffer_factor: 1.0,
            _context_ttl: None,
            streaming_mode: false,
            endpoint_role_label: String::new(),
            predict_in_produce: true,
            prefix_match_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
            encoder_cache_match_info_producer_name: String::new(),
            use_encoder_cache_features: false,
            _sampling_mean: 1000.0,
            _max_decode_token_samples: 0,
        }
    }
}

fn build(cx: &mut BuildContext<'_>, services: Services) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if !(cfg.slo_buffer_factor > 0.0 && cfg.slo_buffer_factor.is_finite()) {
        let message = format!("expected a number above 0, found {}", cfg.slo_buffer_factor);
        return Err(BuildError::at("sloBufferFactor", message));
    }
    let encoder = cfg.use_encoder_cache_features;
    let teaching = Teaching { lessons: Lessons::new(services.teach_every, services.most_samples), services };
    let producer = Arc::new(PredictedLatency {
        buffer: cfg.slo_buffer_factor,
        streaming: cfg.streaming_mode,
        role_label: cfg.endpoint_role_label,
        predicts: cfg.predict_in_produce,
        prompt: cx.reads_request(""),
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
        in_flight: cx.reads(&cfg.in_flight_load_producer_name),
        encoder: encoder.then(|| cx.reads(&cfg.encoder_cache_match_info_producer_name)),
        predictions: cx.writes(),
        running: Running::default(),
        status: Status::default(),
        metrics: LatencyMetrics::new(cx.metrics, cx.name, TYPE.reported),
        teaching: Arc::new(teaching),
    });
    let shown = producer.clone();
    Ok(Instance {
        producer: Some(producer.clone()),
        remote: Some(producer),
        state: Some(Arc::new(move || shown.status.shown())),
        ..Instance::default()
    })
}

struct PredictedLatency {
    buffer: f64,
    streaming: bool,
    role_label: String,
    predicts: bool,
    prompt: RequestKey<TokenizedPrompt>,
    matches: ColumnKey<PrefixMatch>,
    in_flight: ColumnKey<InFlight>,
    encoder: Option<ColumnKey<EncoderMatch>>,
    predictions: ColumnKey<LatencyPrediction>,
    running: Running,
    status: Status,
    metrics: LatencyMetrics,
    teaching: Arc<Teaching>,
}

/// The services, and what waits to be taught to one of them.
struct Teaching {
    services: Services,
    lessons: Lessons,
}

impl PredictedLatency {
    fn features(&self, cx: &Cycle<'_>, columns: &Columns, idx: EndpointIdx) -> Features {
        let (row, meta) = (idx.row(), cx.snapshot.meta(idx));
        let known = columns.read(self.matches).map(|matches| matches[row]).unwrap_or_default();
        let in_flight = columns.read(self.in_flight).map(|counts| counts[row]);
        let encoder = self.encoder.and_then(|key| columns.read(key)).map(|seen| seen[row]).unwrap_or_default();
        let tokens = in_flight.map_or(0, |counts| whole(counts.tokens as f64));
        let running = in_flight.map_or(cx.load.running[row], |counts| counts.requests as f64);
        // What an endpoint that only decodes has in flight is decoded; what any other has is yet to be computed.
        let decodes = meta.role.decode && !meta.role.prefill && meta.label(epp_plugin_api::Role::LABEL).is_some();
        Features {
            kv_cache_percentage: share(cx.load.kv_usage[row]),
            input_token_length: columns.read_request(self.prompt).map_or(0, |prompt| prompt.tokens() as u64),
            num_request_waiting: whole(cx.load.waiting[row]),
            num_request_running: whole(running),
            num_tokens_generated: 1,
            prefix_cache_score: share(f64::from(known.match_blocks) / f64::from(known.total_blocks)),
            encoder_input_size: u64::from(encoder.requested),
            encoder_matched_size: u64::from(encoder.matched.min(encoder.requested)),
            pod_type: meta.label(&self.role_label).unwrap_or_default().to_owned(),
            prefill_tokens_in_flight: if decodes { 0 } else { tokens },
            decode_tokens_in_flight: if decodes { tokens } else { 0 },
        }
    }

    fn judged(&self, cx: &Cycle<'_>, columns: &Columns, idx: EndpointIdx, said: Prediction) -> LatencyPrediction {
        let objectives = Objectives::of(&cx.request.headers);
        let Prediction { ttft_ms: ttft, tpot_ms: tpot } = said;
        let own = objectives.tpot * self.buffer;
        let bound = self.running.strictest(cx.snapshot.id(idx)).map(|strictest| strictest * self.buffer);
        let threshold = bound.map_or(own, |bound| own.min(bound));
        let judges_tpot = self.streaming && cx.snapshot.meta(idx).label(&self.role_label) != Some(PREFILL);
        let dispatched = columns.read(self.in_flight).map_or(0, |counts| counts[idx.row()].requests);
        LatencyPrediction {
            ttft_valid: objectives.ttft == 0.0 || ttft < objectives.ttft,
            tpot_valid: !judges_tpot || objectives.tpot == 0.0 || tpot < threshold,
            ttft_headroom: objectives.ttft - ttft,
            tpot_headroom: if judges_tpot { threshold - tpot } else { 0.0 },
            ttft,
            tpot,
            dispatched: u64::try_from(dispatched).unwrap_or(0),
        }
    }
}

fn share(value: f64) -> f64 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}

fn whole(value: f64) -> u64 {
    // A cast of what is below 0 or no number gives 0.
    value as u64
}

impl Remote for PredictedLatency {
    fn ask(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates) -> Vec<Question> {
        let services = &self.teaching.services;
        if !self.predicts || among.is_empty() {
            return Vec::new();
        }
        let rows: Vec<Features> = among.iter().map(|idx| self.features(cx, columns, idx)).collect();
        let predict = |rows| wire::ask(services.prediction()?, rows, services.wait);
        let mut calls: Vec<Call> = rows.chunks(services.most_rows).filter_map(predict).collect();
        if !calls.is_empty() && self.status.is_due(cx.now, services.status_every) {
            calls.extend(services.prediction().map(|base| wire::ask_status(base, services.wait)));
        }
        calls.into_iter().map(Question::Call).collect()
    }

    fn answered(
        &self,
        cx: &Cycle<'_>,
        columns: &mut Columns,
        among: &Candidates,
        answers: Answers<'_>,
    ) -> Result<(), String> {
        let most = self.teaching.services.most_rows;
        let (predicted, status) = answers.bodies.split_at(among.count().div_ceil(most).min(answers.bodies.len()));
        status.iter().for_each(|answer| self.status.heard(answer));
        let (mut said, mut wanted) = (Vec::with_capacity(among.count()), among.count());
        for answer in predicted {
            let chunk = wanted.min(most);
            said.extend(wire::answered(answer.clone()?, chunk)?);
            wanted -= chunk;
        }
        let judged: Vec<_> =
            among.iter().zip(said).map(|(idx, said)| (idx, self.judged(cx, columns, idx, said))).collect();
        let column = columns.write(self.predictions);
        judged.into_iter().for_each(|(idx, prediction)| column[idx.row()] = prediction);
        self.metrics.of(cx.request).predicted(answers.took);
        Ok(())
    }
}

impl Producer for PredictedLatency {
    fn picked(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        let target = picked.target()?;
        let objectives = Objectives::of(&cx.request.headers);
        let prefill = picked.prefill();
        let predictions = columns.read(self.predictions);
        let stage = |idx: EndpointIdx| Stage {
            features: self.features(cx, columns, idx),
            predicted: predictions.map(|predictions| predictions[idx.row()]),
        };
        Some(Box::new(Observing {
            teaching: self.teaching.clone(),
            series: self.metrics.of(cx.request),
            streaming: self.streaming,
            objectives,
            received: cx.now,
            first: stage(prefill.unwrap_or(target)),
            rest: stage(target),
            _joined: self.running.join(cx.snapshot.id(target), objectives.tpot),
            first_chunk: None,
            chunks: 0,
        }))
    }
}
