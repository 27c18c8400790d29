//! `latency-slo-admitter`: turns away what would miss its latency objectives everywhere.
//!
//! Only requests of a priority below 0 that carry an objective are looked at. They are let in if an endpoint is predicted
//! to keep both objectives, has no request running, or has less than 2 % of its KV cache in use, and also if nothing is
//! predicted at all. Reads the column `LatencyPredictionInfoDataKey`. Costs one pass over the rows.
//!
//! ```yaml
//! - type: latency-slo-admitter
//!   parameters:
//!     latencyPredictionInfoProducerName: ""   # default: predicted-latency-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Admitter, BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Denial, EndpointIdx, Instance, Kind,
    PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::LatencyPrediction;
use crate::slo::Objectives;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "latency-slo-admitter",
    kinds: &[Kind::Admitter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "latency-slo-admitter",
    summary: "Turns away what would miss its latency objectives everywhere.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// With less of its KV cache in use an endpoint is cold.
const COLD: f64 = 0.02;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that predicts. Default: `predicted-latency-producer`.
    latency_prediction_info_producer_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let admitter = LatencySlo { predictions: cx.reads(&cfg.latency_prediction_info_producer_name) };
    Ok(Instance { admitter: Some(Arc::new(admitter)), ..Instance::default() })
}

struct LatencySlo {
    predictions: ColumnKey<LatencyPrediction>,
}

impl Admitter for LatencySlo {
    fn admit(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        among: &Candidates,
        _rng: &mut fastrand::Rng,
    ) -> Result<(), Denial> {
        if cx.request.priority >= 0 || !Objectives::of(&cx.request.headers).any() {
            return Ok(());
        }
        let Some(predictions) = columns.read(self.predictions) else { return Ok(()) };
        if !among.iter().any(|idx| predictions[idx.row()].is_there()) {
            return Ok(());
        }
        let serves = |idx: EndpointIdx| {
            let row = idx.row();
            let keeps = predictions[row].ttft_valid && predictions[row].tpot_valid;
            keeps || cx.load.running[row] == 0.0 || cx.load.kv_usage[row] < COLD
        };
        if among.iter().any(serves) {
            return Ok(());
        }
        Err(Denial { status: 429, message: "no valid endpoint available to serve the request".into() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    const MISSED: LatencyPrediction = LatencyPrediction {
        ttft_valid: false,
        tpot_valid: false,
        ttft_headroom: -50.0,
        tpot_headroom: -5.0,
        ttft: 150.0,
        tpot: 35.0,
        dispatched: 1,
    };
    const KEPT: LatencyPrediction = LatencyPrediction { ttft_valid: true, tpot_valid: true, ..MISSED };

    #[track_caller]
    fn check(priority: i32, headers: &[(&str, &str)], rows: &[(f64, f64)], predicted: &[LatencyPrediction], ok: bool) {
        let rig = Rig::default();
        let admitter = rig.build(&TYPE, json!(null)).admitter.unwrap();
        let board = snapshot(1, rows.iter().map(|(running, usage)| Row::heard(0.0, *running, *usage)));
        let mut request = request(b"", Default::default());
        request.priority = priority;
        headers.iter().for_each(|(key, value)| request.headers.set(*key, (*value).to_owned()));
        let mut columns = Columns::default();
        columns.reset(rows.len());
        if !predicted.is_empty() {
            let key = rig.slots.column::<LatencyPrediction>("predicted-latency-producer");
            columns.write(key).copy_from_slice(predicted);
        }
        let among = Candidates::all(rows.len());
        let admitted = admitter.admit(&cycle(&board, &request), &columns, &among, &mut fastrand::Rng::with_seed(1));
        assert_eq!(admitted.map_err(|denial| denial.status), if ok { Ok(()) } else { Err(429) });
    }

    const SLOS: &[(&str, &str)] = &[("x-slo-ttft-ms", "100"), ("x-slo-tpot-ms", "30")];
    const BUSY: &[(f64, f64)] = &[(5.0, 0.5), (3.0, 0.4)];

    #[test]
    fn refuses_what_every_endpoint_would_miss() {
        check(-1, SLOS, BUSY, &[MISSED, MISSED], false);
        check(-1, SLOS, BUSY, &[MISSED, LatencyPrediction { ttft_valid: true, ..MISSED }], false);
    }

    #[test]
    fn one_endpoint_that_keeps_up_is_idle_or_cold_is_enough() {
        check(-1, SLOS, BUSY, &[MISSED, KEPT], true);
        check(-1, SLOS, &[(5.0, 0.5), (0.0, 0.4)], &[MISSED, MISSED], true);
        check(-1, SLOS, &[(5.0, 0.01), (3.0, 0.4)], &[MISSED, MISSED], true);
    }

    #[test]
    fn admits_without_predictions_objectives_or_a_low_priority() {
        check(-1, SLOS, BUSY, &[], true);
        check(-1, SLOS, BUSY, &[LatencyPrediction::default(); 2], true);
        check(0, SLOS, BUSY, &[MISSED, MISSED], true);
        check(-1, &[], BUSY, &[MISSED, MISSED], true);
        let new_names_count = [SLOS, &[("x-llm-d-slo-ttft-ms", "0"), ("x-llm-d-slo-tpot-ms", "0")]].concat();
        check(-1, &new_names_count, BUSY, &[MISSED, MISSED], true);
    }
}
