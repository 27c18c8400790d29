//! `active-request-scorer`: prefers endpoints with few requests in flight from this picker.
//!
//! An endpoint with at most `idleThreshold` requests in flight scores 1; any other (max - v) / max * `maxBusyScore`, where
//! max is the highest count of the candidates. So the busiest scores 0, and if all are equally busy all score 0. From 0
//! to 1. Reads the column `InFlightLoadDataKey`; without it every endpoint counts as idle. Costs two passes over a
//! column.
//!
//! ```yaml
//! - type: active-request-scorer
//!   parameters:
//!     idleThreshold: 0                # requests; less than 0 counts as 0
//!     maxBusyScore: 1.0               # what is outside 0 to 1 counts as 1
//!     inFlightLoadProducerName: ""    # default: inflight-load-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::InFlight;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "active-request-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "active-request-scorer",
    summary: "Prefers endpoints with few requests in flight from this picker.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Up to how many requests in flight an endpoint counts as idle. Less than 0 counts as 0, the default.
    idle_threshold: i64,
    /// The score of a busy endpoint next to an infinitely busier one, from 0 to 1. Outside of that, and by default, 1.
    max_busy_score: f64,
    /// Not used any more.
    #[serde(rename = "requestTimeout")]
    _request_timeout: String,
    /// The instance that counts. Default: `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            idle_threshold: 0,
            max_busy_score: 1.0,
            _request_timeout: String::new(),
            in_flight_load_producer_name: String::new(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let scorer = ActiveRequest {
        idle: cfg.idle_threshold.max(0),
        max_busy_score: if (0.0..=1.0).contains(&cfg.max_busy_score) { cfg.max_busy_score } else { 1.0 },
        in_flight: cx.reads(&cfg.in_flight_load_producer_name),
    };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct ActiveRequest {
    idle: i64,
    max_busy_score: f64,
    in_flight: ColumnKey<InFlight>,
}

impl Scorer for ActiveRequest {
    fn score(&self, _cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let Some(counts) = columns.read(self.in_flight) else {
            super::fill(among, scores, |_| 1.0);
            return;
        };
        let most = if among.count() == counts.len() {
            counts.iter().map(|c| c.requests).max()
        } else {
            among.iter().map(|idx| counts[idx.row()].requests).max()
        };
        let most = most.unwrap_or(0);
        let scale = self.max_busy_score / most.max(1) as f64;
        super::fill(among, scores, |row| {
            let count = counts[row].requests;
            if count <= self.idle { 1.0 } else { (most - count) as f64 * scale }
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"maxBusyScore": 0.5}));

    #[test]
    fn measures_against_the_busiest() {
        for (parameters, counts, expected) in [
            (json!(null), vec![0, 0, 0], vec![1.0, 1.0, 1.0]),
            (json!(null), vec![3, 0, 6], vec![0.5, 1.0, 0.0]),
            (json!(null), vec![4, 0, 1], vec![0.0, 1.0, 0.75]),
            (json!(null), vec![3, 11], vec![8.0 / 11.0, 0.0]),
            (json!(null), vec![2, 2], vec![0.0, 0.0]),
            (json!({"maxBusyScore": 0}), vec![1, 0], vec![0.0, 1.0]),
            (json!({"maxBusyScore": 0.5}), vec![1, 4, 0], vec![0.375, 0.0, 1.0]),
            (json!({"maxBusyScore": 1.5}), vec![1, 4], vec![0.75, 0.0]),
            (json!({"idleThreshold": 1, "maxBusyScore": 0.5}), vec![1, 2, 0], vec![1.0, 0.0, 1.0]),
            (json!({"idleThreshold": 2}), vec![2, 1, 5, 3], vec![1.0, 1.0, 0.0, 0.4]),
            (json!({"idleThreshold": -1}), vec![0, 1], vec![1.0, 0.0]),
            (json!({"requestTimeout": "nonsense"}), vec![0, 1], vec![1.0, 0.0]),
        ] {
            let rig = Rig::default();
            let scorer = rig.build(&TYPE, parameters).scorer.unwrap();
            let mut columns = Columns::default();
            columns.reset(counts.len());
            let column = columns.write(rig.slots.column::<InFlight>("inflight-load-producer"));
            for (cell, &requests) in column.iter_mut().zip(&counts) {
                cell.requests = requests;
            }
            close(&scores(&*scorer, &snapshot(1, vec![Row::default(); counts.len()]), &columns), &expected);
        }
    }

    #[test]
    fn without_counts_all_are_idle() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 2]), &Columns::default()), &[1.0, 1.0]);
    }

    #[test]
    fn reads_the_producer_that_it_names() {
        for (name, expected) in [("", "inflight-load-producer"), ("mine", "mine")] {
            let [reads, ..] = Rig::default().keys(&TYPE, json!({"inFlightLoadProducerName": name}));
            assert_eq!(reads[0].to_string(), format!("InFlightLoadDataKey/{expected}"));
        }
    }
}
