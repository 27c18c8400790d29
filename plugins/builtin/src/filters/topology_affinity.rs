//! `topology-affinity-filter`: keeps the endpoints that stand near the one that another stage was given to.
//!
//! Keeps those that share at least the level `minAffinity` with the peer: its host, rack, zone or region, in this order.
//! A looser level counts even if a tighter one differs. All stay if there is no peer, or if nobody would be left. Reads
//! the column `Topology`. Costs two passes over the column.
//!
//! ```yaml
//! - type: topology-affinity-filter
//!   parameters:
//!     minAffinity: host                           # or rack, zone, region
//!     topologyProducerName: topology-extractor
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Filter, Instance, Kind, PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::Topology;
use crate::topology::{Level, levels, producer};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "topology-affinity-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "topology-affinity-filter",
    summary: "Keeps the endpoints that stand near the one that another stage was given to.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// What an endpoint must at least share with the peer. Default `host`.
    min_affinity: MinAffinity,
    /// The instance that reads where endpoints stand. Default `topology-extractor`.
    topology_producer_name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum MinAffinity {
    #[default]
    Host,
    Rack,
    Zone,
    Region,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let loosest = match cfg.min_affinity {
        MinAffinity::Host => Level::Host,
        MinAffinity::Rack => Level::Rack,
        MinAffinity::Zone => Level::Zone,
        MinAffinity::Region => Level::Region,
    };
    let filter = TopologyAffinity { loosest, topology: cx.reads_if_there(producer(&cfg.topology_producer_name)) };
    Ok(Instance { filter: Some(Arc::new(filter)), ..Instance::default() })
}

struct TopologyAffinity {
    loosest: Level,
    topology: ColumnKey<Topology>,
}

impl Filter for TopologyAffinity {
    fn filter(&self, cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        if let Some(level) = levels(cx, columns, self.topology) {
            super::retain_or_all(keep, true, |idx| level(idx.row()) <= self.loosest);
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

    fn check(min_affinity: &str, peer: Option<u32>, rows: &[[u32; 4]], expected: &[u32]) {
        let rig = Rig::default();
        let filter = rig.build(&TYPE, json!({"minAffinity": min_affinity})).filter.unwrap();
        let at: Vec<_> = rows.iter().map(|&[host, rack, zone, region]| Topology { host, rack, zone, region }).collect();
        let columns = rig.column("topology-extractor", &at);
        let (board, request) = (snapshot(1, vec![Row::default(); rows.len()]), request(b"", Default::default()));
        let mut keep = Candidates::all(rows.len());
        let cx = Cycle { peer: peer.map(EndpointIdx), ..cycle(&board, &request) };
        filter.filter(&cx, &columns, &mut keep);
        assert_eq!(keep.iter().map(|idx| idx.0).collect::<Vec<_>>(), expected, "{min_affinity} {peer:?}");
    }

    #[test]
    fn keeps_those_near_the_peer() {
        let rows = [[1, 1, 1, 1], [1, 9, 0, 0], [2, 1, 0, 0], [0, 2, 1, 0], [2, 2, 2, 1], [2, 2, 2, 2], [0; 4]];
        for (level, expected) in
            [("host", &[0, 1][..]), ("rack", &[0, 1, 2]), ("zone", &[0, 1, 2, 3]), ("region", &[0, 1, 2, 3, 4])]
        {
            check(level, Some(0), &rows, expected);
        }
    }

    #[test]
    fn keeps_all_rather_than_none() {
        check("host", None, &[[1; 4], [2; 4]], &[0, 1]);
        check("host", Some(0), &[[0; 4], [2; 4]], &[0, 1]);
    }

    #[test]
    fn refuses_an_unknown_level() {
        let message = Rig::default().refused(&TYPE, json!({"minAffinity": "planet"}));
        assert!(message.contains("planet"), "{message}");
    }
}
