//! One request on its way: what it really took, which is shown and taught when it is complete.

use std::sync::Arc;

use epp_plugin_api::{Held, Parting, ResponseEnd};
use tokio::time::Instant;

use super::Teaching;
use super::metrics::{Ended, Latency, Series};
use super::running::Joined;
use super::wire::{self, Features, Sample};
use crate::attributes::LatencyPrediction;
use crate::slo::Objectives;

/// Watches what a request really takes.
pub struct Observing {
    pub teaching: Arc<Teaching>,
    pub series: Arc<Series>,
    pub streaming: bool,
    pub objectives: Objectives,
    pub received: Instant,
    /// Where the first token is computed.
    pub first: Stage,
    /// Where the others are.
    pub rest: Stage,
    pub _joined: Option<Joined>,
    pub first_chunk: Option<Instant>,
    pub chunks: u64,
}

/// An endpoint as it stood at the pick.
pub struct Stage {
    pub features: Features,
    pub predicted: Option<LatencyPrediction>,
}

/// What a response tells of itself, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Times {
    ttft: Option<f64>,
    /// With the number of tokens.
    tpot: Option<(f64, u64)>,
}

impl Observing {
    fn times(&self, end: &ResponseEnd) -> Times {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        if !self.streaming {
            return Times { ttft: Some(ms(self.received, end.now)), tpot: None };
        }
        // An answer that came in one piece does not tell its first token from the others.
        let Some(first) = self.first_chunk.filter(|at| *at < end.now) else { return Times::default() };
        let tokens = end.usage.completion.unwrap_or(self.chunks);
        let tpot = (tokens > 1).then(|| (ms(first, end.now) / (tokens - 1) as f64, tokens));
        Times { ttft: Some(ms(self.received, first)), tpot }
    }

    fn show(&self, times: Times) {
        if let Some(actual) = times.ttft {
            let predicted = self.first.predicted.map(|of| of.ttft);
            self.series.ended(Latency::Ttft, Ended { actual, predicted, objective: self.objectives.ttft });
        }
        if let Some((actual, _)) = times.tpot {
            let predicted = self.rest.predicted.map(|of| of.tpot);
            self.series.ended(Latency::Tpot, Ended { actual, predicted, objective: self.objectives.tpot });
        }
    }

    fn samples(&self, times: Times) -> Vec<Sample> {
        let first = times.ttft.map(|actual_ttft_ms| Sample {
            features: self.first.features.clone(),
            actual_ttft_ms,
            actual_tpot_ms: 0.0,
        });
        let rest = times.tpot.map(|(actual_tpot_ms, tokens)| Sample {
            features: Features { num_tokens_generated: tokens, ..self.rest.features.clone() },
            actual_ttft_ms: 0.0,
            actual_tpot_ms,
        });
        first.into_iter().chain(rest).collect()
    }
}

impl Held for Observing {
    fn response_chunk(&mut self, now: Instant) {
        self.first_chunk.get_or_insert(now);
        self.chunks += 1;
    }

    fn response_ended(&mut self, end: &ResponseEnd) -> Parting {
        let times = self.times(end);
        self.show(times);
        let Teaching { services, lessons } = &*self.teaching;
        let lesson = lessons.add(self.samples(times), end.now);
        let teach = || wire::teach(&services.training, &lesson, services.timeout);
        let calls = if lesson.is_empty() { Vec::new() } else { teach().into_iter().collect() };
        Parting { calls, ..Parting::default() }
    }
}
