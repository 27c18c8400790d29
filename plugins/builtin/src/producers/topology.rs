//! `topology-extractor`: where endpoints stand, by their labels.
//!
//! Reads host, rack, zone and region from four labels. A missing or empty label means that the level is not known. Writes
//! the column `Topology`. Costs a copy of the column; labels are read when the membership changes.
//!
//! ```yaml
//! - type: topology-extractor
//!   parameters:
//!     hostnameLabel: kubernetes.io/hostname
//!     rackLabel: topology.kubernetes.io/rack
//!     zoneLabel: topology.kubernetes.io/zone
//!     regionLabel: topology.kubernetes.io/region
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointMeta, Instance, Kind, PluginType, Producer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::Topology;
use crate::per_row::PerRow;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "topology-extractor",
    kinds: &[Kind::Extractor, Kind::Producer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "topology-extractor",
    summary: "Reads from labels where endpoints stand.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The label that names the host. Default `kubernetes.io/hostname`.
    hostname_label: String,
    /// The label that names the rack. Default `topology.kubernetes.io/rack`.
    rack_label: String,
    /// The label that names the zone. Default `topology.kubernetes.io/zone`.
    zone_label: String,
    /// The label that names the region. Default `topology.kubernetes.io/region`.
    region_label: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hostname_label: "kubernetes.io/hostname".into(),
            rack_label: "topology.kubernetes.io/rack".into(),
            zone_label: "topology.kubernetes.io/zone".into(),
            region_label: "topology.kubernetes.io/region".into(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let producer = TopologyLabels { cfg, known: PerRow::default(), column: cx.writes() };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

struct TopologyLabels {
    cfg: Config,
    known: PerRow<Topology>,
    column: ColumnKey<Topology>,
}

/// Gives every name of one level its number.
#[derive(Default)]
struct Names(HashMap<String, u32>);

impl Names {
    fn number(&mut self, name: Option<&str>) -> u32 {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return 0 };
        let next = self.0.len() as u32 + 1;
        *self.0.entry(name.to_owned()).or_insert(next)
    }
}

impl Producer for TopologyLabels {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let Config { hostname_label, rack_label, zone_label, region_label } = &self.cfg;
        let mut names: [Names; 4] = Default::default();
        let known = self.known.of(cx.snapshot, |meta: &EndpointMeta| {
            let [hosts, racks, zones, regions] = &mut names;
            Topology {
                host: hosts.number(meta.label(hostname_label)),
                rack: racks.number(meta.label(rack_label)),
                zone: zones.number(meta.label(zone_label)),
                region: regions.number(meta.label(region_label)),
            }
        });
        columns.write(self.column).copy_from_slice(&known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    fn produced(parameters: serde_json::Value, labels: &[&[(&str, &str)]]) -> Vec<[u32; 4]> {
        let rig = Rig::default();
        let producer = rig.build(&TYPE, parameters).producer.unwrap();
        let board = snapshot(1, labels.iter().map(|labels| Row::labelled(labels)));
        let (request, mut columns) = (request(b"", Default::default()), Columns::default());
        columns.reset(board.rows());
        producer.produce(&cycle(&board, &request), &mut columns).unwrap();
        let column = columns.read(rig.slots.column::<Topology>("topology-extractor")).unwrap();
        column.iter().map(|t| [t.host, t.rack, t.zone, t.region]).collect()
    }

    #[test]
    fn equal_names_of_a_level_get_equal_numbers() {
        let (host, rack) = ("kubernetes.io/hostname", "topology.kubernetes.io/rack");
        let (zone, region) = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region");
        let labels: [&[(&str, &str)]; 4] = [
            &[(host, "a"), (rack, "a"), (zone, "z"), (region, "r")],
            &[(host, "b"), (rack, "a")],
            &[(host, ""), (region, "r")],
            &[],
        ];
        assert_eq!(produced(json!(null), &labels), [[1, 1, 1, 1], [2, 1, 0, 0], [0, 0, 0, 1], [0; 4]]);
    }

    #[test]
    fn reads_the_labels_that_it_is_told() {
        let parameters = json!({"hostnameLabel": "h", "rackLabel": "r", "zoneLabel": "z", "regionLabel": "g"});
        assert_eq!(produced(parameters, &[&[("h", "1"), ("r", "1"), ("z", "1"), ("g", "1")]]), [[1; 4]]);
    }
}
