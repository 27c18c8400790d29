//! `slo-headroom-tier-filter`: keeps the endpoints that are predicted to meet both latency objectives.
//!
//! Endpoints with a headroom of 0 or more for both objectives are one tier, all others the second. If both have
//! endpoints the first stays, or with the probability `epsilonExploreNeg` the second. Without any prediction all stay.
//! Reads the column `LatencyPredictionInfoDataKey`. Costs two passes over the column.
//!
//! ```yaml
//! - type: slo-headroom-tier-filter
//!   parameters:
//!     epsilonExploreNeg: 0.01                    # 0 to 1
//!     latencyPredictionInfoProducerName: ""      # default: predicted-latency-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Filter, Instance, Kind, PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Chance;
use crate::attributes::LatencyPrediction;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "slo-headroom-tier-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "slo-headroom-tier-filter",
    summary: "Keeps the endpoints that are predicted to meet both latency objectives.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How often the other endpoints are tried instead, as a share. 0 to 1. Default 0.01.
    #[schemars(range(min = 0, max = 1))]
    epsilon_explore_neg: f64,
    /// The instance that predicts. Default `predicted-latency-producer`.
    latency_prediction_info_producer_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { epsilon_explore_neg: 0.01, latency_prediction_info_producer_name: String::new() }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if !(0.0..=1.0).contains(&cfg.epsilon_explore_neg) {
        return Err(BuildError::at(
            "epsilonExploreNeg",
            format!("expected a number from 0 to 1, found {}", cfg.epsilon_explore_neg),
        ));
    }
    let filter = SloHeadroomTier {
        exploration: Chance::new(cfg.epsilon_explore_neg, cx.name),
        predictions: cx.reads(&cfg.latency_prediction_info_producer_name),
    };
    let remembers = cfg.epsilon_explore_neg > 0.0;
    Ok(Instance { filter: Some(Arc::new(filter)), remembers, ..Instance::default() })
}

struct SloHeadroomTier {
    exploration: Chance,
    predictions: ColumnKey<LatencyPrediction>,
}

impl Filter for SloHeadroomTier {
    fn filter(&self, _cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        let Some(predictions) = columns.read(self.predictions) else { return };
        let meets = |row: usize| predictions[row].is_there() && predictions[row].has_headroom();
        let n_meeting = keep.iter().filter(|idx| meets(idx.row())).count();
        if n_meeting > 0 && n_meeting < keep.count() {
            let explores = self.exploration.comes_up();
            keep.retain(|idx| meets(idx.row()) != explores);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept, kept_with, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"epsilonExploreNeg": 0.5}));

    const UNKNOWN: (f64, f64) = (f64::NAN, f64::NAN);

    fn predicted(headrooms: &[(f64, f64)]) -> Vec<LatencyPrediction> {
        let prediction = |&(ttft_headroom, tpot_headroom): &(f64, f64)| match ttft_headroom.is_nan() {
            true => LatencyPrediction::default(),
            false => LatencyPrediction { ttft_headroom, tpot_headroom, ttft: 1.0, ..LatencyPrediction::default() },
        };
        headrooms.iter().map(prediction).collect()
    }

    fn check(epsilon: f64, headrooms: &[(f64, f64)], expected: &[u32]) {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"epsilonExploreNeg": epsilon})).filter.unwrap();
        let columns = rig.column("predicted-latency-producer", &predicted(headrooms));
        let board = snapshot(1, vec![Row::default(); headrooms.len()]);
        assert_eq!(kept_with(&*filter, &board, &columns), expected, "{headrooms:?}");
    }

    #[test]
    fn keeps_those_that_meet_both_objectives() {
        check(0.0, &[(100.0, 50.0), (200.0, 80.0), (-100.0, -50.0)], &[0, 1]);
        check(0.0, &[(100.0, 50.0), (200.0, -1.0)], &[0]);
        check(0.0, &[(0.0, 0.0), (-1.0, 5.0)], &[0]);
        check(0.0, &[(100.0, 50.0), UNKNOWN], &[0]);
    }

    #[test]
    fn explores_only_where_there_are_two_tiers() {
        check(1.0, &[(100.0, 50.0), (-100.0, -50.0)], &[1]);
        check(1.0, &[(100.0, 50.0), UNKNOWN], &[1]);
        check(1.0, &[(100.0, 50.0), (200.0, 80.0)], &[0, 1]);
        check(0.0, &[(-100.0, 50.0), (-1.0, -1.0), UNKNOWN], &[0, 1, 2]);
    }

    #[test]
    fn explores_about_as_often_as_it_is_told_to() {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"epsilonExploreNeg": 0.25})).filter.unwrap();
        let columns = rig.column("predicted-latency-producer", &predicted(&[(1.0, 1.0), (-1.0, -1.0)]));
        let board = snapshot(1, vec![Row::default(); 2]);
        let n_explored = (0..1000).filter(|_| kept_with(&*filter, &board, &columns) == [1]).count();
        assert!((200..300).contains(&n_explored), "{n_explored}");
    }

    #[test]
    fn keeps_all_without_predictions() {
        let filter = Rig::default().build(&TYPE, json!(null)).filter.unwrap();
        assert_eq!(kept(&*filter, &snapshot(1, vec![Row::default(); 2])), [0, 1]);
        check(0.0, &[UNKNOWN, UNKNOWN], &[0, 1]);
    }

    #[test]
    fn refuses_what_is_no_probability() {
        for epsilon in [1.5, -0.5] {
            assert!(Rig::default().refused(&TYPE, json!({"epsilonExploreNeg": epsilon})).contains("epsilonExploreNeg"));
        }
    }
}
