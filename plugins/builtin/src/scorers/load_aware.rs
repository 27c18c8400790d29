//! `load-aware-scorer`: prefers engines in which few requests wait, on an absolute scale.
//!
//! Score = 0.5 * (1 - min(v, threshold) / threshold), where v is the number of requests that wait for a place in the
//! engine's batch: 0.5 with none, 0 from the threshold on. An endpoint whose load is unknown counts as the mean of the
//! others. Reads no column. Costs one pass over a slice.
//!
//! ```yaml
//! - type: load-aware-scorer
//!   parameters: {threshold: 128}   # requests; zero and less count as 128
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "load-aware-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "load-aware-scorer",
    summary: "Prefers engines in which few requests wait, on an absolute scale.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

const DEFAULT_THRESHOLD: i64 = 128;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// From how many waiting requests on an endpoint scores 0. Zero and less count as the default, 128.
    threshold: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { threshold: DEFAULT_THRESHOLD }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let threshold = if cfg.threshold > 0 { cfg.threshold } else { DEFAULT_THRESHOLD } as f64;
    Ok(Instance { scorer: Some(Arc::new(LoadAware { threshold })), ..Instance::default() })
}

struct LoadAware {
    threshold: f64,
}

impl Scorer for LoadAware {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let threshold = self.threshold;
        super::fill(among, scores, |row| 0.5 * (1.0 - cx.load.waiting[row].clamp(0.0, threshold) / threshold));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"threshold": 10}));

    #[test]
    fn falls_from_one_half_to_nothing() {
        for (parameters, waiting, expected) in [
            (json!({"threshold": 10}), [2.0, 0.0, 15.0], [0.4, 0.5, 0.0]),
            (json!(null), [64.0, 128.0, 1.0], [0.25, 0.0, 0.5 * (1.0 - 1.0 / 128.0)]),
            (json!({"threshold": 0}), [64.0, 0.0, 0.0], [0.25, 0.5, 0.5]),
            (json!({"threshold": -3}), [32.0, 0.0, 0.0], [0.375, 0.5, 0.5]),
        ] {
            let scorer = Rig::default().build(&TYPE, parameters).scorer.unwrap();
            let board = snapshot(1, waiting.map(|w| Row::heard(w, 0.0, 0.0)));
            close(&scores(&*scorer, &board, &Columns::default()), &expected);
        }
    }

    #[test]
    fn refuses_what_is_no_threshold() {
        assert!(Rig::default().refused(&TYPE, json!({"threshold": "10"})).contains("threshold"));
        assert!(Rig::default().refused(&TYPE, json!({"treshold": 10})).contains("treshold"));
    }
}
