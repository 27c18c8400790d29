//! `endpoint-attribute-filter`: keeps the endpoints whose engine shows a number below, above or at a threshold.
//!
//! Keeps an endpoint if `value OPERATOR threshold` holds; one that never showed the number stays if `onMissing` is
//! `Pass`. If nobody would be left and `fallbackOnEmpty` is set, all stay. Reads no column. Costs one look at the
//! engine's numbers an endpoint.
//!
//! ```yaml
//! - type: endpoint-attribute-filter
//!   parameters:
//!     attribute: temperature              # a key of customMetrics
//!     producer: core-metrics-extractor    # the default
//!     onMissing: Pass                     # or Fail
//!     fallbackOnEmpty: false
//!     algorithm: {type: threshold, threshold: {operator: LessThan, value: 80}}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Filter, Instance, Kind, PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::custom::CustomKey;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "endpoint-attribute-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "endpoint-attribute-filter",
    summary: "Keeps the endpoints whose engine shows a number below, above or at a threshold.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["attribute", "algorithm"]))]
struct Config {
    /// The key of the number. Required; with a slash in it the producer is required, too.
    #[schemars(length(min = 1), example = &"temperature")]
    attribute: String,
    /// The instance that reads it off the engine. Default `core-metrics-extractor`.
    producer: Option<String>,
    /// What becomes of endpoints that never showed it. Default `Pass`.
    on_missing: OnMissing,
    /// Whether all stay where nobody would. Default false.
    fallback_on_empty: bool,
    /// What decides. Required.
    #[schemars(example = serde_json::json!({"type": "threshold", "threshold": {"operator": "LessThan", "value": 80}}))]
    algorithm: Algorithm,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
enum OnMissing {
    #[default]
    Pass,
    Fail,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "threshold"]))]
struct Algorithm {
    /// Always `threshold`. Required.
    r#type: Option<AlgorithmType>,
    /// What the number is compared to. Required.
    threshold: Option<Threshold>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum AlgorithmType {
    Threshold,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["operator"]))]
struct Threshold {
    /// How the number compares to `value` where an endpoint stays. Required.
    operator: Option<Operator>,
    /// What it is compared to. Default 0.
    value: f64,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum Operator {
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
    Equal,
    NotEqual,
}

impl Operator {
    fn holds(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::LessThan => value < threshold,
            Self::LessThanOrEqual => value <= threshold,
            Self::GreaterThan => value > threshold,
            Self::GreaterThanOrEqual => value >= threshold,
            Self::Equal => value == threshold,
            Self::NotEqual => value != threshold,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let key = CustomKey::configured(&cfg.attribute, cfg.producer.as_deref())
        .map_err(|why| BuildError::at("attribute", why))?;
    let Algorithm { r#type: Some(AlgorithmType::Threshold), threshold } = cfg.algorithm else {
        return Err(BuildError::at("algorithm.type", "expected threshold, found nothing"));
    };
    let threshold = threshold
        .ok_or_else(|| BuildError::at("algorithm.threshold", "expected a threshold with an operator, found nothing"))?;
    let operator = threshold
        .operator
        .ok_or_else(|| BuildError::at("algorithm.threshold.operator", "expected an operator, found nothing"))?;
    let filter = EndpointAttribute {
        key,
        operator,
        threshold: threshold.value,
        keeps_missing: cfg.on_missing == OnMissing::Pass,
        fallback_on_empty: cfg.fallback_on_empty,
    };
    Ok(Instance { filter: Some(Arc::new(filter)), ..Instance::default() })
}

struct EndpointAttribute {
    key: CustomKey,
    operator: Operator,
    threshold: f64,
    keeps_missing: bool,
    fallback_on_empty: bool,
}

impl Filter for EndpointAttribute {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        super::retain_or_all(keep, self.fallback_on_empty, |idx| {
            let value = self.key.find(cx.snapshot.observed(idx));
            value.map_or(self.keeps_missing, |value| self.operator.holds(value, self.threshold))
        });
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Observed;
    use serde_json::json;

    use crate::testing::{Rig, Row, kept, snapshot};

    use super::*;

    fn parameters(operator: &str) -> serde_json::Value {
        let threshold = json!({"operator": operator, "value": 10});
        json!({"attribute": "heat", "algorithm": {"type": "threshold", "threshold": threshold}})
    }

    crate::conformance!(TYPE, parameters("LessThan"));

    fn check(parameters: serde_json::Value, values: &[Option<f64>], expected: &[u32]) {
        let row = |value: &Option<f64>| {
            let custom = value.map(|value| ("heat".to_owned(), value)).into_iter().collect();
            Row { observed: Observed { custom, ..Observed::default() }, ..Row::default() }
        };
        let filter = Rig::default().build(&TYPE, parameters.clone()).filter.unwrap();
        assert_eq!(kept(&*filter, &snapshot(1, values.iter().map(row))), expected, "{parameters}");
    }

    #[test]
    fn compares_with_the_threshold() {
        for (operator, expected) in [
            ("LessThan", &[0][..]),
            ("LessThanOrEqual", &[0, 1]),
            ("GreaterThan", &[2]),
            ("GreaterThanOrEqual", &[1, 2]),
            ("Equal", &[1]),
            ("NotEqual", &[0, 2]),
        ] {
            check(parameters(operator), &[Some(5.0), Some(10.0), Some(15.0)], expected);
        }
    }

    fn with(key: &str, value: impl Into<serde_json::Value>) -> serde_json::Value {
        let mut parameters = parameters("LessThan");
        parameters[key] = value.into();
        parameters
    }

    #[test]
    fn a_missing_number_passes_unless_told_otherwise() {
        check(parameters("LessThan"), &[Some(15.0), None], &[1]);
        check(with("onMissing", "Pass"), &[Some(15.0), None], &[1]);
        check(with("onMissing", "Fail"), &[Some(5.0), None], &[0]);
    }

    #[test]
    fn falls_back_to_all_only_if_nobody_is_left() {
        check(parameters("LessThan"), &[Some(15.0), Some(20.0)], &[]);
        check(with("fallbackOnEmpty", true), &[Some(15.0), Some(20.0)], &[0, 1]);
        check(with("fallbackOnEmpty", true), &[Some(15.0), Some(5.0)], &[1]);
    }

    #[test]
    fn refuses_half_a_rule() {
        for (parameters, culprit) in [
            (json!(null), "attribute"),
            (with("attribute", ""), "attribute"),
            (with("attribute", "GPUUtilization/dcgm-extractor"), "dcgm-extractor"),
            (with("onMissing", "Maybe"), "onMissing"),
            (json!({"attribute": "x"}), "algorithm.type"),
            (with("algorithm", json!({"type": "range"})), "range"),
            (with("algorithm", json!({"type": "threshold"})), "algorithm.threshold"),
            (with("algorithm", json!({"type": "threshold", "threshold": {"value": 1}})), "operator"),
            (with("algorithm", json!({"type": "threshold", "threshold": {"operator": "Near"}})), "Near"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
