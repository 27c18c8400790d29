//! Board, gauges: the pool's averages from time to time, and each endpoint's queue whenever the page is written.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::{
    EndpointId, EndpointIdx, EndpointMeta, EndpointName, MetricFamilies, MetricRegistry, Observed, Snapshot,
    SnapshotRow,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use tokio::time::Instant;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Pool {
    name: String,
}

type Floats = Family<Pool, Gauge<f64, AtomicU64>>;
type Counts = Family<Pool, Gauge<i64, AtomicI64>>;

/// What the board shows of the pool as a whole.
#[derive(Debug, Default)]
pub struct BoardMetrics {
    kv_usage: Spread,
    waiting: Spread,
    running: Spread,
    ready: Counts,
    /// Endpoints that are not fresh.
    pub stale: Gauge,
    /// Entries of the endpoints file that are not used as they stand.
    pub bad_entries: Gauge,
    /// Contents of the endpoints file that could not be used.
    pub refused_files: Counter,
}

/// The average of a value over the fresh endpoints, and how far they are apart.
#[derive(Debug, Default)]
struct Spread {
    mean: Floats,
    deviation: Floats,
}

impl MetricFamilies for BoardMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
        for (spread, name, what) in [
            (&self.kv_usage, "kv_cache_utilization", "share of the KV cache in use"),
            (&self.waiting, "queue_size", "number of waiting requests"),
            (&self.running, "running_requests", "number of running requests"),
        ] {
            let help = format!("[ALPHA] The average {what} over the fresh endpoints of the pool");
            let new = format!("llm_d_epp_average_{name}");
            registry.register(&new, help, spread.mean.clone());
            registry.register_deprecated(format!("inference_pool_average_{name}"), &new, spread.mean.clone());
            let help = format!("[ALPHA] The standard deviation of the {what} over the fresh endpoints of the pool");
            registry.register(format!("llm_d_epp_std_dev_{name}"), help, spread.deviation.clone());
        }
        let help = "[ALPHA] The number of fresh endpoints of the pool";
        let new = "llm_d_epp_ready_endpoints";
        registry.register(new, help, self.ready.clone());
        registry.register_deprecated("inference_pool_ready_pods", new, self.ready.clone());
        let help = "Endpoints whose engine was not heard of within the staleness threshold";
        registry.register("epp_board_stale_endpoints", help, self.stale.clone());
        let help = "Entries of the endpoints file that are not used as they stand";
        registry.register("epp_board_bad_entries", help, self.bad_entries.clone());
        let help = "Changes of the endpoints file that could not be used";
        registry.register("epp_board_refused_files", help, self.refused_files.clone());
    }
}

impl BoardMetrics {
    /// Sets the pool's averages. With no fresh endpoint they stay what they were.
    pub fn set(&self, pool: &str, snapshot: &Snapshot) {
        let pool = Pool { name: pool.to_owned() };
        let fresh: Vec<&Observed> =
            snapshot.indices().filter(|i| snapshot.is_fresh(*i)).map(|i| snapshot.observed(i)).collect();
        self.ready.get_or_create(&pool).set(i64::try_from(fresh.len()).unwrap_or(i64::MAX));
        if fresh.is_empty() {
            return;
        }
        let of = |value: fn(&Observed) -> Option<f64>| mean_and_deviation(fresh.iter().map(|o| shown(value(o))));
        for (spread, (mean, deviation)) in [
            (&self.kv_usage, of(|o| o.kv_usage)),
            (&self.waiting, of(|o| o.waiting)),
            (&self.running, of(|o| o.running)),
        ] {
            spread.mean.get_or_create(&pool).set(mean);
            spread.deviation.get_or_create(&pool).set(deviation);
        }
    }
}

/// What an engine does not show counts as nothing here.
fn shown(value: Option<f64>) -> f64 {
    value.filter(|v| v.is_finite()).unwrap_or_default()
}

/// The mean and the sample standard deviation, both rounded to two decimals.
fn mean_and_deviation(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares: f64 = values.map(|v| (v - mean).powi(2)).sum();
    let round = |v: f64| (v * 100.0).round() / 100.0;
    (round(mean), round((squares / (n - 1.0).max(1.0)).sqrt()))
}

/// Shows the queue of every endpoint, fresh or not, as of when the page is written.
pub struct Queues {
    pub pool: String,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queues({})", self.pool)
    }
}

impl Queues {
    /// The queue of one endpoint, to list the families.
    pub fn example() -> Self {
        let name = EndpointName { namespace: String::new(), name: String::new() };
        let meta = EndpointMeta::new(name, String::new(), 0, BTreeMap::new(), 0);
        let row = SnapshotRow { id: EndpointId::new(0, 0), meta: Arc::new(meta), observed: Observed::default() };
        let snapshot = Snapshot::new(0, [row], Instant::now(), Duration::ZERO);
        Self { pool: String::new(), snapshot: Arc::new(ArcSwap::from_pointee(snapshot)) }
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let snapshot = self.snapshot.load();
        if snapshot.is_empty() {
            return Ok(());
        }
        let labels = labels(&snapshot);
        for (name, label, help) in [
            (
                "llm_d_epp_per_endpoint_queue_size",
                "model_server_endpoint",
                "[ALPHA] The number of requests that wait at each endpoint.",
            ),
            (
                "inference_pool_per_pod_queue_size",
                "model_server_pod",
                "[ALPHA] [Deprecated: Use llm_d_epp_per_endpoint_queue_size] The same under an older name.",
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (idx, endpoint) in &labels {
                let set = [("name", self.pool.as_str()), (label, endpoint.as_str())];
                ConstGauge::new(shown(snapshot.observed(*idx).waiting)).encode(family.encode_family(&set)?)?;
            }
        }
        Ok(())
    }
}

/// The name of every endpoint, with its namespace where the bare name would not tell it apart. No two are equal.
fn labels(snapshot: &Snapshot) -> Vec<(EndpointIdx, String)> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for idx in snapshot.indices() {
        *times.entry(&snapshot.meta(idx).name.name).or_default() += 1;
    }
    let mut taken = HashSet::new();
    let label = |idx: EndpointIdx| {
        let name = &snapshot.meta(idx).name;
        let label = if times[name.name.as_str()] == 1 { name.name.clone() } else { name.to_string() };
        // Names may hold slashes, so even these can meet; a page with one series twice would be no page.
        taken.insert(label.clone()).then_some((idx, label))
    };
    snapshot.indices().filter_map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use epp_plugin_api::{EndpointId, EndpointMeta, EndpointName, MetricHub, SnapshotRow};
    use prometheus_client::encoding::text::encode;
    use tokio::time::Instant;

    fn row(slot: u32, name: (&str, &str), observed: Observed) -> SnapshotRow {
        let name = EndpointName { namespace: name.0.into(), name: name.1.into() };
        let meta = Arc::new(EndpointMeta::new(name, "127.0.0.1".into(), 1, Default::default(), 0));
        SnapshotRow { id: EndpointId::new(slot, slot + 1), meta, observed }
    }

    fn load(kv: Option<f64>, waiting: Option<f64>, running: Option<f64>) -> Observed {
        Observed { kv_usage: kv, waiting, running, at: Some(Instant::now()), ..Observed::default() }
    }

    fn snapshot(rows: Vec<SnapshotRow>) -> Snapshot {
        Snapshot::new(1, rows, Instant::now(), Duration::from_secs(3600))
    }

    fn of(loads: &[Observed]) -> Snapshot {
        let row = |(i, o): (usize, &Observed)| row(i as u32, ("default", &format!("e{i}")), o.clone());
        snapshot(loads.iter().enumerate().map(row).collect())
    }

    fn page(hub: &MetricHub) -> String {
        let mut text = String::new();
        hub.with_registry(|registry| encode(&mut text, registry)).unwrap();
        text
    }

    /// The means and deviations of KV usage, queue and running requests.
    fn gauges(metrics: &BoardMetrics) -> [f64; 6] {
        let pool = Pool { name: "pool".to_owned() };
        let value = |f: &Floats| f.get(&pool).map_or(f64::NAN, |g| g.get());
        let spreads = [&metrics.kv_usage, &metrics.waiting, &metrics.running];
        let mut all = [0.0; 6];
        for (i, spread) in spreads.into_iter().enumerate() {
            (all[i], all[i + 3]) = (value(&spread.mean), value(&spread.deviation));
        }
        all
    }

    #[test]
    fn averages_and_deviations_are_rounded() {
        let full = |kv, waiting, running| load(Some(kv), Some(waiting), Some(running));
        for (loads, expected) in [
            (vec![full(50.0, 3.0, 5.0)], [50.0, 3.0, 5.0, 0.0, 0.0, 0.0]),
            (vec![full(30.0, 2.0, 1.0), full(70.0, 5.0, 3.0)], [50.0, 3.5, 2.0, 28.28, 2.12, 1.41]),
            (vec![full(0.0, 1.0, 0.0), full(0.0, 1.0, 0.0), full(0.1, 0.0, 1.0)], [0.03, 0.67, 0.33, 0.06, 0.58, 0.58]),
            (vec![full(0.5, 3.0, 5.0), load(None, Some(f64::NAN), None)], [0.25, 1.5, 2.5, 0.35, 2.12, 3.54]),
        ] {
            let metrics = BoardMetrics::default();
            metrics.set("pool", &of(&loads));
            assert_eq!(gauges(&metrics), expected);
        }
    }

    #[test]
    fn averages_stay_when_no_endpoint_is_fresh() {
        let hub = MetricHub::default();
        let metrics = hub.families::<BoardMetrics>();
        metrics.set("pool", &of(&[]));
        assert!(page(&hub).contains("llm_d_epp_ready_endpoints{name=\"pool\"} 0\n"));
        metrics.set("pool", &of(&[load(Some(0.5), Some(3.0), Some(5.0))]));
        metrics.set("pool", &of(&[Observed { waiting: Some(9.0), ..Observed::default() }]));
        assert_eq!(gauges(&metrics), [0.5, 3.0, 5.0, 0.0, 0.0, 0.0]);
        let page = page(&hub);
        for line in [
            "llm_d_epp_ready_endpoints{name=\"pool\"} 0\n",
            "inference_pool_ready_pods{name=\"pool\"} 0\n",
            "llm_d_epp_average_queue_size{name=\"pool\"} 3.0\n",
            "inference_pool_average_queue_size{name=\"pool\"} 3.0\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
        assert!(!page.contains("NaN"));
    }

    /// The lines of the page that tell of queues, without those of the old name.
    fn queues(rows: Vec<SnapshotRow>) -> Vec<String> {
        let hub = MetricHub::default();
        let queues = Queues { pool: "pool".into(), snapshot: Arc::new(ArcSwap::from_pointee(snapshot(rows))) };
        hub.with_registry(|registry| registry.register_collector(Box::new(queues)));
        let page = page(&hub);
        page.lines().filter(|l| l.starts_with("llm_d_epp_per_endpoint_queue_size{")).map(str::to_owned).collect()
    }

    fn series(endpoint: &str, value: &str) -> String {
        format!("llm_d_epp_per_endpoint_queue_size{{name=\"pool\",model_server_endpoint=\"{endpoint}\"}} {value}")
    }

    #[test]
    fn every_endpoint_shows_its_queue_fresh_or_not() {
        let stale = Observed { waiting: Some(9.0), ..Observed::default() };
        let rows = vec![
            row(0, ("default", "a"), load(None, Some(4.0), None)),
            row(1, ("default", "b"), stale),
            row(2, ("default", "c"), Observed::default()),
        ];
        assert_eq!(queues(rows), [series("a", "4.0"), series("b", "9.0"), series("c", "0.0")]);
        assert_eq!(queues(vec![]), [""; 0]);
    }

    #[test]
    fn endpoints_of_one_name_are_told_apart_by_their_namespaces() {
        let rows = vec![
            row(0, ("one", "x"), Observed::default()),
            row(1, ("two", "x"), Observed::default()),
            row(2, ("two", "y"), Observed::default()),
            row(3, ("two", "one/x"), Observed::default()),
        ];
        assert_eq!(queues(rows), [series("one/x", "0.0"), series("two/x", "0.0"), series("y", "0.0")]);
    }
}
