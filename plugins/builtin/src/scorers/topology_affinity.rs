//! `topology-affinity-scorer`: prefers endpoints that stand near the one that another stage was given to.
//!
//! Score = 1 on the peer's host, 0.2 in its rack, 0.05 in its zone, 0.02 in its region, else, and without a peer, 0. Reads
//! the column `Topology`. Costs one pass over it.
//!
//! ```yaml
//! - type: topology-affinity-scorer
//!   parameters: {topologyProducerName: topology-extractor}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::Topology;
use crate::topology::{Level, levels, producer};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "topology-affinity-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "topology-affinity-scorer",
    summary: "Prefers endpoints that stand near the one that another stage was given to.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that reads where endpoints stand. Default `topology-extractor`.
    topology_producer_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let scorer = TopologyAffinity { topology: cx.reads_if_there(producer(&cfg.topology_producer_name)) };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct TopologyAffinity {
    topology: ColumnKey<Topology>,
}

fn score(level: Level) -> f64 {
    match level {
        Level::Host => 1.0,
        Level::Rack => 0.2,
        Level::Zone => 0.05,
        Level::Region => 0.02,
        Level::Nothing => 0.0,
    }
}

impl Scorer for TopologyAffinity {
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        if let Some(level) = levels(cx, columns, self.topology) {
            super::fill(among, scores, |row| score(level(row)));
        }
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::EndpointIdx;
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    fn check(peer: Option<u32>, expected: &[f64]) {
        let rig = Rig::default();
        let scorer = rig.build(&TYPE, json!(null)).scorer.unwrap();
        let rows = [[1, 1, 1, 1], [1, 9, 9, 9], [2, 1, 1, 1], [2, 2, 1, 1], [2, 2, 2, 1], [2, 2, 2, 2], [0; 4]];
        let at = rows.map(|[host, rack, zone, region]| Topology { host, rack, zone, region });
        let columns = rig.column("topology-extractor", &at);
        let (board, request) = (snapshot(1, vec![Row::default(); 7]), request(b"", Default::default()));
        let mut scores = vec![0.0; 7];
        let cx = Cycle { peer: peer.map(EndpointIdx), ..cycle(&board, &request) };
        scorer.score(&cx, &columns, &Candidates::all(7), &mut scores);
        assert_eq!(scores, expected);
    }

    #[test]
    fn the_nearest_scores_highest() {
        check(Some(0), &[1.0, 1.0, 0.2, 0.05, 0.02, 0.0, 0.0]);
        check(Some(6), &[0.0; 7]);
        check(None, &[0.0; 7]);
    }
}
