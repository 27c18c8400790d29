//! `multicluster-queue-scorer` and `multicluster-kv-cache-utilization-scorer`: prefer clusters whose engines are little
//! loaded on average, as their own picker says.
//!
//! Queue: score = (max - v) / (max - min) over the candidates that say it, 1 for all of them if they are equal. KV cache:
//! score = 1 - v. Clusters that say nothing score 0. Read no column; need an extractor for
//! `llm-d.ai/multicluster-queue-size` or `llm-d.ai/multicluster-kv-cache-utilization`. Cost one look at
//! a cluster's numbers each.
//!
//! ```yaml
//! - type: multicluster-queue-scorer
//! - type: multicluster-kv-cache-utilization-scorer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};

use crate::custom::CustomKey;

/// The registry's line for the scorer of queues.
pub static QUEUE: PluginType =
    plugin_type("multicluster-queue-scorer", "Prefers clusters in which few requests wait on average.", |cx| {
        build(cx, "llm-d.ai/multicluster-queue-size", Rule::LeastOfAll)
    });

/// The registry's line for the scorer of KV caches.
pub static KV_CACHE: PluginType = plugin_type(
    "multicluster-kv-cache-utilization-scorer",
    "Prefers clusters whose KV caches are empty on average.",
    |cx| build(cx, "llm-d.ai/multicluster-kv-cache-utilization", Rule::Free),
);

const fn plugin_type(
    name: &'static str,
    summary: &'static str,
    build: fn(&mut BuildContext<'_>) -> Result<Instance, BuildError>,
) -> PluginType {
    PluginType {
        name,
        kinds: &[Kind::Scorer],
        stability: Stability::Alpha,
        replaced_by: None,
        reported: name,
        summary,
        schema: None,
        build,
    }
}

fn build(cx: &mut BuildContext<'_>, data: &'static str, rule: Rule) -> Result<Instance, BuildError> {
    cx.reads_metric_of(data, "");
    let scorer = Multicluster { key: CustomKey::of(data, ""), rule };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    /// Measures against the other clusters.
    LeastOfAll,
    /// What is left of 1.
    Free,
}

struct Multicluster {
    key: CustomKey,
    rule: Rule,
}

impl Scorer for Multicluster {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        self.key.score(cx.snapshot, among, scores, |value, least, most| {
            let score = match self.rule {
                Rule::LeastOfAll if most > least => (most - value) / (most - least),
                Rule::LeastOfAll => 1.0,
                Rule::Free => 1.0 - value,
            };
            score.clamp(0.0, 1.0)
        });
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Observed;
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    mod queue {
        crate::conformance!(super::QUEUE, serde_json::json!(null));
    }
    mod kv_cache {
        crate::conformance!(super::KV_CACHE, serde_json::json!(null));
    }

    fn check(kind: &PluginType, key: &str, values: &[Option<f64>], expected: &[f64]) {
        let row = |value: &Option<f64>| {
            let custom = value.map(|value| (key.to_owned(), value)).into_iter().collect();
            Row { observed: Observed { custom, ..Observed::default() }, ..Row::default() }
        };
        let scorer = Rig::default().build(kind, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, values.iter().map(row)), &Columns::default()), expected);
    }

    #[test]
    fn the_shortest_queue_of_those_that_say_it_scores_one() {
        let key = "llm-d.ai/multicluster-queue-size/";
        check(&QUEUE, key, &[Some(2.0), Some(6.0), Some(10.0)], &[1.0, 0.5, 0.0]);
        check(&QUEUE, key, &[Some(2.0), None, Some(10.0)], &[1.0, 0.0, 0.0]);
        check(&QUEUE, key, &[Some(4.0), Some(4.0)], &[1.0, 1.0]);
        check(&QUEUE, key, &[None], &[0.0]);
    }

    #[test]
    fn free_cache_scores() {
        let key = "llm-d.ai/multicluster-kv-cache-utilization/";
        check(&KV_CACHE, key, &[Some(0.2), Some(0.9), None, Some(1.5)], &[0.8, 0.1, 0.0, 0.0]);
    }

    #[test]
    fn needs_what_clusters_say() {
        for (kind, expected) in
            [(&QUEUE, "llm-d.ai/multicluster-queue-size/"), (&KV_CACHE, "llm-d.ai/multicluster-kv-cache-utilization/")]
        {
            let [reads, ..] = Rig::default().keys(kind, json!(null));
            assert_eq!(reads[0].to_string(), expected);
            assert_eq!(reads[0].default_producer, None);
        }
    }
}
