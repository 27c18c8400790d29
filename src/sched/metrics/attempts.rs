//! Where calls of the scheduler led, by endpoint and model.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use epp_plugin_api::{EndpointId, EndpointMeta, MetricRegistry};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;

use crate::telemetry::families::{Counters, put, put_deprecated};
use crate::telemetry::labels::{LabelValues, OTHER};

/// How many pairs of endpoint and model have a series of their own; after that every model counts as `other`.
const MOST_SERIES: usize = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    status: &'static str,
    target_model_name: Arc<str>,
    endpoint_name: Arc<str>,
    namespace: Arc<str>,
    port: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OldLabels {
    status: &'static str,
    target_model_name: Arc<str>,
    pod_name: Arc<str>,
    namespace: Arc<str>,
    port: Arc<str>,
}

impl From<&Labels> for OldLabels {
    fn from(new: &Labels) -> Self {
        let Labels { status, target_model_name, endpoint_name, namespace, port } = new.clone();
        Self { status, target_model_name, pod_name: endpoint_name, namespace, port }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct AttemptFamilies {
    new: Counters<Labels>,
    old: Counters<OldLabels>,
}

impl AttemptFamilies {
    pub fn register(&self, r: &mut MetricRegistry) {
        put(r, "scheduler_attempts", "Calls of the scheduler and where they led", self.new.clone());
        put_deprecated(r, "inference_extension_scheduler_attempts", "scheduler_attempts", self.old.clone());
    }

    fn series(&self, labels: &Labels) -> Series {
        Series { new: self.new.get_or_create_owned(labels), old: self.old.get_or_create_owned(&labels.into()) }
    }

    fn remove(&self, labels: &Labels) {
        self.new.remove(labels);
        self.old.remove(&labels.into());
    }
}

struct Series {
    new: Counter,
    old: Counter,
}

impl Series {
    fn inc(&self) {
        self.new.inc();
        self.old.inc();
    }
}

/// The labels and series of one endpoint.
struct Endpoint {
    serial: u32,
    name: Arc<str>,
    namespace: Arc<str>,
    port: Arc<str>,
    by_model: HashMap<Arc<str>, Series, foldhash::fast::RandomState>,
}

impl Endpoint {
    fn new(id: EndpointId, meta: &EndpointMeta) -> Self {
        Self {
            serial: id.serial(),
            name: meta.name.name.as_str().into(),
            namespace: meta.name.namespace.as_str().into(),
            port: meta.port.to_string().into(),
            by_model: HashMap::default(),
        }
    }

    /// The labels of calls that led nowhere.
    fn nowhere() -> Self {
        let none: Arc<str> = "".into();
        Self { serial: 0, name: none.clone(), namespace: none.clone(), port: none, by_model: HashMap::default() }
    }

    fn labels(&self, status: &'static str, model: Arc<str>) -> Labels {
        Labels {
            status,
            target_model_name: model,
            endpoint_name: self.name.clone(),
            namespace: self.namespace.clone(),
            port: self.port.clone(),
        }
    }

    fn is_named_like(&self, other: &Self) -> bool {
        (&self.name, &self.namespace, &self.port) == (&other.name, &other.namespace, &other.port)
    }
}

const SUCCESS: &str = "success";
const FAILURE: &str = "failure";

/// The series by the slot of the endpoint and the model, so that counting formats and hashes no labels.
pub(super) struct Attempts {
    families: AttemptFamilies,
    values: Arc<LabelValues>,
    endpoints: RwLock<Vec<Option<Endpoint>>>,
    nowhere: RwLock<Endpoint>,
    n_series: AtomicUsize,
}

impl Attempts {
    pub fn new(families: AttemptFamilies, values: Arc<LabelValues>) -> Self {
        Self {
            families,
            values,
            endpoints: RwLock::default(),
            nowhere: RwLock::new(Endpoint::nowhere()),
            n_series: AtomicUsize::new(0),
        }
    }

    pub fn succeeded(&self, model: &str, id: EndpointId, meta: &EndpointMeta) {
        let move_known = |model: &str| {
            let endpoints = self.endpoints.read();
            let endpoint = endpoints.get(id.slot()).and_then(Option::as_ref).filter(|e| e.serial == id.serial());
            endpoint.and_then(|e| e.by_model.get(model)).map(Series::inc).is_some()
        };
        if move_known(model) {
            return;
        }
        let model = self.values.models.admit(model);
        if move_known(&model) {
            return;
        }
        let mut endpoints = self.endpoints.write();
        if endpoints.len() <= id.slot() {
            endpoints.resize_with(id.slot() + 1, || None);
        }
        if endpoints[id.slot()].as_ref().is_some_and(|e| e.serial != id.serial()) {
            self.clear(&mut endpoints, id.slot());
        }
        let endpoint = endpoints[id.slot()].get_or_insert_with(|| Endpoint::new(id, meta));
        self.count(endpoint, SUCCESS, model);
    }

    pub fn failed(&self, model: &str) {
        let move_known = |model: &str| self.nowhere.read().by_model.get(model).map(Series::inc).is_some();
        if move_known(model) {
            return;
        }
        let model = self.values.models.admit(model);
        if !move_known(&model) {
            self.count(&mut self.nowhere.write(), FAILURE, model);
        }
    }

    /// Counts for an admitted model that may not have its series yet, or never will.
    fn count(&self, endpoint: &mut Endpoint, status: &'static str, mut model: Arc<str>) {
        if !endpoint.by_model.contains_key(&model) && self.n_series.load(Relaxed) >= MOST_SERIES {
            model = OTHER.into();
        }
        let labels = endpoint.labels(status, model.clone());
        let series = endpoint.by_model.entry(model).or_insert_with(|| {
            self.n_series.fetch_add(1, Relaxed);
            self.families.series(&labels)
        });
        series.inc();
    }

    pub fn forget(&self, id: EndpointId) {
        let mut endpoints = self.endpoints.write();
        if endpoints.get(id.slot()).and_then(Option::as_ref).is_some_and(|e| e.serial == id.serial()) {
            self.clear(&mut endpoints, id.slot());
        }
    }

    /// Empties a slot and takes its series off the page, but for those that an endpoint of the same name goes on moving.
    fn clear(&self, endpoints: &mut [Option<Endpoint>], slot: usize) {
        let Some(gone) = endpoints[slot].take() else { return };
        self.n_series.fetch_sub(gone.by_model.len(), Relaxed);
        let heir = endpoints.iter().flatten().find(|e| e.is_named_like(&gone));
        for model in gone.by_model.keys() {
            if !heir.is_some_and(|heir| heir.by_model.contains_key(model)) {
                self.families.remove(&gone.labels(SUCCESS, model.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::{EndpointName, MetricHub};

    use super::super::SchedMetrics;
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    fn meta(name: &str) -> EndpointMeta {
        let name = EndpointName { namespace: "default".into(), name: name.into() };
        EndpointMeta::new(name, "127.0.0.1".into(), 9101, Default::default(), 0)
    }

    /// The sample lines of attempts: label values and count.
    fn lines(hub: &MetricHub, name: &str) -> Vec<String> {
        let page = page(hub, Format::Text).expect("no collector");
        let samples = page.lines().filter_map(|l| l.strip_prefix(&format!("{name}{{")));
        let mut lines: Vec<_> = samples
            .map(|l| {
                let (labels, count) = l.rsplit_once("} ").expect("labels end before the value");
                let values: Vec<_> = labels.split('"').skip(1).step_by(2).collect();
                format!("{}={count}", values.join(","))
            })
            .collect();
        lines.sort();
        lines
    }

    fn attempts(hub: &MetricHub) -> Vec<String> {
        let new = lines(hub, "llm_d_epp_scheduler_attempts_total");
        assert_eq!(new, lines(hub, "inference_extension_scheduler_attempts_total"));
        new
    }

    #[test]
    fn attempts_name_the_endpoint_or_none() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        assert_eq!(attempts(&hub), [""; 0]);
        for _ in 0..2 {
            metrics.succeeded("m", EndpointId::new(2, 1), &meta("e"));
            metrics.failed("m");
        }
        assert_eq!(attempts(&hub), ["failure,m,,,=2", "success,m,e,default,9101=2"]);
        let page = page(&hub, Format::Text).expect("no collector");
        let old = "inference_extension_scheduler_attempts_total{status=\"success\",target_model_name=\"m\",pod_name=\"e\",namespace=\"default\",port=\"9101\"} 2";
        assert!(page.contains(old), "{page}");
    }

    #[test]
    fn a_removed_endpoint_leaves_the_page() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        let id = EndpointId::new(0, 1);
        metrics.succeeded("m", id, &meta("e"));
        metrics.succeeded("n", id, &meta("e"));
        metrics.succeeded("m", EndpointId::new(1, 2), &meta("f"));
        metrics.forget(EndpointId::new(0, 7));
        metrics.forget(id);
        assert_eq!(attempts(&hub), ["success,m,f,default,9101=1"]);
    }

    #[test]
    fn an_endpoint_that_came_back_keeps_its_series_when_the_old_one_is_forgotten() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        let (old, new) = (EndpointId::new(0, 1), EndpointId::new(1, 2));
        metrics.succeeded("m", old, &meta("e"));
        metrics.succeeded("m", new, &meta("e"));
        metrics.forget(old);
        metrics.succeeded("m", new, &meta("e"));
        assert_eq!(attempts(&hub), ["success,m,e,default,9101=3"]);
    }

    #[test]
    fn a_slot_that_changed_hands_counts_for_the_new_endpoint() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        metrics.succeeded("m", EndpointId::new(0, 1), &meta("e"));
        metrics.succeeded("m", EndpointId::new(0, 2), &meta("f"));
        assert_eq!(attempts(&hub), ["success,m,f,default,9101=1"]);
    }

    #[test]
    fn pairs_of_endpoint_and_model_are_bounded() {
        let hub = MetricHub::default();
        let metrics = SchedMetrics::new(&hub);
        for e in 0..12 {
            let meta = meta(&format!("e{e}"));
            for m in 0..1000 {
                metrics.succeeded(&format!("m{m}"), EndpointId::new(e, e + 1), &meta);
            }
        }
        let lines = attempts(&hub);
        assert_eq!(lines.len(), MOST_SERIES + 2);
        assert!(lines.contains(&"success,other,e11,default,9101=1000".to_owned()));
        metrics.forget(EndpointId::new(0, 1));
        metrics.succeeded("m0", EndpointId::new(11, 12), &meta("e11"));
        assert!(attempts(&hub).contains(&"success,m0,e11,default,9101=1".to_owned()));
    }
}
