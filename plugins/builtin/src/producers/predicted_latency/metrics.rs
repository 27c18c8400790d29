//! What latencies were predicted, how long that took, what they then were, and which objectives were missed.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use epp_plugin_api::{InferenceRequest, MetricFamilies, MetricHub, MetricRegistry, ShowOne};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;

/// So many pairs of models get series of their own; later ones share those of [`OTHER`].
const MOST_MODELS: usize = 1000;
const OTHER: &str = "other";

/// Which of a request's latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// The time to the first token.
    Ttft,
    /// The time per output token after it.
    Tpot,
}

impl Latency {
    const ALL: [Self; 2] = [Self::Ttft, Self::Tpot];

    fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
        }
    }

    /// The types of the gauge: actual, predicted, the prediction's duration, and whether the objective was missed.
    fn types(self) -> [&'static str; 4] {
        match self {
            Self::Ttft => ["ttft", "predicted_ttft", "ttft_prediction_duration", "ttft_slo_violation"],
            Self::Tpot => ["tpot", "predicted_tpot", "tpot_prediction_duration", "tpot_slo_violation"],
        }
    }

    fn histogram(self) -> Histogram {
        match self {
            Self::Ttft => Histogram::new(TTFT),
            Self::Tpot => Histogram::new(TPOT),
        }
    }
}

/// What a latency came to, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub actual: f64,
    pub predicted: Option<f64>,
    /// 0: none.
    pub objective: f64,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    plugin_name: String,
    plugin_type: &'static str,
    model_name: String,
    target_model_name: String,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct TypeLabels {
    #[prometheus(flatten)]
    models: Labels,
    r#type: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct OldLabels {
    model_name: String,
    target_model_name: String,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct OldTypeLabels {
    #[prometheus(flatten)]
    models: OldLabels,
    r#type: &'static str,
}

type Number = Gauge<f64, AtomicU64>;
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The families of one latency.
struct OfLatency {
    predicted: Histograms<Labels>,
    predicted_old: Histograms<OldLabels>,
    took: Histograms<Labels>,
    took_old: Histograms<OldLabels>,
    /// Under its old name alone: what it was, which other families show by now.
    actual_old: Histograms<OldLabels>,
}

impl OfLatency {
    fn new(times: fn() -> Histogram) -> Self {
        let durations = || Histogram::new(DURATIONS);
        Self {
            predicted: Family::new_with_constructor(times),
            predicted_old: Family::new_with_constructor(times),
            took: Family::new_with_constructor(durations),
            took_old: Family::new_with_constructor(durations),
            actual_old: Family::new_with_constructor(times),
        }
    }

    fn register(&self, latency: Latency, registry: &mut MetricRegistry) {
        let (name, said) = match latency {
            Latency::Ttft => ("ttft", "time to the first token"),
            Latency::Tpot => ("tpot", "time per output token"),
        };
        let now = |what: &str| format!("llm_d_epp_request_{what}");
        let (predicted, took) = (format!("predicted_{name}_seconds"), format!("{name}_prediction_duration_seconds"));
        let help = format!("Predicted {said} of the endpoint that a request went to");
        registry.register(now(&predicted), help, self.predicted.clone());
        registry.register(now(&took), format!("How long predictions of the {said} took"), self.took.clone());
        put_old(registry, &format!("request_{predicted}"), &now(&predicted), self.predicted_old.clone());
        put_old(registry, &format!("request_{took}"), &now(&took), self.took_old.clone());
        let instead = match latency {
            Latency::Ttft => "llm_d_epp_request_ttft_seconds",
            Latency::Tpot => "llm_d_epp_request_streaming_tpot_seconds",
        };
        put_old(registry, &format!("request_{name}_seconds"), instead, self.actual_old.clone());
    }
}

struct Families {
    last: Family<TypeLabels, Number>,
    last_old: Family<OldTypeLabels, Number>,
    missed: Family<TypeLabels, Counter>,
    missed_old: Family<OldTypeLabels, Counter>,
    of: [OfLatency; 2],
}

impl Default for Families {
    fn default() -> Self {
        Self {
            last: Family::default(),
            last_old: Family::default(),
            missed: Family::default(),
            missed_old: Family::default(),
            of: [OfLatency::new(|| Latency::Ttft.histogram()), OfLatency::new(|| Latency::Tpot.histogram())],
        }
    }
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "The last of each type: a time in seconds, or 1 if an objective was missed";
        registry.register("llm_d_epp_inference_request_metric", help, self.last.clone());
        put_old(registry, "inference_request_metric", "llm_d_epp_inference_request_metric", self.last_old.clone());
        let help = "Requests that missed their objective for a latency";
        registry.register("llm_d_epp_request_slo_violation", help, self.missed.clone());
        put_old(registry, "request_slo_violation", "llm_d_epp_request_slo_violation", self.missed_old.clone());
        Latency::ALL.into_iter().zip(&self.of).for_each(|(latency, of)| of.register(latency, registry));
    }
}

fn put_old(registry: &mut MetricRegistry, name: &str, instead: &str, metric: impl Metric + ShowOne) {
    registry.register_deprecated(format!("inference_objective_{name}"), instead, metric);
}

/// The metrics of one instance.
pub struct LatencyMetrics {
    families: Arc<Families>,
    plugin_name: String,
    plugin_type: &'static str,
    models: RwLock<Models>,
}

type Map<V> = HashMap<Box<str>, V, foldhash::fast::RandomState>;

/// The series of every pair of models.
#[derive(Default)]
struct Models {
    /// By the model asked for, and then by the one that the engine is asked for.
    by_name: Map<Map<Arc<Series>>>,
    n_series: usize,
}

impl Models {
    fn find(&self, model: &str, target: &str) -> Option<&Arc<Series>> {
        self.by_name.get(model)?.get(target)
    }
}

impl LatencyMetrics {
    /// Makes the series of the instance of this name.
    pub fn new(hub: &MetricHub, name: &str, plugin_type: &'static str) -> Self {
        Self { families: hub.families(), plugin_name: name.to_owned(), plugin_type, models: RwLock::default() }
    }

    /// The series of a request's models.
    pub fn of(&self, request: &InferenceRequest) -> Arc<Series> {
        let (model, target) = (&*request.model, &*request.target_model);
        if let Some(series) = self.models.read().find(model, target) {
            return series.clone();
        }
        let mut models = self.models.write();
        let (model, target) = if models.n_series + 1 < MOST_MODELS { (model, target) } else { (OTHER, OTHER) };
        if let Some(series) = models.find(model, target) {
            return series.clone();
        }
        let labels = Labels {
            plugin_name: self.plugin_name.clone(),
            plugin_type: self.plugin_type,
            model_name: model.to_owned(),
            target_model_name: target.to_owned(),
        };
        let series = Arc::new(Series { families: self.families.clone(), labels, of: Default::default() });
        models.by_name.entry(model.into()).or_default().insert(target.into(), series.clone());
        models.n_series += 1;
        series
    }
}

/// The series of one pair of models; those of a latency show once it is known.
pub struct Series {
    families: Arc<Families>,
    labels: Labels,
    of: [OnceLock<Handles>; 2],
}

/// The series of one latency: under their names, and under their older ones.
struct Handles {
    /// By [`Latency::types`].
    last: [[Number; 2]; 4],
    missed: [Counter; 2],
    predicted: [Histogram; 2],
    took: [Histogram; 2],
    actual: Histogram,
}

impl Handles {
    fn new(families: &Families, labels: &Labels, latency: Latency) -> Self {
        let of = &families.of[latency as usize];
        let old =
            OldLabels { model_name: labels.model_name.clone(), target_model_name: labels.target_model_name.clone() };
        let typed = |r#type| TypeLabels { models: labels.clone(), r#type };
        let typed_old = |r#type| OldTypeLabels { models: old.clone(), r#type };
        let name = latency.name();
        Self {
            last: latency.types().map(|t| {
                let (now, old) = (typed(t), typed_old(t));
                [families.last.get_or_create_owned(&now), families.last_old.get_or_create_owned(&old)]
            }),
            missed: [
                families.missed.get_or_create_owned(&typed(name)),
                families.missed_old.get_or_create_owned(&typed_old(name)),
            ],
            predicted: [of.predicted.get_or_create_owned(labels), of.predicted_old.get_or_create_owned(&old)],
            took: [of.took.get_or_create_owned(labels), of.took_old.get_or_create_owned(&old)],
            actual: of.actual_old.get_or_create_owned(&old),
        }
    }
}

impl Series {
    fn of(&self, latency: Latency) -> &Handles {
        self.of[latency as usize].get_or_init(|| Handles::new(&self.families, &self.labels, latency))
    }

    /// Both latencies were predicted for a request's candidates.
    pub fn predicted(&self, took: Duration) {
        for of in Latency::ALL.map(|latency| self.of(latency)) {
            let [_, _, last, _] = &of.last;
            set(last, took.as_secs_f64());
            of.took.iter().for_each(|h| h.observe(took.as_secs_f64()));
        }
    }

    /// A request is complete.
    pub fn ended(&self, latency: Latency, ended: Ended) {
        let of = self.of(latency);
        let [actual, predicted, _, missed] = &of.last;
        let seconds = ended.actual / 1e3;
        set(actual, seconds);
        of.actual.observe(seconds);
        if let Some(ms) = ended.predicted {
            set(predicted, ms / 1e3);
            of.predicted.iter().for_each(|h| h.observe(ms / 1e3));
        }
        if ended.objective > 0.0 {
            let is_missed = ended.actual > ended.objective;
            set(missed, f64::from(u8::from(is_missed)));
            if is_missed {
                for counter in &of.missed {
                    counter.inc();
                }
            }
        }
    }
}

fn set(gauges: &[Number; 2], value: f64) {
    for gauge in gauges {
        gauge.set(value);
    }
}

const TTFT: [f64; 35] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

const TPOT: [f64; 35] = [
    0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5,
    2.0, 3.0, 4.5, 6.0, 12.0, 18.0, 24.0, 30.0, 36.0, 48.0, 60.0, 90.0, 120.0, 180.0, 270.0, 360.0,
];

const DURATIONS: [f64; 14] = [0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, request};

    fn series(metrics: &LatencyMetrics, model: &str, target: &str) -> Arc<Series> {
        let mut request = request(b"", Default::default());
        (request.model, request.target_model) = (model.into(), target.into());
        metrics.of(&request)
    }

    #[test]
    fn each_is_shown_under_its_name_and_its_older_one() {
        let rig = Rig::default();
        let metrics = LatencyMetrics::new(&rig.metrics, "p", "predicted-latency-producer");
        let series = series(&metrics, "m", "t");
        series.predicted(Duration::from_millis(4));
        series.ended(Latency::Ttft, Ended { actual: 250.0, predicted: Some(300.0), objective: 200.0 });
        series.ended(Latency::Tpot, Ended { actual: 20.0, predicted: None, objective: 30.0 });
        let page = rig.page();
        let models = r#"model_name="m",target_model_name="t""#;
        let new = format!(r#"plugin_name="p",plugin_type="predicted-latency-producer",{models}"#);
        for (name, value) in [
            (r#"inference_request_metric{..,type="ttft"}"#, "0.25"),
            (r#"inference_request_metric{..,type="predicted_ttft"}"#, "0.3"),
            (r#"inference_request_metric{..,type="ttft_prediction_duration"}"#, "0.004"),
            (r#"inference_request_metric{..,type="ttft_slo_violation"}"#, "1.0"),
            (r#"inference_request_metric{..,type="tpot"}"#, "0.02"),
            (r#"inference_request_metric{..,type="tpot_slo_violation"}"#, "0.0"),
            (r#"request_slo_violation_total{..,type="ttft"}"#, "1"),
            (r#"request_slo_violation_total{..,type="tpot"}"#, "0"),
            ("request_predicted_ttft_seconds_sum{..}", "0.3"),
            ("request_predicted_tpot_seconds_count{..}", "0"),
            ("request_ttft_prediction_duration_seconds_count{..}", "1"),
            ("request_tpot_prediction_duration_seconds_sum{..}", "0.004"),
        ] {
            for (prefix, labels) in [("llm_d_epp", new.as_str()), ("inference_objective", models)] {
                let line = format!("{prefix}_{} {value}\n", name.replace("..", labels));
                assert!(page.contains(&line), "{line} in {page}");
            }
        }
        assert!(page.contains(&format!("inference_objective_request_ttft_seconds_sum{{{models}}} 0.25\n")));
        assert!(page.contains(&format!("inference_objective_request_tpot_seconds_count{{{models}}} 1\n")));
    }

    #[test]
    fn models_beyond_the_bound_share_their_series() {
        let rig = Rig::default();
        let metrics = LatencyMetrics::new(&rig.metrics, "p", "t");
        let known = series(&metrics, "m0", "m");
        (1..MOST_MODELS + 50).for_each(|i| drop(series(&metrics, &format!("m{i}"), "m")));
        assert!(Arc::ptr_eq(&known, &series(&metrics, "m0", "m")));
        assert!(Arc::ptr_eq(&series(&metrics, "new", "m"), &series(&metrics, "newer", "n")));
        assert_eq!(metrics.models.read().n_series, MOST_MODELS);
    }
}
