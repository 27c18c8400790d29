//! `probabilistic-admitter`: turns away more of the requests of low priority the fuller the pool is.
//!
//! Saturation is the mean over the candidates of max(waiting / `queueDepthThreshold`, KV usage /
//! `kvCacheUtilThreshold`). A request of a priority below 0 is turned away with probability min(1, saturation ^ `power` *
//! `k`). Reads no column. Costs one pass over the rows.
//!
//! ```yaml
//! - type: probabilistic-admitter
//!   parameters:
//!     queueDepthThreshold: 5      # requests, above 0
//!     kvCacheUtilThreshold: 0.8   # above 0
//!     power: 5.0                  # above 0
//!     k: 300.0                    # above 0
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Admitter, BuildContext, BuildError, Candidates, Columns, Cycle, Denial, Instance, Kind, NodeError, PluginType,
    Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "probabilistic-admitter",
    kinds: &[Kind::Admitter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "probabilistic-admitter",
    summary: "Turns away more of the requests of low priority the fuller the pool is.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How many waiting requests make an endpoint full. Above 0. Default 5.
    #[schemars(extend("exclusiveMinimum" = 0))]
    queue_depth_threshold: i64,
    /// Which share of the KV cache in use makes an endpoint full. Above 0. Default 0.8.
    #[schemars(extend("exclusiveMinimum" = 0))]
    kv_cache_util_threshold: f64,
    /// How sharply the probability rises. Above 0. Default 5.
    #[schemars(extend("exclusiveMinimum" = 0))]
    power: f64,
    /// The probability at a saturation of 1, if it were not cut at 1. Above 0. Default 300.
    #[schemars(extend("exclusiveMinimum" = 0))]
    k: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { queue_depth_threshold: 5, kv_cache_util_threshold: 0.8, power: 5.0, k: 300.0 }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let depth = cfg.queue_depth_threshold as f64;
    let (usage, power, k) = (cfg.kv_cache_util_threshold, cfg.power, cfg.k);
    let values = [("queueDepthThreshold", depth), ("kvCacheUtilThreshold", usage), ("power", power), ("k", k)];
    let wrong = values.iter().filter(|(_, value)| !(*value > 0.0 && value.is_finite()));
    let mistakes: Vec<NodeError> = wrong
        .map(|(path, value)| NodeError {
            place: None,
            path: (*path).into(),
            message: format!("expected a number above 0, found {value}"),
        })
        .collect();
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let admitter = Probabilistic { depth, usage, power, k };
    Ok(Instance { admitter: Some(Arc::new(admitter)), ..Instance::default() })
}

struct Probabilistic {
    depth: f64,
    usage: f64,
    power: f64,
    k: f64,
}

impl Admitter for Probabilistic {
    fn admit(
        &self,
        cx: &Cycle<'_>,
        _columns: &Columns,
        among: &Candidates,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Denial> {
        if cx.request.priority >= 0 || among.is_empty() {
            return Ok(());
        }
        let fullness = |row: usize| (cx.load.waiting[row] / self.depth).max(cx.load.kv_usage[row] / self.usage);
        let sum: f64 = among.iter().map(|idx| fullness(idx.row())).sum();
        let saturation = sum / among.count() as f64;
        let p = (saturation.powf(self.power) * self.k).min(1.0);
        if rng.f64() >= p {
            return Ok(());
        }
        let message = format!("pool saturation {saturation:.3}, refused with probability {p:.2}");
        Err(Denial { status: 429, message })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"power": 2}));

    /// How many of a thousand requests are turned away.
    fn refused(parameters: serde_json::Value, priority: i32, loads: &[(f64, f64)]) -> usize {
        let admitter = Rig::default().build(&TYPE, parameters).admitter.unwrap();
        let board = snapshot(1, loads.iter().map(|(waiting, usage)| Row::heard(*waiting, 0.0, *usage)));
        let mut request = request(b"", Default::default());
        request.priority = priority;
        let (among, mut rng) = (Candidates::all(loads.len()), fastrand::Rng::with_seed(7));
        let mut turned_away = || {
            let admitted = admitter.admit(&cycle(&board, &request), &Columns::default(), &among, &mut rng);
            admitted.is_err_and(|denial| denial.status == 429)
        };
        (0..1000).filter(|_| turned_away()).count()
    }

    #[test]
    fn a_full_pool_refuses_all_of_low_priority() {
        for loads in [&[(100.0, 0.0)][..], &[(10.0, 0.0), (0.0, 0.0)], &[(0.0, 0.272)]] {
            assert!(refused(json!(null), -1, loads) >= 995, "{loads:?}");
        }
    }

    #[test]
    fn a_pool_with_room_refuses_some_or_none() {
        assert_eq!(refused(json!(null), -1, &[(0.0, 0.0)]), 0);
        let some = refused(json!(null), -1, &[(0.0, 0.16)]);
        assert!((60..140).contains(&some), "{some}");
        let half = refused(json!({"power": 1, "k": 1}), -1, &[(0.0, 0.4)]);
        assert!((450..550).contains(&half), "{half}");
    }

    #[test]
    fn other_priorities_and_an_empty_pool_are_admitted() {
        assert_eq!(refused(json!(null), 0, &[(100.0, 1.0)]), 0);
        assert_eq!(refused(json!(null), 100, &[(100.0, 1.0)]), 0);
        assert_eq!(refused(json!(null), -1, &[]), 0);
    }

    #[test]
    fn refuses_parameters_out_of_range() {
        for key in ["queueDepthThreshold", "kvCacheUtilThreshold", "power", "k"] {
            for value in [0, -1] {
                assert!(Rig::default().refused(&TYPE, json!({key: value})).contains(key));
            }
        }
    }
}
