//! `running-requests-size-scorer`: prefers engines with few requests in their batch.
//!
//! Score = (max - v) / (max - min), where v is the number of requests in the engine's batch, and min and max are over the
//! candidates; 1 for all if they are equal. An endpoint whose load is unknown counts as the mean of the others. Reads no
//! column; needs an extractor for `RunningRequestsSize`. Costs two passes over a slice. Parameters are ignored.
//!
//! ```yaml
//! - type: running-requests-size-scorer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};

use super::relative::less_is_better;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "running-requests-size-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "running-requests-size-scorer",
    summary: "Prefers engines with few requests in their batch.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.reads_metric("RunningRequestsSize");
    Ok(Instance { scorer: Some(Arc::new(RunningRequests)), ..Instance::default() })
}

struct RunningRequests;

impl Scorer for RunningRequests {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        less_is_better(cx.load.running, among, scores);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    #[test]
    fn the_smallest_batch_scores_one_and_the_largest_nothing() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        for (running, expected) in [([10.0, 5.0, 0.0], [0.0, 0.5, 1.0]), ([4.0, 4.0, 4.0], [1.0; 3])] {
            let board = snapshot(1, running.map(|r| Row::heard(9.0 - r, r, 0.0)));
            close(&scores(&*scorer, &board, &Columns::default()), &expected);
        }
    }
}
