//! `global-strict-fairness-policy`: a band is one queue, whichever flow a request belongs to.
//!
//! The request goes first that the band's ordering policy puts before all others. Reads no column. Costs one look-up.
//!
//! ```yaml
//! - type: global-strict-fairness-policy
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, FairnessPolicy, FlowId, Instance, Kind, PluginType, Stability, Turns, WaitingFlows,
};
use tokio::time::Instant;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "global-strict-fairness-policy",
    kinds: &[Kind::FairnessPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "global-strict-fairness-policy",
    summary: "Treats all flows of a band as one queue.",
    schema: None,
    build,
};

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { fairness: Some(Arc::new(GlobalStrict)), ..Instance::default() })
}

struct GlobalStrict;

impl FairnessPolicy for GlobalStrict {
    fn turns(&self) -> Box<dyn Turns> {
        Box::new(Self)
    }
}

impl Turns for GlobalStrict {
    fn next(&mut self, flows: &dyn WaitingFlows, _: Instant) -> FlowId {
        flows.first()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::Flows;
    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn flows_play_no_part() {
        let policy = Rig::default().build(&TYPE, json!(null));
        let flows = Flows::new(&[("a", &[1, 2, 5]), ("b", &[3, 6]), ("c", &[4])]);
        assert_eq!(flows.drained(&policy), ["a", "a", "b", "c", "a", "b"]);
    }
}
