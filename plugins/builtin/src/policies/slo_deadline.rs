//! `slo-deadline-ordering-policy`: of the requests of a band, the one whose first token is due first goes first.
//!
//! The rank is the time of receipt plus the client's objective for the time to the first token, which it gives in
//! milliseconds in the header `x-llm-d-slo-ttft-ms` (formerly `x-slo-ttft-ms`), a whole number of 0 or more. A request
//! without one goes last; equals go in the order of receipt. Reads no column. Costs nothing.
//!
//! ```yaml
//! - type: slo-deadline-ordering-policy
//! ```

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, OrderingPolicy, PluginType, Rank, Stability, Waiting};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "slo-deadline-ordering-policy",
    kinds: &[Kind::OrderingPolicy],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "slo-deadline-ordering-policy",
    summary: "Lets the request go first whose first token is due first.",
    schema: None,
    build,
};

fn build(_: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { ordering: Some(Arc::new(SloDeadline)), ..Instance::default() })
}

struct SloDeadline;

impl OrderingPolicy for SloDeadline {
    fn rank(&self, request: &Waiting) -> Rank {
        // An objective beyond what time can hold is none.
        let due = request.ttft_objective.and_then(|objective| request.received.checked_add(objective));
        Rank { at: due, then: request.received }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policies::testing::{Plain, order};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn what_is_due_first_goes_first_and_what_has_no_objective_goes_last() {
        let objectives = [None, Some(10_000), Some(500), Some(2000), None];
        let requests = objectives.map(|ttft_objective| Plain { ttft_objective, ..Plain::default() });
        assert_eq!(order(&TYPE, &requests), [2, 3, 1, 0, 4]);
    }

    #[test]
    fn an_objective_counts_from_receipt_and_one_beyond_all_time_is_none() {
        let early = Plain { since: 9, received: 0, ttft_objective: Some(20), ..Plain::default() };
        let late = Plain { since: 1, received: 15, ttft_objective: Some(10), ..Plain::default() };
        let never = Plain { ttft_objective: Some(u64::MAX), ..Plain::default() };
        assert_eq!(order(&TYPE, &[never, late, early]), [2, 1, 0]);
    }
}
