//! Adds up what an engine did since its start.

use std::time::Duration;

use super::histogram::Histogram;
use crate::model::{Event, Happening, Report};

const TOKENS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0];
const STEP_TOKENS: &[f64] = &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const CHOICES: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const NEXT_TOKEN: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const LATENCY: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// Counters and histograms of one engine. Times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Prompt tokens of the requests that got a seat.
    pub(super) prompt_tokens: u64,
    /// Those of them that were in the prefix cache.
    pub(super) cached_tokens: u64,
    pub(super) generated_tokens: u64,
    pub(super) preemptions: u64,
    pub(super) finished: u64,
    pub(super) aborted: u64,
    /// Requests refused because too many waited.
    pub(crate) refused: u64,
    /// Time in which a step was under way.
    pub(super) busy: Duration,
    pub(super) step_tokens: Histogram,
    pub(super) first_token: Histogram,
    pub(super) next_token: Histogram,
    pub(super) requests: RequestHistograms,
}

/// What is observed once a request, when it is finished.
#[derive(Clone, Debug)]
pub(super) struct RequestHistograms {
    pub(super) prompt_tokens: Histogram,
    pub(super) output_tokens: Histogram,
    pub(super) asked_tokens: Histogram,
    pub(super) computed_tokens: Histogram,
    pub(super) choices: Histogram,
    pub(super) preemptions: Histogram,
    pub(super) per_output_token: Histogram,
    pub(super) total: Histogram,
    pub(super) queued: Histogram,
    pub(super) inference: Histogram,
    pub(super) prefill: Histogram,
    pub(super) decode: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            cached_tokens: 0,
            generated_tokens: 0,
            preemptions: 0,
            finished: 0,
            aborted: 0,
            refused: 0,
            busy: Duration::ZERO,
            step_tokens: Histogram::new(STEP_TOKENS),
            first_token: Histogram::new(FIRST_TOKEN),
            next_token: Histogram::new(NEXT_TOKEN),
            requests: RequestHistograms {
                prompt_tokens: Histogram::new(TOKENS),
                output_tokens: Histogram::new(TOKENS),
                asked_tokens: Histogram::new(TOKENS),
                computed_tokens: Histogram::new(TOKENS),
                choices: Histogram::new(CHOICES),
                preemptions: Histogram::new(PREEMPTIONS),
                per_output_token: Histogram::new(NEXT_TOKEN),
                total: Histogram::new(LATENCY),
                queued: Histogram::new(LATENCY),
                inference: Histogram::new(LATENCY),
                prefill: Histogram::new(LATENCY),
                decode: Histogram::new(LATENCY),
            },
        }
    }
}

impl Tally {
    /// Adds one event.
    pub(crate) fn observe(&mut self, event: &Event) {
        match &event.what {
            Happening::Admitted { prompt_tokens, cached_tokens, .. } => {
                self.prompt_tokens += *prompt_tokens as u64;
                self.cached_tokens += *cached_tokens as u64;
            }
            Happening::Preempted { .. } => self.preemptions += 1,
            Happening::Token { index, since, .. } => {
                self.generated_tokens += 1;
                let waited = if *index == 0 { &mut self.first_token } else { &mut self.next_token };
                waited.observe(since.as_secs_f64());
            }
            Happening::Finished { report, .. } => self.finish(report),
            Happening::Aborted { .. } => self.aborted += 1,
            Happening::Step { tokens, took } => {
                self.busy += *took;
                self.step_tokens.observe(*tokens as f64);
            }
        }
    }

    fn finish(&mut self, report: &Report) {
        self.finished += 1;
        let gaps = report.output_tokens.saturating_sub(1);
        let per_token = if gaps == 0 { 0.0 } else { report.decode.as_secs_f64() / gaps as f64 };
        let seen = &mut self.requests;
        seen.prompt_tokens.observe(report.prompt_tokens as f64);
        seen.output_tokens.observe(report.output_tokens as f64);
        seen.asked_tokens.observe(report.asked_tokens as f64);
        seen.computed_tokens.observe((report.prompt_tokens - report.cached_tokens) as f64);
        seen.choices.observe(1.0);
        seen.preemptions.observe(report.preemptions as f64);
        seen.per_output_token.observe(per_token);
        seen.total.observe(report.total().as_secs_f64());
        seen.queued.observe(report.queued.as_secs_f64());
        seen.inference.observe((report.prefill + report.decode).as_secs_f64());
        seen.prefill.observe(report.prefill.as_secs_f64());
        seen.decode.observe(report.decode.as_secs_f64());
    }
}
