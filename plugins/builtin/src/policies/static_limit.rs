//! `static-usage-limit-policy`: every priority may use the same share of the pool.
//!
//! The ceiling is `threshold` for every priority: requests go while the saturation is below it. Reads no column. Costs
//! nothing.
//!
//! ```yaml
//! - type: static-usage-limit-policy
//!   parameters:
//!     threshold: 1.0   # above 0; above 1 goes beyond a full pool
//! ```

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, PluginType, Stability, UsageLimitPolicy};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "static-usage-limit-policy",
    kinds: &[Kind::UsageLimitPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "static-usage-limit-policy",
    summary: "Lets every priority use the same share of the pool.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The saturation from which on requests wait. Above 0; above 1 goes beyond a full pool. Default 1.
    #[schemars(extend("exclusiveMinimum" = 0))]
    threshold: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { threshold: 1.0 }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let Config { threshold } = cx.config()?;
    if threshold.is_nan() || threshold <= 0.0 {
        return Err(BuildError::at("threshold", format!("expected a number above 0, found {threshold}")));
    }
    Ok(Instance { usage_limit: Some(Arc::new(Static { threshold })), ..Instance::default() })
}

struct Static {
    threshold: f64,
}

impl UsageLimitPolicy for Static {
    fn ceilings(&self, _: f64, _: &[i32], ceilings: &mut [f64]) -> Option<Duration> {
        ceilings.fill(self.threshold);
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!({"threshold": 0.9}));

    #[test]
    fn every_priority_has_the_same_ceiling() {
        for (parameters, expected) in [(json!(null), 1.0), (json!({"threshold": 0.5}), 0.5)] {
            let policy = Rig::default().build(&TYPE, parameters).usage_limit.unwrap();
            let mut ceilings = [0.0; 3];
            assert_eq!(policy.ceilings(0.7, &[9, 0, -9], &mut ceilings), None);
            assert_eq!(ceilings, [expected; 3]);
        }
    }

    #[test]
    fn refuses_a_threshold_that_lets_nobody_go() {
        assert!(Rig::default().refused(&TYPE, json!({"threshold": 0})).contains("threshold"));
    }
}
