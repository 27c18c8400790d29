//! `mm-embeddings-cache-scorer`: prefers endpoints that have encoded the request's images, videos and sounds before.
//!
//! Score = size of those that the endpoint has / size of all; 0 if there are none. Reads the column
//! `MultiModalEncoderCacheMatchInfoKey`. Costs one pass over it.
//!
//! ```yaml
//! - type: mm-embeddings-cache-scorer
//!   parameters: {producerName: mm-embeddings-cache-producer}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::EncoderMatch;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "mm-embeddings-cache-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "mm-embeddings-cache-scorer",
    summary: "Prefers endpoints that have encoded the request's images, videos and sounds before.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that knows what is encoded. Default `mm-embeddings-cache-producer`.
    producer_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let scorer = MmEmbeddings { matches: cx.reads(&cfg.producer_name) };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct MmEmbeddings {
    matches: ColumnKey<EncoderMatch>,
}

impl Scorer for MmEmbeddings {
    fn score(&self, _cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let Some(matches) = columns.read(self.matches) else { return };
        super::fill(among, scores, |row| {
            let EncoderMatch { matched, requested } = matches[row];
            f64::from(matched.min(requested)) / f64::from(requested.max(1))
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, close, scores, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn scores_the_share_that_is_encoded() {
        let rig = Rig::default();
        let scorer = rig.build(&TYPE, json!(null)).scorer.unwrap();
        let matches = [(80, 100), (20, 100), (0, 100), (0, 0)];
        let matches = matches.map(|(matched, requested)| EncoderMatch { matched, requested });
        let columns = rig.column("mm-embeddings-cache-producer", &matches);
        close(&scores(&*scorer, &snapshot(1, vec![Row::default(); 4]), &columns), &[0.8, 0.2, 0.0, 0.0]);
    }

    #[test]
    fn reads_the_producer_that_it_names() {
        for (name, expected) in [("", "mm-embeddings-cache-producer"), ("mine", "mine")] {
            let [reads, ..] = Rig::default().keys(&TYPE, json!({"producerName": name}));
            assert_eq!(reads[0].to_string(), format!("MultiModalEncoderCacheMatchInfoKey/{expected}"));
        }
    }
}
