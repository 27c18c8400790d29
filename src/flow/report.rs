//! How things stand in room 3, for the debug page.

use epp_plugin_api::FlowId;
use serde::Serialize;
use tokio::time::Instant;

use crate::flow::core::{Core, World};

/// As many flows of a band are shown.
const MOST_FLOWS: usize = 100;

/// Everyone who waits, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub requests: u64,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    pub has_endpoints: bool,
    pub saturation: Saturation,
    /// Let go, and not yet counted where they went.
    pub departing: u64,
    /// The highest priority first.
    pub bands: Vec<BandReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionReport>,
}

/// How full the pool is, by stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saturation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<f64>,
    pub effective: f64,
}

/// One priority.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BandReport {
    pub priority: i32,
    /// Whether the config in force has it.
    pub configured: bool,
    pub requests: u64,
    pub bytes: u64,
    pub max_requests: u64,
    pub max_bytes: u64,
    /// As last asked for.
    pub ceiling: f64,
    /// Of the one that has waited longest, if flows are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait_seconds: Option<f64>,
    /// How many flows have somebody waiting, shown or not.
    pub n_flows: usize,
    /// The first of them by name, if they are asked for.
    pub flows: Vec<FlowReport>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlowReport {
    pub fairness_id: String,
    pub requests: usize,
}

/// What is under way, and what is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EvictionReport {
    pub in_flight: usize,
    pub evictable: usize,
    /// By how much the saturation is still to fall.
    pub pending: f64,
}

impl Report {
    /// Looks at everything.
    pub fn of<P, V>(core: &mut Core<P, V>, world: World<'_>) -> Self {
        let fullness = core.measure(world);
        let queue = &core.queue;
        let bands = queue.bands().iter().zip(queue.ceilings()).map(|(band, ceiling)| BandReport {
            priority: band.settings.priority,
            configured: band.configured,
            requests: band.load.requests,
            bytes: band.load.bytes,
            max_requests: band.settings.max_requests,
            max_bytes: band.settings.max_bytes,
            ceiling: *ceiling,
            longest_wait_seconds: None,
            n_flows: band.flows().len(),
            flows: Vec::new(),
        });
        Self {
            requests: queue.load().requests,
            bytes: queue.load().bytes,
            max_requests: queue.settings().max_requests,
            max_bytes: queue.settings().max_bytes,
            has_endpoints: !world.snapshot.is_empty(),
            saturation: Saturation {
                prefill: fullness.prefill,
                decode: fullness.decode,
                effective: fullness.effective,
            },
            departing: core.departing().requests,
            bands: bands.collect(),
            eviction: queue.settings().eviction.then(|| EvictionReport {
                in_flight: core.running.in_flight(),
                evictable: core.running.evictable(),
                pending: core.reclaim.pending(),
            }),
        }
    }

    /// Adds who waits in each band; walks everyone who does.
    pub fn add_flows<P, V>(&mut self, core: &Core<P, V>, now: Instant) {
        for (report, band) in self.bands.iter_mut().zip(core.queue.bands()) {
            report.longest_wait_seconds = band.longest().map(|at| now.saturating_duration_since(at).as_secs_f64());
            let flow = |(name, requests): (&FlowId, usize)| FlowReport { fairness_id: name.to_string(), requests };
            report.flows = band.flows().take(MOST_FLOWS).map(flow).collect();
        }
    }
}
