//! `priority-holdback-policy`: keeps some of the pool back for higher priorities.
//!
//! The highest priority may use the pool up to `maxCeiling`, the lowest up to `minCeiling`, and those between up to a
//! ceiling between: by their rank (`maxCeiling` - rank * (`maxCeiling` - `minCeiling`) / (n - 1), the highest of n having
//! rank 0), or by their value (`minCeiling` + (`maxCeiling` - `minCeiling`) * (p - lowest) / (highest - lowest)). A single
//! priority has `maxCeiling`. Every priority counts for which there is a band, whether anyone waits there or not. Reads no
//! column. Costs one pass over the priorities.
//!
//! ```yaml
//! - type: priority-holdback-policy
//!   parameters:
//!     minCeiling: 0.5   # 0 to 1, below maxCeiling; required
//!     maxCeiling: 1.0   # above 0, at most 1
//!     domain: rank      # or value
//!     shape: linear
//! ```

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, PluginType, Stability, UsageLimitPolicy};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "priority-holdback-policy",
    kinds: &[Kind::UsageLimitPolicy],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "priority-holdback-policy",
    summary: "Keeps some of the pool back for higher priorities.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["minCeiling"]))]
struct Config {
    /// How ceilings go from one end to the other. Default `linear`.
    shape: Shape,
    /// What the place of a priority between the ends is measured by. Default `rank`.
    domain: Domain,
    /// The ceiling of the lowest priority. At least 0 and below `maxCeiling`. Required.
    #[schemars(range(min = 0, max = 1), example = 0.5)]
    min_ceiling: Option<f64>,
    /// The ceiling of the highest priority. Above 0, at most 1. Default 1.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    max_ceiling: f64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Shape {
    #[default]
    Linear,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Domain {
    /// By how many priorities are higher.
    #[default]
    Rank,
    /// By the number itself.
    Value,
}

impl Default for Config {
    fn default() -> Self {
        Self { shape: Shape::Linear, domain: Domain::Rank, min_ceiling: None, max_ceiling: 1.0 }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let Config { shape: Shape::Linear, domain, min_ceiling, max_ceiling: most } = cx.config()?;
    let Some(least) = min_ceiling else {
        let message = "priority-holdback-policy: expected the ceiling of the lowest priority, found nothing";
        return Err(BuildError::at("minCeiling", message));
    };
    if !(0.0..1.0).contains(&least) {
        return Err(BuildError::at("minCeiling", format!("expected at least 0 and less than 1, found {least}")));
    }
    if !(most > least && most <= 1.0) {
        let message = format!("expected more than minCeiling, which is {least}, and at most 1, found {most}");
        return Err(BuildError::at("maxCeiling", message));
    }
    Ok(Instance { usage_limit: Some(Arc::new(Holdback { least, most, domain })), ..Instance::default() })
}

struct Holdback {
    least: f64,
    most: f64,
    domain: Domain,
}

impl UsageLimitPolicy for Holdback {
    fn ceilings(&self, _: f64, priorities: &[i32], ceilings: &mut [f64]) -> Option<Duration> {
        let (Some(&highest), Some(&lowest)) = (priorities.first(), priorities.last()) else { return None };
        let span = self.most - self.least;
        for (rank, (priority, ceiling)) in priorities.iter().zip(ceilings).enumerate() {
            *ceiling = match self.domain {
                _ if highest == lowest => self.most,
                Domain::Rank => self.most - rank as f64 * span / (priorities.len() - 1) as f64,
                Domain::Value => {
                    let of_all = f64::from(highest) - f64::from(lowest);
                    self.least + span * (f64::from(*priority) - f64::from(lowest)) / of_all
                }
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, close};

    use super::*;

    crate::conformance!(TYPE, json!({"minCeiling": 0.5}));

    fn check(domain: &str, most: f64, priorities: &[i32], expected: &[f64]) {
        let parameters = json!({"minCeiling": 0.5, "maxCeiling": most, "domain": domain});
        let policy = Rig::default().build(&TYPE, parameters).usage_limit.unwrap();
        let mut ceilings = vec![9.0; priorities.len()];
        policy.ceilings(0.3, priorities, &mut ceilings);
        close(&ceilings, expected);
    }

    #[test]
    fn ceilings_fall_with_the_priority() {
        check("rank", 1.0, &[100, 50, 10], &[1.0, 0.75, 0.5]);
        check("value", 1.0, &[100, 50, 10], &[1.0, 0.5 + 0.5 * 40.0 / 90.0, 0.5]);
        check("rank", 1.0, &[100, 2, 1], &[1.0, 0.75, 0.5]);
        check("value", 1.0, &[100, 2, 1], &[1.0, 0.5 + 0.5 / 99.0, 0.5]);
        check("value", 1.0, &[i32::MAX, 0, i32::MIN], &[1.0, 0.75, 0.5]);
    }

    #[test]
    fn a_single_priority_may_use_the_most() {
        for domain in ["rank", "value"] {
            check(domain, 0.8, &[7], &[0.8]);
            check(domain, 0.8, &[], &[]);
        }
    }

    #[test]
    fn refuses_ceilings_that_do_not_fall() {
        for (parameters, culprit) in [
            (json!(null), "priority-holdback-policy"),
            (json!({"minCeiling": 1.0}), "minCeiling"),
            (json!({"minCeiling": -0.1}), "minCeiling"),
            (json!({"minCeiling": 0.5, "maxCeiling": 0.5}), "maxCeiling"),
            (json!({"minCeiling": 0.5, "maxCeiling": 1.5}), "maxCeiling"),
            (json!({"minCeiling": 0.5, "domain": "x"}), "domain"),
            (json!({"minCeiling": 0.5, "shape": "cubic"}), "shape"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
