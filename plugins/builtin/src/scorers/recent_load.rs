//! `recent-load-scorer`: prefers endpoints that had few requests of this picker in flight, of late.
//!
//! Score = 1 - v / max, where v is the mean in flight of late and max the highest one of the candidates; 1 if that is 0.
//! From 0 to 1. An engine whose conversations pause looks idle and is not: who is sent there meets them when they go on.
//! Reads the column `RecentLoadDataKey`; without it every endpoint scores 1. Costs two passes over a column.
//!
//! ```yaml
//! - type: recent-load-scorer
//!   parameters:
//!     recentLoadProducerName: ""    # default: recent-load-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::RecentLoad;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "recent-load-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "recent-load-scorer",
    summary: "Prefers endpoints that had few requests in flight from this picker, of late.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that knows. Default: `recent-load-producer`.
    recent_load_producer_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let scorer = RecentLoadScorer(cx.reads(&cfg.recent_load_producer_name));
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct RecentLoadScorer(ColumnKey<RecentLoad>);

impl Scorer for RecentLoadScorer {
    fn score(&self, _cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let loads = columns.read(self.0).unwrap_or_default();
        let most = among.iter().filter_map(|idx| loads.get(idx.row())).map(|load| load.milli_requests).max();
        match most.unwrap_or(0) {
            0 => super::fill(among, scores, |_| 1.0),
            most => {
                let scale = 1.0 / f64::from(most);
                super::fill(among, scores, |row| f64::from(most - loads[row].milli_requests) * scale);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"recentLoadProducerName": "mine"}));

    #[test]
    fn measures_against_the_busiest() {
        for (means, expected) in [
            (vec![0, 0], vec![1.0, 1.0]),
            (vec![500, 2000, 0], vec![0.75, 0.0, 1.0]),
            (vec![1, 1], vec![0.0, 0.0]),
            (vec![u32::MAX, 0], vec![0.0, 1.0]),
        ] {
            let rig = Rig::default();
            let scorer = rig.build(&TYPE, json!(null)).scorer.unwrap();
            let loads: Vec<_> = means.iter().map(|&milli_requests| RecentLoad { milli_requests }).collect();
            let columns = rig.column("recent-load-producer", &loads);
            close(&scores(&*scorer, &snapshot(1, vec![Row::default(); loads.len()]), &columns), &expected);
        }
    }

    #[test]
    fn without_means_all_are_equal() {
        let scorer = Rig::default().build(&TYPE, json!(null)).scorer.unwrap();
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 2]), &Columns::default()), &[1.0, 1.0]);
    }

    #[test]
    fn reads_the_producer_that_it_names() {
        for (name, expected) in [("", "recent-load-producer"), ("mine", "mine")] {
            let [reads, ..] = Rig::default().keys(&TYPE, json!({"recentLoadProducerName": name}));
            assert_eq!(reads[0].to_string(), format!("RecentLoadDataKey/{expected}"));
        }
    }
}
