//! What is counted and timed of scheduling: calls, where they led, and each plugin's share of the time.

mod attempts;
mod stages;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use epp_plugin_api::{EndpointId, EndpointMeta, MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

use crate::telemetry::families::{Histograms, histograms, put, put_deprecated};
use crate::telemetry::labels::LabelValues;

use attempts::{AttemptFamilies, Attempts};
pub use stages::{Stage, StageMetrics};

static SECONDS: &[f64] = &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];

/// The metrics of scheduling. One for the process.
pub struct SchedMetrics {
    families: Arc<SchedFamilies>,
    attempts: Attempts,
}

impl SchedMetrics {
    /// Puts the families on the page of the hub.
    pub fn new(hub: &MetricHub) -> Self {
        let families: Arc<SchedFamilies> = hub.families();
        let attempts = Attempts::new(families.attempts.clone(), LabelValues::of(hub));
        Self { families, attempts }
    }

    /// A call of the scheduler took this long, whatever came of it.
    pub fn scheduled(&self, took: Duration) {
        self.families.e2e.observe(took.as_secs_f64());
    }

    /// A call for this model led to this endpoint.
    pub fn succeeded(&self, model: &str, id: EndpointId, endpoint: &EndpointMeta) {
        self.attempts.succeeded(model, id, endpoint);
    }

    /// A call for this model led to no endpoint.
    pub fn failed(&self, model: &str) {
        self.attempts.failed(model);
    }

    /// Takes the series of an endpoint that is gone for good off the page.
    pub fn forget(&self, id: EndpointId) {
        self.attempts.forget(id);
    }

    /// The clock of one plugin at one extension point. Ask for it when a generation is built, not for each call.
    pub fn timer(&self, extension_point: &'static str, plugin_type: &'static str, plugin_name: &str) -> Timer {
        let labels = PluginLabels { extension_point, plugin_type, plugin_name: plugin_name.into() };
        Timer { families: self.families.clone(), labels, series: OnceLock::new() }
    }
}

/// Times the calls of one plugin at one extension point.
pub struct Timer {
    families: Arc<SchedFamilies>,
    labels: PluginLabels,
    series: OnceLock<Histogram>,
}

impl Timer {
    /// A call took this long.
    pub fn observe(&self, took: Duration) {
        let series = self.series.get_or_init(|| self.families.plugin.get_or_create_owned(&self.labels));
        series.observe(took.as_secs_f64());
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timer({}, {})", self.labels.extension_point, self.labels.plugin_name)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    extension_point: &'static str,
    plugin_type: &'static str,
    plugin_name: Arc<str>,
}

/// The times are on the page under two names each, with the same labels, so one series serves both.
#[derive(Debug)]
struct SchedFamilies {
    e2e: Histogram,
    plugin: Histograms<PluginLabels>,
    attempts: AttemptFamilies,
}

impl Default for SchedFamilies {
    fn default() -> Self {
        Self {
            e2e: Histogram::new(SECONDS.iter().copied()),
            plugin: histograms(SECONDS),
            attempts: AttemptFamilies::default(),
        }
    }
}

impl MetricFamilies for SchedFamilies {
    fn register(&self, r: &mut MetricRegistry) {
        let (new, old) = ("scheduler_e2e_duration_seconds", "inference_extension_scheduler_e2e_duration_seconds");
        put(r, new, "Time of a call of the scheduler", self.e2e.clone());
        put_deprecated(r, old, new, self.e2e.clone());
        let (new, old) = ("plugin_duration_seconds", "inference_extension_plugin_duration_seconds");
        put(r, new, "Time of a call of a plugin", self.plugin.clone());
        put_deprecated(r, old, new, self.plugin.clone());
        self.attempts.register(r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_plugin_shows_once_it_was_called() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        let (timer, _idle) = (metrics.timer("Scorer", "queue-scorer", "q"), metrics.timer("Filter", "role", "r"));
        assert!(!page(&hub, Format::Text).expect("no collector").contains("plugin_duration_seconds"));
        timer.observe(MS(500));
        metrics.timer("Scorer", "queue-scorer", "q").observe(MS(250));
        let page = page(&hub, Format::Text).expect("no collector");
        for name in ["llm_d_epp_plugin_duration_seconds", "inference_extension_plugin_duration_seconds"] {
            let labels = "{extension_point=\"Scorer\",plugin_type=\"queue-scorer\",plugin_name=\"q\"}";
            assert!(page.contains(&format!("\n{name}_sum{labels} 0.75\n{name}_count{labels} 2\n")), "{page}");
            assert_eq!(page.matches(&format!("\n{name}_count")).count(), 1, "{page}");
        }
    }

    #[test]
    fn calls_are_timed_under_both_names() {
        let hub = MetricHub::default();
        SchedMetrics::new(&hub).scheduled(MS(500));
        let page = page(&hub, Format::Text).expect("no collector");
        for name in ["llm_d_epp_scheduler_e2e_duration_seconds", "inference_extension_scheduler_e2e_duration_seconds"] {
            assert!(page.contains(&format!("\n{name}_sum 0.5\n{name}_count 1\n")), "{page}");
        }
    }
}
