//! What is counted and timed of every request, by model, tenant and priority.

mod families;
mod series;
mod streams;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::MetricHub;
use parking_lot::RwLock;

use crate::telemetry::labels::{LabelValues, OTHER};

use families::{RequestFamilies, RequestLabels};
pub use series::{Finished, RequestSeries, RunningGuard};
pub use streams::{OpenStream, StreamMetrics};

/// How many label sets have series of their own. Each costs some 50 kB of page once all its families have moved.
const MOST_SERIES: usize = 4096;

/// The metrics of requests. One for the process.
pub struct RequestMetrics {
    families: Arc<RequestFamilies>,
    values: Arc<LabelValues>,
    series: RwLock<HashMap<Key, Arc<RequestSeries>, foldhash::fast::RandomState>>,
}

impl RequestMetrics {
    /// Puts the families on the page of the hub.
    pub fn new(hub: &MetricHub) -> Self {
        Self { families: hub.families(), values: LabelValues::of(hub), series: RwLock::default() }
    }

    /// The series of a request: what the client asked for and what that became. Keep it for the life of the request.
    ///
    /// Names past the bounds of their label count as `other`, and so do all names of a set that comes after there are
    /// 4096 sets.
    pub fn series(&self, model: &str, target: &str, fairness: &str, priority: i32) -> Arc<RequestSeries> {
        if let Some(known) = self.series.read().get(&(model, target, fairness, priority) as &dyn Names) {
            return known.clone();
        }
        let labels = RequestLabels {
            model_name: self.values.models.admit(model),
            target_model_name: self.values.models.admit(target),
            fairness_id: self.values.fairness_ids.admit(fairness),
            priority,
        };
        let mut series = self.series.write();
        if let Some(known) = series.get(&labels as &dyn Names) {
            return known.clone();
        }
        // Priorities come from the config, so what comes past the bound is bounded, too.
        let labels = if series.len() < MOST_SERIES { labels } else { labels.without_names() };
        let made = || Arc::new(RequestSeries::new(self.families.clone(), labels.clone()));
        series.entry(Key(labels.clone())).or_insert_with(made).clone()
    }

    /// The request is answered up to its body, or refused: `took` since it was received, waiting included.
    pub fn request_processed(&self, took: Duration) {
        self.families.request_processing.observe(took.as_secs_f64());
    }

    /// The stream ends after some of a response was seen: `took` is the time that the picker itself spent on it.
    pub fn response_processed(&self, took: Duration) {
        self.families.response_processing.observe(took.as_secs_f64());
    }
}

impl RequestLabels {
    /// The set that stands for all that have no room: only whether there is a name is left of the names.
    fn without_names(&self) -> Self {
        let other = |name: &Arc<str>| if name.is_empty() { name.clone() } else { OTHER.into() };
        Self {
            model_name: other(&self.model_name),
            target_model_name: other(&self.target_model_name),
            fairness_id: other(&self.fairness_id),
            priority: self.priority,
        }
    }
}

/// A label set as a key that can be looked up by borrowed names.
#[derive(Debug)]
struct Key(RequestLabels);

/// What makes a key, owned or borrowed.
trait Names {
    fn names(&self) -> (&str, &str, &str, i32);
}

impl Names for (&str, &str, &str, i32) {
    fn names(&self) -> (&str, &str, &str, i32) {
        *self
    }
}

impl Names for RequestLabels {
    fn names(&self) -> (&str, &str, &str, i32) {
        (&self.model_name, &self.target_model_name, &self.fairness_id, self.priority)
    }
}

impl Hash for dyn Names + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names().hash(state);
    }
}

impl PartialEq for dyn Names + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl Eq for dyn Names + '_ {}

impl<'a> Borrow<dyn Names + 'a> for Key {
    fn borrow(&self) -> &(dyn Names + 'a) {
        &self.0
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.names().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.names() == other.0.names()
    }
}

impl Eq for Key {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    fn sample_lines(hub: &MetricHub, family: &str) -> Vec<String> {
        let page = page(hub, Format::Text).expect("no collector");
        page.lines().filter(|l| l.starts_with(&format!("{family}{{"))).map(str::to_owned).collect()
    }

    #[test]
    fn equal_labels_share_a_series() {
        let metrics = RequestMetrics::new(&MetricHub::default());
        let first = metrics.series("m", "t", "f", 1);
        assert!(Arc::ptr_eq(&first, &metrics.series("m", "t", "f", 1)));
        for other in [("m", "t", "f", 2), ("m", "t", "g", 1), ("m", "u", "f", 1), ("mt", "", "f", 1)] {
            assert!(!Arc::ptr_eq(&first, &metrics.series(other.0, other.1, other.2, other.3)), "{other:?}");
        }
    }

    #[test]
    fn names_past_a_thousand_share_the_series_of_other() {
        let hub = MetricHub::default();
        let metrics = RequestMetrics::new(&hub);
        for i in (0..1002).chain([0]) {
            let model = format!("m{i}");
            metrics.series(&model, &model, &format!("t{i}"), 0).accepted(1);
        }
        let lines = sample_lines(&hub, "llm_d_epp_request_total");
        assert_eq!(lines.len(), 1001);
        let other = "llm_d_epp_request_total{model_name=\"other\",target_model_name=\"other\",fairness_id=\"other\",priority=\"0\"} 2";
        assert!(lines.iter().any(|l| l == other), "{lines:?}");
        let again =
            "llm_d_epp_request_total{model_name=\"m0\",target_model_name=\"m0\",fairness_id=\"t0\",priority=\"0\"} 2";
        assert!(lines.iter().any(|l| l == again));
    }

    #[test]
    fn models_and_targets_share_their_thousand() {
        let metrics = RequestMetrics::new(&MetricHub::default());
        for i in 0..500 {
            metrics.series(&format!("m{i}"), &format!("t{i}"), "", 0);
        }
        let full = metrics.series("new", "m3", "", 0);
        assert!(Arc::ptr_eq(&full, &metrics.series("other", "m3", "", 0)));
    }

    #[test]
    fn label_sets_are_bounded_though_their_values_are_few() {
        let metrics = RequestMetrics::new(&MetricHub::default());
        for i in 0..5000 {
            metrics.series(&format!("m{}", i % 100), "", &format!("t{}", i / 100), 0);
        }
        assert_eq!(metrics.series.read().len(), MOST_SERIES + 1);
        let late = metrics.series("m99", "", "t49", 0);
        assert!(Arc::ptr_eq(&late, &metrics.series("other", "", "other", 0)));
    }
}
