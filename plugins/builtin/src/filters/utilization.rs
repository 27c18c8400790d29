//! `utilization-filter`: keeps the endpoints that are below every given limit.
//!
//! Keeps an endpoint if each condition's value is at most its `maxValue`. Values: `active-requests` (in flight from this
//! picker), `running-requests` and `waiting-queue` (of the engine), `kv-cache-utilization` (0 to 1). An endpoint whose
//! load is unknown counts as the mean of the others. If nobody would be left and `fallbackOnEmpty` is set, all stay.
//! Reads the column `InFlightLoadDataKey` if a condition needs it. Costs one pass over the endpoints.
//!
//! ```yaml
//! - type: utilization-filter
//!   parameters:
//!     conditions:
//!     - {metric: waiting-queue, maxValue: 5}
//!     - {metric: kv-cache-utilization, maxValue: 0.9}
//!     fallbackOnEmpty: true
//!     inFlightLoadProducerName: ""   # default: inflight-load-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Filter, Instance, Kind, NodeError, PluginType,
    Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::InFlight;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "utilization-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "utilization-filter",
    summary: "Keeps the endpoints that are below every given limit.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["conditions"]))]
struct Config {
    /// The limits. At least one.
    #[schemars(example = serde_json::json!([{"metric": "waiting-queue", "maxValue": 10}]))]
    conditions: Vec<Condition>,
    /// Whether all stay where nobody would. Default false.
    fallback_on_empty: bool,
    /// The instance that counts what is in flight. Default `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["metric", "maxValue"]))]
struct Condition {
    /// What is measured. Required.
    metric: Option<Metric>,
    /// The most at which an endpoint stays. Required; 0 or more, for `kv-cache-utilization` at most 1.
    #[schemars(range(min = 0))]
    max_value: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Metric {
    ActiveRequests,
    RunningRequests,
    WaitingQueue,
    KvCacheUtilization,
}

impl Condition {
    fn limit(self) -> Result<(Metric, f64), (&'static str, String)> {
        let Some(metric) = self.metric else { return Err(("metric", "expected a metric, found nothing".into())) };
        match self.max_value {
            None => Err(("maxValue", "expected a number, found nothing".into())),
            Some(most) if metric == Metric::KvCacheUtilization && !(0.0..=1.0).contains(&most) => {
                Err(("maxValue", format!("expected 0 to 1 for kv-cache-utilization, found {most}")))
            }
            Some(most) if most.is_nan() || most < 0.0 => Err(("maxValue", format!("expected 0 or more, found {most}"))),
            Some(most) => Ok((metric, most)),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if cfg.conditions.is_empty() {
        return Err(BuildError::at("conditions", "expected at least one condition, found none"));
    }
    let (mut limits, mut mistakes) = (Vec::new(), Vec::new());
    for (i, condition) in cfg.conditions.iter().enumerate() {
        match condition.limit() {
            Ok(limit) => limits.push(limit),
            Err((key, message)) => {
                mistakes.push(NodeError { place: None, path: format!("conditions[{i}].{key}"), message });
            }
        }
    }
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let counts = limits.iter().any(|(metric, _)| *metric == Metric::ActiveRequests);
    let filter = Utilization {
        limits,
        fallback_on_empty: cfg.fallback_on_empty,
        in_flight: counts.then(|| cx.reads(&cfg.in_flight_load_producer_name)),
    };
    Ok(Instance { filter: Some(Arc::new(filter)), ..Instance::default() })
}

struct Utilization {
    limits: Vec<(Metric, f64)>,
    fallback_on_empty: bool,
    in_flight: Option<ColumnKey<InFlight>>,
}

impl Filter for Utilization {
    fn filter(&self, cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        let in_flight = self.in_flight.and_then(|key| columns.read(key));
        let value = |metric, row: usize| match metric {
            Metric::ActiveRequests => in_flight.map_or(0.0, |counts| counts[row].requests as f64),
            Metric::RunningRequests => cx.load.running[row],
            Metric::WaitingQueue => cx.load.waiting[row],
            Metric::KvCacheUtilization => cx.load.kv_usage[row],
        };
        super::retain_or_all(keep, self.fallback_on_empty, |idx| {
            self.limits.iter().all(|&(metric, most)| value(metric, idx.row()) <= most)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept, kept_with, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"conditions": [{"metric": "active-requests", "maxValue": 3}]}));

    fn check(conditions: serde_json::Value, falls_back: bool, loads: &[(f64, f64, f64)], expected: &[u32]) {
        let parameters = json!({"conditions": conditions, "fallbackOnEmpty": falls_back});
        let filter = Rig::default().build(&TYPE, parameters).filter.unwrap();
        let rows = loads.iter().map(|&(waiting, running, kv)| Row::heard(waiting, running, kv));
        assert_eq!(kept(&*filter, &snapshot(1, rows)), expected, "{conditions}");
    }

    #[test]
    fn keeps_who_is_below_every_limit() {
        let two = json!([{"metric": "running-requests", "maxValue": 40}, {"metric": "waiting-queue", "maxValue": 0}]);
        check(two, false, &[(0.0, 10.0, 0.0), (0.0, 41.0, 0.0), (1.0, 10.0, 0.0)], &[0]);
        let kv = json!([{"metric": "kv-cache-utilization", "maxValue": 0.5}]);
        check(kv, false, &[(0.0, 0.0, 0.5), (0.0, 0.0, 0.51)], &[0]);
    }

    #[test]
    fn falls_back_to_all_only_if_nobody_is_left() {
        let waiting = json!([{"metric": "waiting-queue", "maxValue": 1}]);
        check(waiting.clone(), false, &[(2.0, 0.0, 0.0), (3.0, 0.0, 0.0)], &[]);
        check(waiting.clone(), true, &[(2.0, 0.0, 0.0), (3.0, 0.0, 0.0)], &[0, 1]);
        check(waiting, true, &[(2.0, 0.0, 0.0), (1.0, 0.0, 0.0)], &[1]);
    }

    #[test]
    fn counts_requests_in_flight() {
        for (most, counts, expected) in [(2, &[1, 2, 3][..], &[0, 1][..]), (1, &[0, 5], &[0]), (0, &[1, 1], &[])] {
            let rig = Rig::default();
            let active = json!({"conditions": [{"metric": "active-requests", "maxValue": most}]});
            let filter = rig.build(&TYPE, active).filter.unwrap();
            let requests = |&requests: &i64| InFlight { requests, ..InFlight::default() };
            let in_flight: Vec<_> = counts.iter().map(requests).collect();
            let columns = rig.column("inflight-load-producer", &in_flight);
            let board = snapshot(1, vec![Row::default(); counts.len()]);
            assert_eq!(kept_with(&*filter, &board, &columns), expected, "{most} {counts:?}");
        }
    }

    #[test]
    fn without_counts_nobody_is_busy() {
        let active = json!({"conditions": [{"metric": "active-requests", "maxValue": 1}]});
        let filter = Rig::default().build(&TYPE, active).filter.unwrap();
        assert_eq!(kept(&*filter, &snapshot(1, vec![Row::default(); 2])), [0, 1]);
    }

    #[test]
    fn needs_a_count_only_where_a_limit_is_on_it() {
        for (metric, n_reads) in [("active-requests", 1), ("waiting-queue", 0)] {
            let [reads, ..] = Rig::default().keys(&TYPE, json!({"conditions": [{"metric": metric, "maxValue": 1}]}));
            assert_eq!(reads.len(), n_reads, "{metric}");
        }
    }

    #[test]
    fn refuses_what_is_no_limit() {
        let one = |condition| json!({"conditions": [condition]});
        for (parameters, culprit) in [
            (json!(null), "conditions"),
            (json!({"conditions": []}), "conditions"),
            (one(json!({"maxValue": 1})), "conditions[0].metric"),
            (one(json!({"metric": "temperature", "maxValue": 1})), "temperature"),
            (one(json!({"metric": "waiting-queue"})), "conditions[0].maxValue"),
            (one(json!({"metric": "waiting-queue", "maxValue": -1})), "conditions[0].maxValue"),
            (one(json!({"metric": "kv-cache-utilization", "maxValue": 80})), "kv-cache-utilization"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
