//! `kv-cache-utilization-scorer`: prefers engines with room in their KV cache.
//!
//! Score = 1 - share of the KV cache in use, from 0 to 1. An endpoint whose usage is unknown counts as the mean of the
//! others; if no usage is known all score 1. Reads no column; needs an extractor for `KVCacheUsagePercent`. Costs one
//! pass over a slice. Parameters are ignored.
//!
//! ```yaml
//! - type: kv-cache-utilization-scorer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "kv-cache-utilization-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "kv-cache-utilization-scorer",
    summary: "Prefers engines with room in their KV cache.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.reads_metric("KVCacheUsagePercent");
    Ok(Instance { scorer: Some(Arc::new(KvCache)), ..Instance::default() })
}

struct KvCache;

impl Scorer for KvCache {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        super::fill(among, scores, |row| (1.0 - cx.load.kv_usage[row]).clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    #[test]
    fn scores_the_free_share() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        for (usage, expected) in [([0.8, 0.5, 0.0], [0.2, 0.5, 1.0]), ([1.0, 1.5, 0.25], [0.0, 0.0, 0.75])] {
            let board = snapshot(1, usage.map(|u| Row::heard(0.0, 0.0, u)));
            close(&scores(&*scorer, &board, &Columns::default()), &expected);
        }
    }

    #[test]
    fn unknown_usage_everywhere_scores_one() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 2]), &Columns::default()), &[1.0, 1.0]);
    }
}
