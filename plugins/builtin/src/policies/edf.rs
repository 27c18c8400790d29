//! `edf-ordering-policy`: of the requests of a band, the one whose time to wait is up first goes first.
//!
//! The rank is the time until which a request may wait: its TTL, or the deadline of its stream if that comes earlier.
//! One that may wait for ever goes last; equals go in the order in which they came. Reads no column. Costs nothing.
//!
//! ```yaml
//! - type: edf-ordering-policy
//! ```

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, OrderingPolicy, PluginType, Rank, Stability, Waiting};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "edf-ordering-policy",
    kinds: &[Kind::OrderingPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "edf-ordering-policy",
    summary: "Lets the request go first whose time to wait is up first.",
    schema: None,
    build,
};

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { ordering: Some(Arc::new(EarliestDeadline)), ..Instance::default() })
}

struct EarliestDeadline;

impl OrderingPolicy for EarliestDeadline {
    fn rank(&self, request: &Waiting) -> Rank {
        Rank { at: request.deadline, then: request.since }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::{Plain, order};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn the_earliest_deadline_goes_first_and_none_goes_last() {
        let deadlines = [None, Some(50), Some(15), None, Some(30)];
        let requests = deadlines.map(|deadline| Plain { deadline, ..Plain::default() });
        assert_eq!(order(&TYPE, &requests), [2, 4, 1, 0, 3]);
    }
}
