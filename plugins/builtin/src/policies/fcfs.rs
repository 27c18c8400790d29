//! `fcfs-ordering-policy`: of the requests of a band, the one that has waited longest goes first.
//!
//! The rank is the time at which a request began to wait. Reads no column. Costs nothing.
//!
//! ```yaml
//! - type: fcfs-ordering-policy
//! ```

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, OrderingPolicy, PluginType, Rank, Stability, Waiting};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "fcfs-ordering-policy",
    kinds: &[Kind::OrderingPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "fcfs-ordering-policy",
    summary: "Lets the request go first that has waited longest.",
    schema: None,
    build,
};

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { ordering: Some(Arc::new(FirstCome)), ..Instance::default() })
}

struct FirstCome;

impl OrderingPolicy for FirstCome {
    fn rank(&self, request: &Waiting) -> Rank {
        Rank { at: Some(request.since), then: request.since }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::{Plain, order};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn who_came_first_goes_first_whatever_its_deadline() {
        let late = Plain { since: 2, deadline: Some(3), ..Plain::default() };
        let early = Plain { since: 1, ..Plain::default() };
        assert_eq!(order(&TYPE, &[late, early]), [1, 0]);
    }
}
