//! `utilization-detector`: the pool is as full as the queues and KV caches of its engines.
//!
//! An endpoint's saturation is max(waiting / `queueDepthThreshold`, KV usage / `kvCacheUtilThreshold`); the pool's is the
//! mean over the endpoints, 1 or more being full. An engine that was not heard within `metricsStalenessThreshold` counts
//! as the mean of those that were; with none heard the pool counts as idle, so that a broken scrape does not stop
//! traffic; with no endpoint at all it is full. As a filter it keeps the endpoints below both thresholds times
//! (1 + `headroom`), and all of them if none is. Reads no column. Costs one pass over the rows. A gauge tells how many
//! endpoints are stale.
//!
//! ```yaml
//! - type: utilization-detector
//!   parameters:
//!     queueDepthThreshold: 5             # requests, above 0
//!     kvCacheUtilThreshold: 0.8          # above 0, at most 1
//!     metricsStalenessThreshold: 200ms   # above 0
//!     headroom: 0.0                      # 0 or more
//! ```

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, EndpointIdx, Filter, Instance, Kind, MetricFamilies,
    MetricRegistry, NodeError, PluginType, Saturation, Snapshot, Stability,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::duration;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "utilization-detector",
    kinds: &[Kind::SaturationDetector, Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "utilization-detector",
    summary: "Says how full the pool is by its engines' queues and KV caches.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How many waiting requests make an endpoint full. Above 0. Default 5.
    #[schemars(extend("exclusiveMinimum" = 0))]
    queue_depth_threshold: i64,
    /// Which share of the KV cache in use makes an endpoint full. Above 0, at most 1. Default 0.8.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    kv_cache_util_threshold: f64,
    /// How long what an engine said counts here. Above 0. Default `200ms`.
    #[schemars(schema_with = "crate::schema::duration")]
    metrics_staleness_threshold: String,
    /// How far above the thresholds the filter still keeps an endpoint, as a share of them. Default 0.
    #[schemars(range(min = 0))]
    headroom: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_depth_threshold: 5,
            kv_cache_util_threshold: 0.8,
            metrics_staleness_threshold: "200ms".into(),
            headroom: 0.0,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Vec::new();
    let mut expect = |holds: bool, path: &str, message: String| {
        if !holds {
            mistakes.push(NodeError { place: None, path: path.into(), message });
        }
    };
    let (depth, usage) = (cfg.queue_depth_threshold, cfg.kv_cache_util_threshold);
    expect(depth > 0, "queueDepthThreshold", format!("expected a number above 0, found {depth}"));
    expect(
        usage > 0.0 && usage <= 1.0,
        "kvCacheUtilThreshold",
        format!("expected a number above 0 and at most 1, found {usage}"),
    );
    expect(cfg.headroom >= 0.0, "headroom", format!("expected 0 or more, found {}", cfg.headroom));
    let staleness = duration::parse(&cfg.metrics_staleness_threshold).and_then(|staleness| {
        if staleness.is_zero() { Err("expected a duration above 0, found 0".to_owned()) } else { Ok(staleness) }
    });
    let staleness = match staleness {
        Ok(staleness) if mistakes.is_empty() => staleness,
        Ok(_) => return Err(BuildError(mistakes)),
        Err(message) => {
            mistakes.push(NodeError { place: None, path: "metricsStalenessThreshold".into(), message });
            return Err(BuildError(mistakes));
        }
    };
    let stale = cx.metrics.families::<Families>().stale.get_or_create_owned(&Labels { detector: cx.name.to_owned() });
    let detector = Arc::new(Utilization { depth: depth as f64, usage, staleness, room: 1.0 + cfg.headroom, stale });
    Ok(Instance { saturation: Some(detector.clone()), filter: Some(detector), ..Instance::default() })
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    detector: String,
}

#[derive(Default)]
struct Families {
    stale: Family<Labels, Gauge>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "llm_d_epp_flow_control_stale_endpoints",
            "Endpoints whose engine was not heard within the staleness threshold of a saturation detector",
            self.stale.clone(),
        );
    }
}

struct Utilization {
    depth: f64,
    usage: f64,
    staleness: Duration,
    room: f64,
    stale: Gauge,
}

impl Utilization {
    fn is_stale(&self, snapshot: &Snapshot, idx: EndpointIdx, now: Instant) -> bool {
        snapshot.observed(idx).at.is_none_or(|at| now.saturating_duration_since(at) > self.staleness)
    }

    fn saturation_of(&self, snapshot: &Snapshot, idx: EndpointIdx) -> f64 {
        let observed = snapshot.observed(idx);
        let waiting = observed.waiting.unwrap_or(snapshot.waiting()[idx.row()]);
        let usage = observed.kv_usage.unwrap_or(snapshot.kv_usage()[idx.row()]);
        (waiting / self.depth).max(usage / self.usage)
    }
}

impl Saturation for Utilization {
    fn saturation(&self, snapshot: &Snapshot, among: &Candidates, now: Instant) -> f64 {
        let stale = snapshot.indices().filter(|&idx| self.is_stale(snapshot, idx, now)).count();
        self.stale.set(i64::try_from(stale).unwrap_or(i64::MAX));
        if among.is_empty() {
            return 1.0;
        }
        let fresh = among.iter().filter(|&idx| !self.is_stale(snapshot, idx, now));
        let (sum, n) = fresh.fold((0.0, 0u32), |(sum, n), idx| (sum + self.saturation_of(snapshot, idx), n + 1));
        if n == 0 { 0.0 } else { sum / f64::from(n) }
    }
}

impl Filter for Utilization {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        let (depth, usage) = (self.depth * self.room, self.usage * self.room);
        let fits = |idx: EndpointIdx| cx.load.waiting[idx.row()] < depth && cx.load.kv_usage[idx.row()] < usage;
        if keep.iter().any(fits) {
            keep.retain(fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, kept, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"headroom": 0.2}));

    fn check(parameters: serde_json::Value, rows: &[(Row, u64)], expected: f64) {
        let detector = Rig::default().build(&TYPE, parameters).saturation.unwrap();
        let now = Instant::now() + Duration::from_secs(60);
        let rows = rows.iter().cloned().map(|(mut row, age)| {
            row.observed.at = row.observed.at.map(|_| now - Duration::from_millis(age));
            row
        });
        let board = snapshot(1, rows);
        close(&[detector.saturation(&board, &Candidates::all(board.rows()), now)], &[expected]);
    }

    fn heard(waiting: f64, usage: f64) -> (Row, u64) {
        (Row::heard(waiting, 500.0, usage), 0)
    }

    #[test]
    fn is_the_mean_of_the_worse_of_queue_and_cache() {
        check(json!({"kvCacheUtilThreshold": 0.9}), &[heard(2.0, 0.5)], 0.5 / 0.9);
        check(json!(null), &[heard(10.0, 0.0)], 2.0);
        check(json!({"queueDepthThreshold": 20}), &[heard(10.0, 0.0)], 0.5);
        check(json!(null), &[heard(1.0, 0.0), heard(15.0, 0.0)], 1.6);
        check(json!(null), &[heard(5.0, 0.0), heard(20.0, 0.0), heard(0.0, 0.88)], (1.0 + 4.0 + 1.1) / 3.0);
        check(json!(null), &[heard(0.0, 0.0)], 0.0);
    }

    #[test]
    fn a_stale_endpoint_counts_as_the_mean_of_the_fresh() {
        let old = |age| (Row::heard(50.0, 0.0, 0.0), age);
        check(json!(null), &[heard(1.0, 0.0), old(201)], 0.2);
        check(json!(null), &[heard(1.0, 0.0), (Row::default(), 0)], 0.2);
        check(json!({"metricsStalenessThreshold": "100ms"}), &[heard(1.0, 0.0), old(101)], 0.2);
        check(json!({"metricsStalenessThreshold": "30s"}), &[(Row::heard(1.0, 0.0, 0.0), 20_000)], 0.2);
    }

    #[test]
    fn with_nobody_heard_the_pool_is_idle_and_with_nobody_there_it_is_full() {
        check(json!(null), &[(Row::default(), 0), (Row::heard(50.0, 0.0, 0.0), 9000)], 0.0);
        check(json!(null), &[], 1.0);
    }

    #[test]
    fn the_gauge_counts_stale_endpoints() {
        let rig = Rig::default();
        let detector = rig.build(&TYPE, json!(null)).saturation.unwrap();
        let board = snapshot(1, [Row::default(), Row::heard(1.0, 0.0, 0.0)]);
        detector.saturation(&board, &Candidates::all(2), Instant::now());
        let line = "llm_d_epp_flow_control_stale_endpoints{detector=\"utilization-detector\"} 1\n";
        assert!(rig.page().contains(line), "{}", rig.page());
    }

    #[test]
    fn the_filter_keeps_what_is_below_the_thresholds_and_headroom() {
        let board = snapshot(
            1,
            [(0.0, 0.1), (4.0, 0.1), (5.0, 0.1), (7.0, 0.1), (0.0, 0.9)].map(|(w, u)| Row::heard(w, 0.0, u)),
        );
        for (headroom, expected) in [(0.0, vec![0, 1]), (0.2, vec![0, 1, 2, 4]), (1.0, vec![0, 1, 2, 3, 4])] {
            let filter = Rig::default().build(&TYPE, json!({"headroom": headroom})).filter.unwrap();
            assert_eq!(kept(&*filter, &board), expected, "{headroom}");
        }
    }

    #[test]
    fn the_filter_keeps_all_if_none_is_below() {
        let filter = Rig::default().build(&TYPE, json!(null)).filter.unwrap();
        assert_eq!(kept(&*filter, &snapshot(1, vec![Row::heard(50.0, 0.0, 0.0); 2])), [0, 1]);
    }

    #[test]
    fn refuses_thresholds_out_of_range() {
        for (parameters, culprit) in [
            (json!({"queueDepthThreshold": 0}), "queueDepthThreshold"),
            (json!({"kvCacheUtilThreshold": 1.5}), "kvCacheUtilThreshold"),
            (json!({"metricsStalenessThreshold": "0s"}), "metricsStalenessThreshold"),
            (json!({"metricsStalenessThreshold": "soon"}), "metricsStalenessThreshold"),
            (json!({"headroom": -0.1}), "headroom"),
            (json!({"depth": 3}), "depth"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
        let all = json!({"queueDepthThreshold": 0, "headroom": -1, "metricsStalenessThreshold": ""});
        assert_eq!(Rig::default().refused(&TYPE, all).lines().count(), 3);
    }
}
