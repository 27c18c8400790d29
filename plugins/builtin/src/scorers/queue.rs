//! `queue-scorer`: prefers engines in which few requests wait.
//!
//! Score = (max - v) / (max - min), where v is the number of requests that wait for a place in the engine's batch, and
//! min and max are over the candidates; 1 for all if they are equal. So one waiting request against none is as decisive
//! as a thousand. An endpoint whose load is unknown counts as the mean of the others. Reads no column; needs an
//! extractor for `WaitingQueueSize`. Costs two passes over a slice. Parameters are ignored.
//!
//! ```yaml
//! - type: queue-scorer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};

use super::relative::less_is_better;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "queue-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "queue-scorer",
    summary: "Prefers engines in which few requests wait.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.reads_metric("WaitingQueueSize");
    Ok(Instance { scorer: Some(Arc::new(Queue)), ..Instance::default() })
}

struct Queue;

impl Scorer for Queue {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        less_is_better(cx.load.waiting, among, scores);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    fn check(waiting: &[Option<f64>], expected: &[f64]) {
        let rows = waiting.iter().map(|w| w.map_or(Row::default(), |w| Row::heard(w, 99.0, 0.9)));
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, rows), &Columns::default()), expected);
    }

    #[test]
    fn the_shortest_queue_scores_one_and_the_longest_nothing() {
        check(&[Some(10.0), Some(5.0), Some(0.0)], &[0.0, 0.5, 1.0]);
        check(&[Some(1.0), Some(0.0)], &[0.0, 1.0]);
        check(&[Some(3.0), Some(9.0), Some(7.0), Some(5.0)], &[1.0, 0.0, 1.0 / 3.0, 2.0 / 3.0]);
    }

    #[test]
    fn equal_queues_all_score_one() {
        check(&[Some(5.0), Some(5.0)], &[1.0, 1.0]);
        check(&[Some(0.0), Some(0.0)], &[1.0, 1.0]);
        check(&[Some(7.0)], &[1.0]);
        check(&[None, None], &[1.0, 1.0]);
    }

    #[test]
    fn an_unknown_queue_counts_as_the_mean() {
        check(&[Some(10.0), None, Some(0.0)], &[0.0, 0.5, 1.0]);
    }

    #[test]
    fn only_candidates_count() {
        let board = snapshot(1, [10.0, 4.0, 2.0].map(|w| Row::heard(w, 0.0, 0.0)));
        let request = crate::testing::request(b"", Default::default());
        let mut among = Candidates::all(3);
        among.remove(epp_plugin_api::EndpointIdx(0));
        let mut got = vec![0.0; 3];
        Queue.score(&crate::testing::cycle(&board, &request), &Columns::default(), &among, &mut got);
        close(&got, &[0.0, 0.0, 1.0]);
    }
}
