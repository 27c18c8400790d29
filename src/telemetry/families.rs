//! What all metric families share: their names, their help texts, and how a histogram gets its buckets.

use epp_plugin_api::{MetricRegistry, ShowOne};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;

/// What the families that llm-d names start with.
pub const PREFIX: &str = "llm_d_epp_";

/// Upper bounds of buckets, lowest first, without the infinite one.
#[derive(Clone, Copy, Debug)]
pub struct Buckets(pub &'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Counters that differ in their labels.
pub type Counters<S> = Family<S, Counter>;
/// Gauges that differ in their labels.
pub type Gauges<S> = Family<S, Gauge>;
/// Histograms that differ in their labels.
pub type Histograms<S> = Family<S, Histogram, Buckets>;

/// Makes a family of histograms with these buckets.
pub fn histograms<S: Clone + std::hash::Hash + Eq>(buckets: &'static [f64]) -> Histograms<S> {
    Family::new_with_constructor(Buckets(buckets))
}

/// Puts a family on the page under `llm_d_epp_` and `name`. Counters get `_total` after it; the help text gets its mark
/// of stability before and a full stop after it.
pub fn put(registry: &mut MetricRegistry, name: &str, help: &str, metric: impl Metric + ShowOne) {
    registry.register(format!("{PREFIX}{name}"), format!("[ALPHA] {help}"), metric);
}

/// Puts a family on the page under the full name that it had before it was called `llm_d_epp_` and `instead`.
pub fn put_deprecated(registry: &mut MetricRegistry, name: &str, instead: &str, metric: impl Metric + ShowOne) {
    registry.register_deprecated(name, &format!("{PREFIX}{instead}"), metric);
}
