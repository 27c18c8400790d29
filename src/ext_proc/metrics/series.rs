//! The series of one label set, with a method for each thing that can happen to a request. A series is made when it is
//! first moved, so that the page shows nothing that has not happened.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use epp_plugin_api::Usage;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::families::{
    ErrorLabels, OldErrorLabels, OldLabels, OldRunningLabels, OldTotalLabels, RequestFamilies, RequestLabels,
    StreamingLabels, WithOld,
};

/// What is known of a request once its response has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// From receipt to the end of the response.
    pub duration: Duration,
    pub response_bytes: u64,
    /// From receipt to the first piece of the response body; `None` if it had none.
    pub first_chunk: Option<Duration>,
    /// Whether the response was streamed.
    pub streaming: bool,
    /// Generated tokens, if the engine reported them.
    pub output_tokens: Option<u64>,
}

/// A histogram and the same under its older name.
type Pair = OnceLock<(Histogram, Histogram)>;

/// The series of one set of labels.
pub struct RequestSeries {
    families: Arc<RequestFamilies>,
    labels: RequestLabels,
    old_labels: OldLabels,
    total: OnceLock<(Counter, Counter)>,
    running: OnceLock<(Gauge, Gauge)>,
    duration: Pair,
    request_size: Pair,
    response_size: Pair,
    input_tokens: Pair,
    output_tokens: Pair,
    cached_tokens: Pair,
    ntpot: Pair,
    ttft_whole: OnceLock<Histogram>,
    ttft_streaming: OnceLock<Histogram>,
    tpot: OnceLock<Histogram>,
    itl: OnceLock<Histogram>,
}

impl RequestSeries {
    pub(super) fn new(families: Arc<RequestFamilies>, labels: RequestLabels) -> Self {
        let old_labels =
            OldLabels { model_name: labels.model_name.clone(), target_model_name: labels.target_model_name.clone() };
        Self {
            families,
            labels,
            old_labels,
            total: OnceLock::new(),
            running: OnceLock::new(),
            duration: Pair::new(),
            request_size: Pair::new(),
            response_size: Pair::new(),
            input_tokens: Pair::new(),
            output_tokens: Pair::new(),
            cached_tokens: Pair::new(),
            ntpot: Pair::new(),
            ttft_whole: OnceLock::new(),
            ttft_streaming: OnceLock::new(),
            tpot: OnceLock::new(),
            itl: OnceLock::new(),
        }
    }

    /// The request got an endpoint; its body is sent on with this many bytes.
    pub fn accepted(&self, request_bytes: u64) {
        let (new, old) = self.total.get_or_init(|| {
            let old = OldTotalLabels { models: self.old_labels.clone(), priority: self.labels.priority };
            (self.families.total.get_or_create_owned(&self.labels), self.families.total_old.get_or_create_owned(&old))
        });
        new.inc();
        old.inc();
        self.observe(&self.request_size, |f| &f.request_size, request_bytes as f64);
    }

    /// The request is with the engine until the guard is dropped. Without a model it is not counted.
    pub fn running(&self) -> RunningGuard {
        if self.labels.model_name.is_empty() {
            return RunningGuard(None);
        }
        let gauges = self.running.get_or_init(|| {
            let old = OldRunningLabels { model_name: self.labels.model_name.clone() };
            let f = &self.families;
            (f.running.get_or_create_owned(&self.labels), f.running_old.get_or_create_owned(&old))
        });
        gauges.0.inc();
        gauges.1.inc();
        RunningGuard(Some(gauges.clone()))
    }

    /// The request was refused or failed; `code` is one of a closed set.
    pub fn error(&self, code: &'static str) {
        let labels = ErrorLabels { request: self.labels.clone(), error_code: code };
        self.families.errors.get_or_create_owned(&labels).inc();
        let labels = OldErrorLabels { models: self.old_labels.clone(), error_code: code };
        self.families.errors_old.get_or_create_owned(&labels).inc();
    }

    /// The response has ended as it should. A time of nothing is no measurement and is left out.
    pub fn finished(&self, what: &Finished) {
        let seconds = what.duration.as_secs_f64();
        let tokens = what.output_tokens.unwrap_or(0);
        self.observe(&self.response_size, |f| &f.response_size, what.response_bytes as f64);
        if seconds > 0.0 {
            self.observe(&self.duration, |f| &f.duration, seconds);
            if tokens > 0 {
                self.observe(&self.ntpot, |f| &f.ntpot, seconds / tokens as f64);
            }
        }
        let Some(first) = what.first_chunk.filter(|first| !first.is_zero()) else { return };
        let cell = if what.streaming { &self.ttft_streaming } else { &self.ttft_whole };
        let ttft = cell.get_or_init(|| {
            let labels = StreamingLabels { request: self.labels.clone(), streaming: what.streaming };
            self.families.ttft.get_or_create_owned(&labels)
        });
        ttft.observe(first.as_secs_f64());
        if what.streaming && tokens > 1 && what.duration > first {
            let each = (what.duration - first).as_secs_f64() / (tokens - 1) as f64;
            self.tpot.get_or_init(|| self.families.tpot.get_or_create_owned(&self.labels)).observe(each);
        }
    }

    /// The engine reported tokens.
    pub fn usage(&self, usage: &Usage) {
        if let Some(tokens @ 1..) = usage.prompt {
            self.observe(&self.input_tokens, |f| &f.input_tokens, tokens as f64);
        }
        if let Some(tokens @ 1..) = usage.completion {
            self.observe(&self.output_tokens, |f| &f.output_tokens, tokens as f64);
        }
        if let Some(tokens) = usage.cached {
            self.observe(&self.cached_tokens, |f| &f.cached_tokens, tokens as f64);
        }
    }

    /// This long after the last piece of a streamed response came the next.
    pub fn inter_token(&self, gap: Duration) {
        if !gap.is_zero() {
            self.itl.get_or_init(|| self.families.itl.get_or_create_owned(&self.labels)).observe(gap.as_secs_f64());
        }
    }

    fn observe(&self, pair: &Pair, family: impl Fn(&RequestFamilies) -> &WithOld, value: f64) {
        let (new, old) = pair.get_or_init(|| {
            let family = family(&self.families);
            (family.new.get_or_create_owned(&self.labels), family.old.get_or_create_owned(&self.old_labels))
        });
        new.observe(value);
        old.observe(value);
    }
}

/// Counts a request as running until it is dropped.
#[derive(Debug)]
pub struct RunningGuard(Option<(Gauge, Gauge)>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        if let Some((new, old)) = &self.0 {
            new.dec();
            old.dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use epp_plugin_api::MetricHub;

    use super::super::RequestMetrics;
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Lets things happen to a request of model `m`, sent on as `t`, and returns the samples of the page that were moved,
    /// without their buckets; a name with its labels as values only.
    fn moved(happen: impl FnOnce(&RequestSeries)) -> BTreeMap<String, f64> {
        let hub = MetricHub::default();
        let metrics = RequestMetrics::new(&hub);
        happen(&metrics.series("m", "t", "f", 3));
        samples(&hub)
    }

    fn samples(hub: &MetricHub) -> BTreeMap<String, f64> {
        let page = page(hub, Format::Text).expect("no collector");
        let lines = page.lines().filter(|l| !l.starts_with('#') && !l.contains("_bucket") && !l.contains("processing"));
        lines
            .map(|line| {
                let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let values: Vec<_> = labels.split('"').skip(1).step_by(2).collect();
                (format!("{name} {}", values.join(",")), value.parse().expect("a sample's value is a number"))
            })
            .collect()
    }

    fn check(got: BTreeMap<String, f64>, want: &[(&str, f64)]) {
        let want: BTreeMap<_, _> = want.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        assert_eq!(got, want);
    }

    #[test]
    fn nothing_shows_before_it_moves() {
        check(moved(|_| ()), &[]);
    }

    #[test]
    fn an_accepted_request_is_counted_and_measured_under_both_names() {
        check(
            moved(|s| {
                s.accepted(100);
                s.accepted(50);
            }),
            &[
                ("llm_d_epp_request_total m,t,f,3", 2.0),
                ("llm_d_epp_request_size_bytes_sum m,t,f,3", 150.0),
                ("llm_d_epp_request_size_bytes_count m,t,f,3", 2.0),
                ("inference_objective_request_total m,t,3", 2.0),
                ("inference_objective_request_sizes_sum m,t", 150.0),
                ("inference_objective_request_sizes_count m,t", 2.0),
            ],
        );
    }

    #[test]
    fn running_falls_when_the_guard_is_dropped() {
        let hub = MetricHub::default();
        let metrics = RequestMetrics::new(&hub);
        let first = metrics.series("m", "t", "f", 3).running();
        let second = metrics.series("m", "u", "f", 3).running();
        check(
            samples(&hub),
            &[
                ("llm_d_epp_request_running m,t,f,3", 1.0),
                ("llm_d_epp_request_running m,u,f,3", 1.0),
                ("inference_objective_running_requests m", 2.0),
            ],
        );
        drop(first);
        drop(second);
        check(
            samples(&hub),
            &[
                ("llm_d_epp_request_running m,t,f,3", 0.0),
                ("llm_d_epp_request_running m,u,f,3", 0.0),
                ("inference_objective_running_requests m", 0.0),
            ],
        );
    }

    #[test]
    fn a_request_without_a_model_is_not_counted_as_running() {
        let hub = MetricHub::default();
        drop(RequestMetrics::new(&hub).series("", "", "f", 0).running());
        check(samples(&hub), &[]);
    }

    #[test]
    fn errors_carry_their_code() {
        check(
            moved(|s| s.error("BadRequest")),
            &[
                ("llm_d_epp_request_error_total m,t,f,3,BadRequest", 1.0),
                ("inference_objective_request_error_total m,t,BadRequest", 1.0),
            ],
        );
    }

    #[test]
    fn a_whole_response_has_no_time_between_tokens() {
        let what = Finished {
            duration: MS(2000),
            response_bytes: 77,
            first_chunk: Some(MS(500)),
            streaming: false,
            output_tokens: Some(4),
        };
        check(
            moved(|s| s.finished(&what)),
            &[
                ("llm_d_epp_request_duration_seconds_sum m,t,f,3", 2.0),
                ("llm_d_epp_request_duration_seconds_count m,t,f,3", 1.0),
                ("inference_objective_request_duration_seconds_sum m,t", 2.0),
                ("inference_objective_request_duration_seconds_count m,t", 1.0),
                ("llm_d_epp_response_size_bytes_sum m,t,f,3", 77.0),
                ("llm_d_epp_response_size_bytes_count m,t,f,3", 1.0),
                ("inference_objective_response_sizes_sum m,t", 77.0),
                ("inference_objective_response_sizes_count m,t", 1.0),
                ("llm_d_epp_request_ntpot_seconds_sum m,t,f,3", 0.5),
                ("llm_d_epp_request_ntpot_seconds_count m,t,f,3", 1.0),
                ("inference_objective_normalized_time_per_output_token_seconds_sum m,t", 0.5),
                ("inference_objective_normalized_time_per_output_token_seconds_count m,t", 1.0),
                ("llm_d_epp_request_ttft_seconds_sum m,t,f,3,false", 0.5),
                ("llm_d_epp_request_ttft_seconds_count m,t,f,3,false", 1.0),
            ],
        );
    }

    fn streamed(first: Option<Duration>, tokens: Option<u64>) -> BTreeMap<String, f64> {
        let what = Finished {
            duration: MS(2000),
            response_bytes: 1,
            first_chunk: first,
            streaming: true,
            output_tokens: tokens,
        };
        let mut got = moved(|s| s.finished(&what));
        got.retain(|name, _| name.contains("_sum") && (name.contains("ttft") || name.contains("tpot_")));
        got
    }

    #[test]
    fn a_streamed_response_is_timed_by_token_after_the_first() {
        let (ttft, tpot, ntpot) = (
            "llm_d_epp_request_ttft_seconds_sum m,t,f,3,true",
            "llm_d_epp_request_streaming_tpot_seconds_sum m,t,f,3",
            "llm_d_epp_request_ntpot_seconds_sum m,t,f,3",
        );
        check(streamed(Some(MS(500)), Some(4)), &[(ttft, 0.5), (tpot, 0.5), (ntpot, 0.5)]);
        check(streamed(Some(MS(500)), Some(1)), &[(ttft, 0.5), (ntpot, 2.0)]);
        check(streamed(Some(MS(500)), Some(0)), &[(ttft, 0.5)]);
        check(streamed(Some(MS(500)), None), &[(ttft, 0.5)]);
        check(streamed(Some(MS(2000)), Some(4)), &[(ttft, 2.0), (ntpot, 0.5)]);
        check(streamed(None, Some(4)), &[(ntpot, 0.5)]);
    }

    fn tokens(usage: Usage) -> Vec<String> {
        let got = moved(|s| s.usage(&usage));
        got.keys().filter(|k| k.contains("llm_d_epp") && k.contains("_count")).cloned().collect()
    }

    #[test]
    fn tokens_are_counted_only_if_reported() {
        let (input, output, cached) = (
            "llm_d_epp_request_input_tokens_count m,t,f,3",
            "llm_d_epp_request_output_tokens_count m,t,f,3",
            "llm_d_epp_request_cached_tokens_count m,t,f,3",
        );
        let usage = |prompt, completion, cached| Usage { prompt, completion, cached, total: None };
        assert_eq!(tokens(usage(None, None, None)), [""; 0]);
        assert_eq!(tokens(usage(Some(3), Some(0), None)), [input]);
        assert_eq!(tokens(usage(Some(0), Some(4), None)), [output]);
        assert_eq!(tokens(usage(Some(3), Some(1), Some(0))), [cached, input, output]);
    }

    #[test]
    fn gaps_between_pieces_are_observed_and_no_gap_is_not() {
        let got = moved(|s| {
            s.inter_token(MS(250));
            s.inter_token(MS(250));
            s.inter_token(Duration::ZERO);
        });
        check(
            got,
            &[
                ("llm_d_epp_request_streaming_itl_seconds_sum m,t,f,3", 0.5),
                ("llm_d_epp_request_streaming_itl_seconds_count m,t,f,3", 2.0),
            ],
        );
    }
}
