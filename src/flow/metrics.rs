//! What is counted and timed of waiting, by flow, priority and model.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry, ShowOne};
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;
use tokio::time::Instant;

use crate::flow::outcome::Outcome;
use crate::telemetry::families::{Counters, Gauges, Histograms, histograms, put, put_deprecated};
use crate::telemetry::labels::{LabelValues, OTHER};

static QUEUE_SECONDS: &[f64] =
    &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
static STEP_SECONDS: &[f64] = &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];
static REVOCATION_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What the families of waiting began with before.
pub const OLD_PREFIX: &str = "inference_extension_flow_control_";

/// How many label sets have series of their own.
const MOST_SERIES: usize = 4096;
/// A flow whose requests have all left so long ago loses its series.
const IDLE_SECONDS: u64 = 300;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct FlowLabels {
    fairness_id: Arc<str>,
    priority: i32,
    inference_pool: Arc<str>,
    model_name: Arc<str>,
    target_model_name: Arc<str>,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct WaitLabels {
    #[prometheus(flatten)]
    flow: FlowLabels,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct StepLabels {
    fairness_id: Arc<str>,
    priority: i32,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct OutcomeLabels {
    outcome: &'static str,
    priority: i32,
    inference_pool: Arc<str>,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct DemandLabels {
    priority: i32,
    inference_pool: Arc<str>,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct EndLabels {
    outcome: &'static str,
    inference_pool: Arc<str>,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct PoolLabels {
    inference_pool: Arc<str>,
}

type Float = Gauge<f64, AtomicU64>;

struct FlowFamilies {
    waits: Histograms<WaitLabels>,
    steps: Histograms<StepLabels>,
    cycles: Histogram,
    size: Gauges<FlowLabels>,
    bytes: Gauges<FlowLabels>,
    outcomes: Counters<OutcomeLabels>,
    revoked: Counters<DemandLabels>,
    ended: Counters<EndLabels>,
    target: Family<PoolLabels, Float>,
    pending: Family<PoolLabels, Float>,
    confirmations: Histograms<PoolLabels>,
}

impl Default for FlowFamilies {
    fn default() -> Self {
        Self {
            waits: histograms(QUEUE_SECONDS),
            steps: histograms(STEP_SECONDS),
            cycles: Histogram::new(STEP_SECONDS.iter().copied()),
            size: Family::default(),
            bytes: Family::default(),
            outcomes: Family::default(),
            revoked: Family::default(),
            ended: Family::default(),
            target: Family::default(),
            pending: Family::default(),
            confirmations: histograms(REVOCATION_SECONDS),
        }
    }
}

impl MetricFamilies for FlowFamilies {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = "request_queue_duration_seconds";
        put_both(registry, name, "How long requests waited, by how that ended", self.waits.clone());
        let name = "request_enqueue_duration_seconds";
        put_both(registry, name, "How long it took to take requests in or turn them away", self.steps.clone());
        let name = "dispatch_cycle_duration_seconds";
        put_both(registry, name, "How long it took to say who goes", self.cycles.clone());
        put_both(registry, "queue_size", "Requests that wait", self.size.clone());
        put_both(registry, "queue_bytes", "Bytes of the bodies of requests that wait", self.bytes.clone());
        put(registry, "flow_control_requests", "Requests by how their wait ended", self.outcomes.clone());
        let help = "Decisions to end requests under way, by the priority that they are for";
        put(registry, "flow_control_revocations_issued", help, self.revoked.clone());
        let help = "Requests that were told to end, by whether they did in time";
        put(registry, "flow_control_revocations", help, self.ended.clone());
        let help = "By how much the pool was too full at the last such decision";
        put(registry, "flow_control_reclaim_target", help, self.target.clone());
        let help = "By how much the pool is still to become less full";
        put(registry, "flow_control_pending_reclaim", help, self.pending.clone());
        let help = "How long requests took to end once told to";
        put(registry, "flow_control_revocation_confirmation_seconds", help, self.confirmations.clone());
    }
}

/// Puts a family on the page under its name and under its older one.
fn put_both(registry: &mut MetricRegistry, name: &str, help: &str, metric: impl Metric + ShowOne + Clone) {
    let now = format!("flow_control_{name}");
    put(registry, &now, help, metric.clone());
    put_deprecated(registry, &format!("{OLD_PREFIX}{name}"), &now, metric);
}

/// A label set without the pool.
type Key = (Arc<str>, i32, Arc<str>, Arc<str>);

/// The metrics of waiting. One for the process.
pub struct FlowMetrics {
    families: Arc<FlowFamilies>,
    values: Arc<LabelValues>,
    pool: Arc<str>,
    began: Instant,
    series: RwLock<HashMap<Key, Arc<FlowSeries>, foldhash::fast::RandomState>>,
}

impl FlowMetrics {
    /// Puts the families on the page of the hub.
    pub fn new(hub: &MetricHub, pool: &str) -> Self {
        Self {
            families: hub.families(),
            values: LabelValues::of(hub),
            pool: pool.into(),
            began: Instant::now(),
            series: RwLock::default(),
        }
    }

    /// The series of a flow. Names past the bounds of their label count as `other`, and so do all names of a set that
    /// comes after there are 4096 sets.
    pub fn series(&self, fairness: &str, priority: i32, model: &str, target: &str) -> Arc<FlowSeries> {
        let models = &self.values.models;
        let key = (self.values.fairness_ids.admit(fairness), priority, models.admit(model), models.admit(target));
        let seconds = self.began.elapsed().as_secs();
        if let Some(known) = self.series.read().get(&key) {
            known.used.store(seconds, Relaxed);
            return known.clone();
        }
        let mut all = self.series.write();
        let other = || Arc::<str>::from(OTHER);
        let key = if all.len() < MOST_SERIES { key } else { (other(), priority, other(), other()) };
        let series = all.entry(key).or_insert_with_key(|(fairness_id, priority, model_name, target_model_name)| {
            let labels = FlowLabels {
                fairness_id: fairness_id.clone(),
                priority: *priority,
                inference_pool: self.pool.clone(),
                model_name: model_name.clone(),
                target_model_name: target_model_name.clone(),
            };
            Arc::new(FlowSeries::new(self.families.clone(), labels))
        });
        series.used.store(seconds, Relaxed);
        series.clone()
    }

    /// A step of the state machine took so long.
    pub fn cycle(&self, took: Duration) {
        self.families.cycles.observe(took.as_secs_f64());
    }

    /// It was decided to end requests under way for others of this priority, for which the pool was so much too full.
    pub fn revoked(&self, priority: i32, target: f64) {
        let labels = DemandLabels { priority, inference_pool: self.pool.clone() };
        self.families.revoked.get_or_create_owned(&labels).inc();
        self.families.target.get_or_create_owned(&self.of_pool()).set(target);
    }

    /// A request ended so long after it was told to.
    pub fn confirmed(&self, after: Duration) {
        self.ended("confirmed", 1);
        self.families.confirmations.get_or_create_owned(&self.of_pool()).observe(after.as_secs_f64());
    }

    /// So many requests did not end though they were told to.
    pub fn timed_out(&self, n: usize) {
        self.ended("timed_out", n as u64);
    }

    fn ended(&self, outcome: &'static str, n: u64) {
        if n > 0 {
            let labels = EndLabels { outcome, inference_pool: self.pool.clone() };
            self.families.ended.get_or_create_owned(&labels).inc_by(n);
        }
    }

    /// By how much the pool is still to become less full.
    pub fn pending(&self, pending: f64) {
        self.families.pending.get_or_create_owned(&self.of_pool()).set(pending);
    }

    fn of_pool(&self) -> PoolLabels {
        PoolLabels { inference_pool: self.pool.clone() }
    }

    /// Takes the series of flows off the page that have been idle for long.
    pub fn prune(&self) {
        let now = self.began.elapsed().as_secs();
        let mut all = self.series.write();
        let is_idle = |one: &Arc<FlowSeries>| {
            // Whoever holds it is about to move it.
            Arc::strong_count(one) == 1 && now.saturating_sub(one.used.load(Relaxed)) >= IDLE_SECONDS
        };
        let flow = |key: &Key| (key.0.clone(), key.1);
        let busy: HashSet<_> = all.iter().filter(|(_, one)| !is_idle(one)).map(|(key, _)| flow(key)).collect();
        all.retain(|key, one| {
            let keep = busy.contains(&flow(key)) || &*key.0 == OTHER;
            if !keep {
                one.remove();
            }
            keep
        });
    }
}

/// The series of one set of labels; each is on the page once it has moved.
pub struct FlowSeries {
    families: Arc<FlowFamilies>,
    labels: FlowLabels,
    /// When it was last asked for, in seconds since the metrics began.
    used: AtomicU64,
    queue: OnceLock<(Gauge, Gauge)>,
    of_outcome: [OnceLock<(Counter, Histogram)>; Outcome::ALL.len()],
    steps: [OnceLock<Histogram>; Outcome::ALL.len() + 1],
}

impl FlowSeries {
    fn new(families: Arc<FlowFamilies>, labels: FlowLabels) -> Self {
        Self {
            families,
            labels,
            used: AtomicU64::new(0),
            queue: OnceLock::new(),
            of_outcome: Default::default(),
            steps: Default::default(),
        }
    }

    fn queue(&self) -> &(Gauge, Gauge) {
        self.queue.get_or_init(|| {
            let f = &self.families;
            (f.size.get_or_create_owned(&self.labels), f.bytes.get_or_create_owned(&self.labels))
        })
    }

    /// A request of so many bytes begins to wait.
    pub fn came(&self, bytes: u64) {
        let (size, sum) = self.queue();
        size.inc();
        sum.inc_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// It does so no more.
    pub fn went(&self, bytes: u64) {
        let (size, sum) = self.queue();
        size.dec();
        sum.dec_by(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// A request was taken in, or turned away, in so much time; `None`: it was taken in, whether it then waits or goes.
    pub fn handled(&self, outcome: Option<Outcome>, took: Duration) {
        let (at, outcome) = outcome.map_or((Outcome::ALL.len(), "NotYetFinalized"), |o| (o as usize, o.label()));
        let histogram = self.steps[at].get_or_init(|| {
            let FlowLabels { fairness_id, priority, .. } = self.labels.clone();
            self.families.steps.get_or_create_owned(&StepLabels { fairness_id, priority, outcome })
        });
        histogram.observe(took.as_secs_f64());
    }

    /// A request is done with waiting, after so much time.
    pub fn left(&self, outcome: Outcome, waited: Duration) {
        // So that the queue is on the page, though empty.
        self.queue();
        let (counter, histogram) = self.of_outcome[outcome as usize].get_or_init(|| {
            let FlowLabels { priority, inference_pool, .. } = self.labels.clone();
            let labels = OutcomeLabels { outcome: outcome.label(), priority, inference_pool };
            let waits = WaitLabels { flow: self.labels.clone(), outcome: outcome.label() };
            let f = &self.families;
            (f.outcomes.get_or_create_owned(&labels), f.waits.get_or_create_owned(&waits))
        });
        counter.inc();
        histogram.observe(waited.as_secs_f64());
    }

    fn remove(&self) {
        let FlowLabels { fairness_id, priority, .. } = &self.labels;
        self.families.size.remove(&self.labels);
        self.families.bytes.remove(&self.labels);
        for outcome in Outcome::ALL.map(Outcome::label).into_iter().chain(["NotYetFinalized"]) {
            self.families.waits.remove(&WaitLabels { flow: self.labels.clone(), outcome });
            let labels = StepLabels { fairness_id: fairness_id.clone(), priority: *priority, outcome };
            self.families.steps.remove(&labels);
        }
    }
}
