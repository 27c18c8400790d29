//! The gauges of requests and tokens in flight, and the handles by which a request moves them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epp_plugin_api::{EndpointId, EndpointName, MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// So many fairness ids get a series of their own; later ones share the series [`OTHER`].
const MOST_FAIRNESS_IDS: usize = 1000;
const OTHER: &str = "other";
/// So many endpoints are told of on the debug page.
const MOST_TOLD: usize = 100;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    endpoint_name: String,
    namespace: String,
    producer_name: String,
    fairness_id: String,
    priority: i32,
}

#[derive(Default)]
struct Families {
    requests: Family<Labels, Gauge>,
    tokens: Family<Labels, Gauge>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "llm_d_epp_inflight_requests",
            "Requests in flight from this picker by endpoint and flow",
            self.requests.clone(),
        );
        registry.register(
            "llm_d_epp_inflight_tokens",
            "Estimated tokens in flight from this picker by endpoint and flow",
            self.tokens.clone(),
        );
    }
}

/// The two series of one endpoint and one flow.
#[derive(Clone, Debug)]
pub struct Gauges {
    pub requests: Gauge,
    pub tokens: Gauge,
}

type OfPriority = HashMap<Box<str>, Gauges, foldhash::fast::RandomState>;

/// The series of one endpoint.
struct OfEndpoint {
    name: EndpointName,
    /// By priority, and then by fairness id.
    flows: HashMap<i32, OfPriority, foldhash::fast::RandomState>,
}

/// Every series of one producer. A known flow of a known endpoint is found without taking memory.
pub struct InFlightMetrics {
    families: Arc<Families>,
    producer: String,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    endpoints: HashMap<EndpointId, OfEndpoint, foldhash::fast::RandomState>,
    fairness_ids: HashSet<Box<str>, foldhash::fast::RandomState>,
}

impl Known {
    fn find(&self, id: EndpointId, fairness_id: &str, priority: i32) -> Option<&Gauges> {
        self.endpoints.get(&id)?.flows.get(&priority)?.get(fairness_id)
    }

    /// The label's value for a fairness id.
    fn admit<'a>(&mut self, fairness_id: &'a str) -> &'a str {
        if self.fairness_ids.contains(fairness_id) {
            return fairness_id;
        }
        if self.fairness_ids.len() >= MOST_FAIRNESS_IDS {
            return OTHER;
        }
        self.fairness_ids.insert(fairness_id.into());
        fairness_id
    }
}

impl InFlightMetrics {
    /// Makes the series of the instance of this name.
    pub fn new(hub: &MetricHub, producer: &str) -> Self {
        Self { families: hub.families(), producer: producer.to_owned(), known: RwLock::default() }
    }

    /// The series of an endpoint and a flow.
    pub fn of(&self, id: EndpointId, name: &EndpointName, fairness_id: &str, priority: i32) -> Gauges {
        if let Some(gauges) = self.known.read().find(id, fairness_id, priority) {
            return gauges.clone();
        }
        let mut known = self.known.write();
        let fairness_id = known.admit(fairness_id);
        if let Some(gauges) = known.find(id, fairness_id, priority) {
            return gauges.clone();
        }
        let labels = self.labels(name, fairness_id, priority);
        let gauges = Gauges {
            requests: self.families.requests.get_or_create_owned(&labels),
            tokens: self.families.tokens.get_or_create_owned(&labels),
        };
        let endpoint =
            known.endpoints.entry(id).or_insert_with(|| OfEndpoint { name: name.clone(), flows: HashMap::default() });
        endpoint.flows.entry(priority).or_default().insert(fairness_id.into(), gauges.clone());
        gauges
    }

    /// Takes the series of an endpoint off the page, unless another one of its name has come since.
    pub fn forget(&self, id: EndpointId) {
        let mut known = self.known.write();
        let Some(gone) = known.endpoints.remove(&id) else { return };
        if known.endpoints.values().any(|other| other.name == gone.name) {
            return;
        }
        for (priority, flows) in &gone.flows {
            for fairness_id in flows.keys() {
                let labels = self.labels(&gone.name, fairness_id, *priority);
                self.families.requests.remove(&labels);
                self.families.tokens.remove(&labels);
            }
        }
    }

    /// What is in flight by endpoint as JSON, the most first.
    pub fn told(&self) -> String {
        let known = self.known.read();
        let sum = |endpoint: &OfEndpoint| {
            let gauges = endpoint.flows.values().flat_map(HashMap::values);
            gauges.fold((0, 0), |(requests, tokens), g| (requests + g.requests.get(), tokens + g.tokens.get()))
        };
        let mut endpoints: Vec<_> = known.endpoints.values().map(|e| (e.name.to_string(), sum(e))).collect();
        endpoints.sort_by(|(a, (ra, ta)), (b, (rb, tb))| (rb + tb).cmp(&(ra + ta)).then_with(|| a.cmp(b)));
        let truncated = endpoints.len() > MOST_TOLD;
        let shown: Vec<_> = endpoints
            .into_iter()
            .take(MOST_TOLD)
            .map(|(endpoint, (requests, tokens))| {
                serde_json::json!({"endpoint": endpoint, "requests": requests, "tokens": tokens})
            })
            .collect();
        serde_json::json!({"endpoints": shown, "truncated": truncated}).to_string()
    }

    fn labels(&self, name: &EndpointName, fairness_id: &str, priority: i32) -> Labels {
        Labels {
            endpoint_name: name.name.clone(),
            namespace: name.namespace.clone(),
            producer_name: self.producer.clone(),
            fairness_id: fairness_id.to_owned(),
            priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_series(hub: &MetricHub, what: &str) -> usize {
        let (mut page, start) = (String::new(), format!("llm_d_epp_inflight_{what}{{"));
        let wrote = hub.with_registry(|r| prometheus_client::encoding::text::encode(&mut page, r));
        assert!(wrote.is_ok());
        page.lines().filter(|line| line.starts_with(&start)).count()
    }

    fn endpoint(name: &str) -> EndpointName {
        EndpointName { namespace: "default".into(), name: name.into() }
    }

    #[test]
    fn fairness_ids_beyond_the_bound_share_a_series() {
        let hub = MetricHub::default();
        let metrics = InFlightMetrics::new(&hub, "p");
        for i in 0..MOST_FAIRNESS_IDS + 50 {
            metrics.of(EndpointId::new(0, 1), &endpoint("a"), &format!("f{i}"), 0).requests.inc();
        }
        assert_eq!(n_series(&hub, "requests"), MOST_FAIRNESS_IDS + 1);
        assert_eq!(metrics.of(EndpointId::new(0, 1), &endpoint("a"), "new", 0).requests.get(), 50);
        assert_eq!(metrics.of(EndpointId::new(0, 1), &endpoint("a"), "f7", 0).requests.get(), 1);
    }

    #[test]
    fn the_busiest_endpoints_are_told_first_and_not_too_many() {
        let hub = MetricHub::default();
        let metrics = InFlightMetrics::new(&hub, "p");
        for (slot, name, tokens) in [(0, "b", 5), (1, "a", 5), (2, "c", 9)] {
            let gauges = metrics.of(EndpointId::new(slot, 1), &endpoint(name), "f", 0);
            gauges.requests.inc();
            gauges.tokens.inc_by(tokens);
        }
        metrics.of(EndpointId::new(0, 1), &endpoint("b"), "g", 1).requests.inc();
        let told = |name: &str, requests: i64, tokens: i64| {
            format!(r#"{{"endpoint":"default/{name}","requests":{requests},"tokens":{tokens}}}"#)
        };
        let expected = [told("c", 1, 9), told("b", 2, 5), told("a", 1, 5)].join(",");
        assert_eq!(metrics.told(), format!(r#"{{"endpoints":[{expected}],"truncated":false}}"#));
        for slot in 3..110 {
            metrics.of(EndpointId::new(slot, 1), &endpoint(&format!("x{slot}")), "f", 0);
        }
        let told = metrics.told();
        assert_eq!((told.matches("endpoint\"").count(), told.ends_with(r#""truncated":true}"#)), (MOST_TOLD, true));
    }

    #[test]
    fn series_of_an_endpoint_that_is_gone_vanish() {
        let hub = MetricHub::default();
        let metrics = InFlightMetrics::new(&hub, "p");
        let (old, new) = (EndpointId::new(0, 1), EndpointId::new(0, 2));
        metrics.of(old, &endpoint("a"), "f", 0);
        metrics.of(EndpointId::new(1, 1), &endpoint("b"), "f", 0);
        metrics.of(new, &endpoint("a"), "f", 0);
        metrics.forget(old);
        assert_eq!(n_series(&hub, "requests"), 2);
        metrics.forget(new);
        metrics.forget(new);
        assert_eq!((n_series(&hub, "requests"), n_series(&hub, "tokens")), (1, 1));
    }
}
