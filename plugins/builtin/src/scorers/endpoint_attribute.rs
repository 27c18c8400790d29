//! `endpoint-attribute-scorer`: prefers endpoints whose engine shows a low, or a high, number.
//!
//! x = (v - min) / (max - min), where min and max are those of the candidates that show the number, or the given ones
//! (outside of which x is 0 or 1). The score is x where higher is better and 1 - x where lower is. If all show the same
//! and no range is given it is 1. Who never showed it scores 0. Reads no column. Costs one look at the engine's numbers
//! an endpoint.
//!
//! ```yaml
//! - type: endpoint-attribute-scorer
//!   parameters:
//!     attributeKey: temperature           # a key of customMetrics
//!     producer: core-metrics-extractor    # the default
//!     algorithm:
//!       type: linear_lower_is_better      # or linear_higher_is_better
//!       normalization: {fixedRange: {min: 20, max: 90}}   # default: adaptiveRange: {}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::custom::CustomKey;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "endpoint-attribute-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "endpoint-attribute-scorer",
    summary: "Prefers endpoints whose engine shows a low, or a high, number.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["attributeKey", "algorithm"]))]
struct Config {
    /// The key of the number. Required; with a slash in it the producer is required, too.
    #[schemars(length(min = 1), example = &"temperature")]
    attribute_key: String,
    /// The instance that reads it off the engine. Default `core-metrics-extractor`.
    producer: Option<String>,
    /// What a number is worth. Required.
    #[schemars(example = serde_json::json!({"type": "linear_lower_is_better"}))]
    algorithm: Algorithm,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["type"]))]
struct Algorithm {
    /// Which end of the range is the good one. Required.
    r#type: Option<Better>,
    /// What numbers are measured against.
    normalization: Normalization,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
enum Better {
    #[serde(rename = "linear_lower_is_better")]
    Lower,
    #[serde(rename = "linear_higher_is_better")]
    Higher,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Normalization {
    /// Measures against these numbers.
    fixed_range: Option<FixedRange>,
    /// Measures against the other candidates. The default.
    adaptive_range: Option<AdaptiveRange>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct FixedRange {
    /// The lower end. Default 0.
    min: f64,
    /// The upper end; above `min`. Default 0.
    max: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AdaptiveRange {}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let key = CustomKey::configured(&cfg.attribute_key, cfg.producer.as_deref())
        .map_err(|why| BuildError::at("attributeKey", why))?;
    let better = cfg.algorithm.r#type.ok_or_else(|| {
        let expected = "expected linear_lower_is_better or linear_higher_is_better, found nothing";
        BuildError::at("algorithm.type", expected)
    })?;
    let Normalization { fixed_range, adaptive_range } = cfg.algorithm.normalization;
    let range = match (fixed_range, adaptive_range) {
        (Some(_), Some(_)) => {
            let message = "expected one of fixedRange and adaptiveRange, found both";
            return Err(BuildError::at("algorithm.normalization", message));
        }
        (Some(FixedRange { min, max }), None) if min < max => Some((min, max)),
        (Some(FixedRange { min, max }), None) => {
            let message = format!("expected a min below max, found {min} and {max}");
            return Err(BuildError::at("algorithm.normalization.fixedRange", message));
        }
        (None, _) => None,
    };
    Ok(Instance { scorer: Some(Arc::new(EndpointAttribute { key, better, range })), ..Instance::default() })
}

struct EndpointAttribute {
    key: CustomKey,
    better: Better,
    /// `None`: that of the candidates.
    range: Option<(f64, f64)>,
}

impl Scorer for EndpointAttribute {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        self.key.score(cx.snapshot, among, scores, |value, least, most| {
            let (min, max) = self.range.unwrap_or((least, most));
            if max <= min {
                return 1.0;
            }
            // Halved, so that the width of a huge range is still a number.
            let x = ((value / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0)).clamp(0.0, 1.0);
            if self.better == Better::Lower { 1.0 - x } else { x }
        });
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Observed;
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"attributeKey": "heat", "algorithm": {"type": "linear_lower_is_better"}}));

    fn check(algorithm: serde_json::Value, values: &[Option<f64>], expected: &[f64]) {
        let row = |value: &Option<f64>| {
            let custom = value.map(|value| ("heat".to_owned(), value)).into_iter().collect();
            Row { observed: Observed { custom, ..Observed::default() }, ..Row::default() }
        };
        let parameters = json!({"attributeKey": "heat", "algorithm": algorithm});
        let scorer = Rig::default().build(&TYPE, parameters).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, values.iter().map(row)), &Columns::default()), expected);
    }

    const LOWER: &str = "linear_lower_is_better";
    const HIGHER: &str = "linear_higher_is_better";

    #[test]
    fn measures_against_the_other_candidates() {
        let all = [Some(10.0), Some(5.0), Some(0.0)];
        check(json!({"type": LOWER}), &all, &[0.0, 0.5, 1.0]);
        check(json!({"type": HIGHER}), &all, &[1.0, 0.5, 0.0]);
        let adaptive = json!({"type": LOWER, "normalization": {"adaptiveRange": {}}});
        check(adaptive, &[Some(-3.0), Some(1.0), Some(5.0)], &[1.0, 0.5, 0.0]);
        check(json!({"type": LOWER}), &[Some(7.0), Some(7.0)], &[1.0, 1.0]);
        check(json!({"type": HIGHER}), &[Some(-f64::MAX), Some(f64::MAX)], &[0.0, 1.0]);
    }

    #[test]
    fn a_missing_number_scores_nothing() {
        check(json!({"type": LOWER}), &[Some(10.0), None, Some(0.0)], &[0.0, 0.0, 1.0]);
        check(json!({"type": HIGHER}), &[None, None], &[0.0, 0.0]);
    }

    #[test]
    fn measures_against_a_fixed_range() {
        let fixed = |kind, min, max| json!({"type": kind, "normalization": {"fixedRange": {"min": min, "max": max}}});
        check(fixed(LOWER, 0, 10), &[Some(7.0), Some(7.0)], &[0.3, 0.3]);
        check(fixed(LOWER, 0, 10), &[Some(15.0), Some(-5.0)], &[0.0, 1.0]);
        check(fixed(HIGHER, -1, 1), &[Some(0.5), None], &[0.75, 0.0]);
    }

    #[test]
    fn refuses_half_a_rule() {
        let with = |algorithm| json!({"attributeKey": "x", "algorithm": algorithm});
        let both = json!({"fixedRange": {"min": 0, "max": 1}, "adaptiveRange": {}});
        for (parameters, culprit) in [
            (json!(null), "attributeKey"),
            (json!({"attributeKey": "GPUUtilization/dcgm-extractor"}), "\"GPUUtilization\""),
            (json!({"attributeKey": "x"}), "algorithm.type"),
            (with(json!({"type": "cubic"})), "cubic"),
            (with(json!({"type": LOWER, "normalization": {"fixedRange": {"min": 3, "max": 3}}})), "min"),
            (with(json!({"type": LOWER, "normalization": both})), "adaptiveRange"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
