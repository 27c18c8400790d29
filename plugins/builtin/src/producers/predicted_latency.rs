//! `predicted-latency-producer`: how long each endpoint will take for the request, by a service that learns from answers.
//!
//! The service is told the load of every candidate and answers with the time to the first token and per output token.
//! A prediction is valid if it is below the request's objective, from the headers `x-llm-d-slo-ttft-ms` and
//! `x-llm-d-slo-tpot-ms`, or if there is none; the objective per output token counts times `sloBufferFactor`, and that of
//! the strictest request running on an endpoint binds there. Without streaming, and on endpoints of the role `prefill`,
//! the time per output token is not judged. Without an answer, or with more candidates than the service takes, nothing
//! is predicted. What answers really took is sent to the training service when they are complete; that needs response
//! bodies. The environment says where the services are: `PREDICTION_SERVER_URL`, a list by commas, and
//! `TRAINING_SERVER_URL`. Reads the value `TokenizedPrompt` and the columns `PrefixCacheMatchInfoDataKey` and
//! `InFlightLoadDataKey`; writes the column `LatencyPredictionInfoDataKey`. Costs a call to a service.
//!
//! ```yaml
//! - type: predicted-latency-producer
//!   parameters:
//!     sloBufferFactor: 1.0      # above 0
//!     streamingMode: false
//!     endpointRoleLabel: ""     # the label that the service is told as the type of an endpoint
//!     predictInProduce: true    # false: only trains
//! ```

mod running;
mod services;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, EndpointIdx, Held, Instance, Kind, Parting,
    Picked, PluginType, Producer, Question, Remote, RequestKey, ResponseEnd, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::running::{Joined, Running};
use self::services::Services;
use self::wire::{Features, Prediction, Sample};
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

/// The profile whose endpoint computes the first token.
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
        services: Arc::new(services),
    });
    Ok(Instance { producer: Some(producer.clone()), remote: Some(producer), ..Instance::default() })
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
    services: Arc<Services>,
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
    fn ask(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates) -> Option<Question> {
        if !self.predicts || among.is_empty() || among.count() > self.services.most_rows {
            return None;
        }
        let rows: Vec<Features> = among.iter().map(|idx| self.features(cx, columns, idx)).collect();
        wire::ask(self.services.prediction()?, &rows, self.services.wait).map(Question::Call)
    }

    fn answered(
        &self,
        cx: &Cycle<'_>,
        columns: &mut Columns,
        among: &Candidates,
        answer: Result<&[u8], String>,
    ) -> Result<(), String> {
        let said = wire::answered(answer?, among.count())?;
        let judged: Vec<_> =
            among.iter().zip(said).map(|(idx, said)| (idx, self.judged(cx, columns, idx, said))).collect();
        let column = columns.write(self.predictions);
        judged.into_iter().for_each(|(idx, prediction)| column[idx.row()] = prediction);
        Ok(())
    }
}

impl Producer for PredictedLatency {
    fn picked(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        let target = picked.target()?;
        let objective = Objectives::of(&cx.request.headers).tpot;
        let prefill = picked.firsts().find(|(profile, _)| *profile == PREFILL).map(|(_, idx)| idx);
        Some(Box::new(Observing {
            services: self.services.clone(),
            streaming: self.streaming,
            received: cx.now,
            first: self.features(cx, columns, prefill.unwrap_or(target)),
            rest: self.features(cx, columns, target),
            _joined: self.running.join(cx.snapshot.id(target), objective),
            first_chunk: None,
            chunks: 0,
        }))
    }
}

/// Watches what a request really takes.
struct Observing {
    services: Arc<Services>,
    streaming: bool,
    received: Instant,
    /// The endpoint that computes the first token, as it stood at the pick.
    first: Features,
    /// The one that computes the others.
    rest: Features,
    _joined: Option<Joined>,
    first_chunk: Option<Instant>,
    chunks: u64,
}

impl Observing {
    fn samples(&self, end: &ResponseEnd) -> Vec<Sample> {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        let sample = |features: &Features, actual_ttft_ms, actual_tpot_ms| Sample {
            features: features.clone(),
            actual_ttft_ms,
            actual_tpot_ms,
        };
        if !self.streaming {
            return vec![sample(&self.first, ms(self.received, end.now), 0.0)];
        }
        // An answer that came in one piece does not tell its first token from the others.
        let Some(first) = self.first_chunk.filter(|at| *at < end.now) else { return Vec::new() };
        let mut samples = vec![sample(&self.first, ms(self.received, first), 0.0)];
        let tokens = end.usage.completion.unwrap_or(self.chunks);
        if tokens > 1 {
            let rest = Features { num_tokens_generated: tokens, ..self.rest.clone() };
            samples.push(sample(&rest, 0.0, ms(first, end.now) / (tokens - 1) as f64));
        }
        samples
    }
}

impl Held for Observing {
    fn response_chunk(&mut self, now: Instant) {
        self.first_chunk.get_or_insert(now);
        self.chunks += 1;
    }

    fn response_ended(&mut self, end: &ResponseEnd) -> Parting {
        let samples = self.samples(end);
        let teach = || wire::teach(&self.services.training, &samples, self.services.timeout);
        let calls = if samples.is_empty() { Vec::new() } else { teach().into_iter().collect() };
        Parting { calls, ..Parting::default() }
    }
}
