//! `label-preference-scorer`: prefers endpoints by a number that their label holds. An example of a plugin.
//!
//! Score = the number in the label, at most 1 and at least 0; `otherwise` where there is no label, or no number in it.
//! From 0 to 1. Reads no column. Costs a look-up and the reading of one number an endpoint.
//!
//! ```yaml
//! - type: label-preference-scorer
//!   parameters:
//!     label: example.com/preference
//!     otherwise: 0.5                  # 0 to 1
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "label-preference-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "label-preference-scorer",
    summary: "Prefers endpoints by a number that their label holds.",
    schema: Some(|generator| generator.subschema_for::<Config>()),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The key of the label. Not empty. Default `example.com/preference`.
    #[schemars(length(min = 1))]
    label: String,
    /// The score of endpoints without such a number, from 0 to 1. Default 0.5.
    #[schemars(range(min = 0, max = 1))]
    otherwise: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { label: "example.com/preference".into(), otherwise: 0.5 }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Vec::new();
    if cfg.label.is_empty() {
        mistakes.extend(BuildError::at("label", "expected the key of a label, found nothing").0);
    }
    if !(0.0..=1.0).contains(&cfg.otherwise) {
        mistakes.extend(BuildError::at("otherwise", format!("expected 0 to 1, found {}", cfg.otherwise)).0);
    }
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let scorer = LabelPreference { label: cfg.label, otherwise: cfg.otherwise };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct LabelPreference {
    label: String,
    otherwise: f64,
}

impl Scorer for LabelPreference {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        for idx in among.iter() {
            let text = cx.snapshot.meta(idx).label(&self.label);
            let number = text.and_then(|text| text.parse::<f64>().ok()).filter(|number| !number.is_nan());
            scores[idx.row()] = number.map_or(self.otherwise, |number| number.clamp(0.0, 1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::testing::{Rig, Row, close, scores, snapshot};
    use serde_json::json;

    use super::*;

    epp_plugin_api::conformance!(TYPE, json!({"otherwise": 0.25}));

    #[test]
    fn the_number_of_the_label_is_the_score() {
        let scorer = Rig::default().build(&TYPE, json!({"label": "rank"})).scorer.unwrap();
        for (label, expected) in
            [("0.75", 0.75), ("1", 1.0), ("7", 1.0), ("-1", 0.0), ("inf", 1.0), ("NaN", 0.5), ("best", 0.5), ("", 0.5)]
        {
            let board = snapshot(1, [Row::labelled(&[("rank", label)]), Row::default()]);
            close(&scores(&*scorer, &board, &Columns::default()), &[expected, 0.5]);
        }
    }

    #[test]
    fn names_every_mistake_of_its_parameters() {
        let refused = Rig::default().refused(&TYPE, json!({"label": "", "otherwise": 2}));
        assert!(refused.contains("label") && refused.contains("otherwise"), "{refused}");
    }
}
