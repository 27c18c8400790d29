//! `round-robin-fairness-policy`: the flows of a band that have somebody waiting go one after another.
//!
//! Flows take turns in the order of their names, one request a turn; a flow that waits for nothing is passed over. Once
//! nobody waits in the band, the round begins anew. Reads no column. Costs one look-up by name.
//!
//! ```yaml
//! - type: round-robin-fairness-policy
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, FairnessPolicy, FlowId, Instance, Kind, PluginType, Stability, Turns, WaitingFlows,
};
use tokio::time::Instant;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "round-robin-fairness-policy",
    kinds: &[Kind::FairnessPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "round-robin-fairness-policy",
    summary: "Lets the flows of a band take turns.",
    schema: None,
    build,
};

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { fairness: Some(Arc::new(RoundRobin)), ..Instance::default() })
}

struct RoundRobin;

impl FairnessPolicy for RoundRobin {
    fn turns(&self) -> Box<dyn Turns> {
        Box::new(Round::default())
    }
}

/// How far the round of one band has come.
#[derive(Default)]
struct Round {
    /// Whose turn it was last.
    last: Option<FlowId>,
}

impl Turns for Round {
    fn next(&mut self, flows: &dyn WaitingFlows, _: Instant) -> FlowId {
        // No name is before the empty one.
        let next = flows.after(self.last.as_deref().unwrap_or_default());
        self.last = Some(next.clone());
        next
    }

    fn emptied(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::Flows;
    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    fn turns(flows: &[(&str, &[u64])]) -> String {
        Flows::new(flows).drained(&Rig::default().build(&TYPE, json!(null))).concat()
    }

    #[test]
    fn each_flow_that_waits_has_its_turn() {
        assert_eq!(turns(&[("a", &[1, 2, 3]), ("b", &[4, 5]), ("c", &[6])]), "abcaba");
        assert_eq!(turns(&[("c", &[1, 2]), ("a", &[3, 5]), ("b", &[4])]), "abcac");
    }

    #[test]
    fn a_band_that_was_empty_begins_a_new_round() {
        let mut round = Round::default();
        let flows = Flows::new(&[("a", &[1, 2]), ("b", &[3])]);
        assert_eq!(&*round.next(&flows, flows.zero), "a");
        assert_eq!(&*round.next(&flows, flows.zero), "b");
        assert_eq!(&*round.next(&flows, flows.zero), "a");
        round.emptied();
        assert_eq!(&*round.next(&flows, flows.zero), "a");
    }
}
