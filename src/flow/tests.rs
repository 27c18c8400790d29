//! Whole lives of queues, made up at random and told by a made-up clock, and of the shell around them.

mod lives;
mod queue;
mod shell;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use epp_plugin_api::{
    BuildContext, Candidates, Departing, EndpointId, EndpointMeta, EndpointName, Instance, MetricHub, Observed,
    Saturation, Slots, Snapshot, SnapshotRow,
};
use tokio::time::Instant;

use crate::flow::settings::{BandSettings, Settings};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A plugin of this type, without parameters.
fn plugin(kind: &str) -> Instance {
    let kind = crate::app::registry().iter().find(|k| k.name == kind).expect("a type of plugin");
    let (slots, metrics) = (Slots::default(), MetricHub::default());
    let mut cx = BuildContext::new(kind.name, None, &slots, &metrics, Duration::from_secs(2));
    (kind.build)(&mut cx).expect("a plugin that needs no parameters")
}

/// A pool that a test fills and empties.
#[derive(Debug, Default)]
struct Pool {
    in_flight: AtomicU64,
    /// Requests that make it full.
    most: AtomicU64,
    /// Whether its engines say so, and not the picker that counts.
    is_late: AtomicBool,
}

impl Pool {
    fn new(most: u64, is_late: bool) -> Arc<Self> {
        Arc::new(Self { most: most.into(), is_late: is_late.into(), ..Self::default() })
    }
}

impl Saturation for Pool {
    fn saturation(&self, snapshot: &Snapshot, among: &Candidates, now: Instant) -> f64 {
        self.saturation_with(snapshot, among, Departing::default(), now)
    }

    fn saturation_with(&self, _: &Snapshot, among: &Candidates, departing: Departing, _: Instant) -> f64 {
        let departing = if self.is_late.load(Relaxed) { 0 } else { departing.requests };
        if among.is_empty() {
            1.0
        } else {
            (self.in_flight.load(Relaxed) + departing) as f64 / self.most.load(Relaxed) as f64
        }
    }

    fn counts_requests(&self) -> bool {
        !self.is_late.load(Relaxed)
    }
}

fn band(priority: i32, most: u64, fairness: &str) -> BandSettings {
    BandSettings {
        priority,
        max_bytes: 1000 * most,
        max_requests: most,
        fairness: plugin(fairness).fairness.expect("a fairness policy"),
        ordering: plugin("fcfs-ordering-policy").ordering.expect("an ordering policy"),
    }
}

/// Bands of these priorities, highest first.
fn settings(pool: &Arc<Pool>, priorities: &[i32], fairness: &str) -> Settings {
    Settings {
        max_bytes: None,
        max_requests: None,
        ttl: Some(MS(60_000)),
        no_endpoint_ttl: Some(MS(60_000)),
        bands: priorities.iter().map(|priority| band(*priority, 5000, fairness)).collect(),
        default_band: band(0, 5000, fairness),
        negative_band: band(-1, 5000, fairness),
        usage_limit: plugin("static-usage-limit-policy").usage_limit.expect("a usage limit policy"),
        saturation: pool.clone(),
        eviction: false,
    }
}

/// So many endpoints, heard just now.
fn endpoints(n: u32) -> Snapshot {
    let now = Instant::now();
    let rows = (0..n).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let meta = EndpointMeta::new(name, format!("10.0.0.{i}"), 8000, Default::default(), 0);
        let observed = Observed { waiting: Some(0.0), at: Some(now), ..Observed::default() };
        SnapshotRow { id: EndpointId::new(i, i + 1), meta: Arc::new(meta), observed }
    });
    Snapshot::new(u64::from(n) + 1, rows, now, Duration::from_secs(2))
}
