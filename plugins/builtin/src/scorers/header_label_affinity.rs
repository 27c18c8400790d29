//! `header-label-affinity-scorer`: prefers endpoints whose label is what a header of the request says.
//!
//! Score = 1 where the values are exactly the same and not empty, else 0. Reads no column. Costs one
//! comparison an endpoint; labels are read when the membership changes.
//!
//! ```yaml
//! - type: header-label-affinity-scorer
//!   parameters: {headerName: x-slice, labelKey: slice}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::per_row::PerRow;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "header-label-affinity-scorer",
    kinds: &[Kind::Scorer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "header-label-affinity-scorer",
    summary: "Prefers endpoints whose label is what a header of the request says.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["headerName", "labelKey"]))]
struct Config {
    /// The header. Required.
    #[schemars(length(min = 1), example = &"x-zone")]
    header_name: String,
    /// The key of the label. Required.
    #[schemars(length(min = 1), example = &"zone")]
    label_key: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    if cx.parameters.is_none_or(|node| node.is_null()) {
        return Err(BuildError::new("expected the parameters headerName and labelKey, found none"));
    }
    let cfg: Config = cx.config()?;
    if cfg.header_name.is_empty() {
        return Err(BuildError::at("headerName", "expected the name of a header, found nothing"));
    }
    if cfg.label_key.is_empty() {
        return Err(BuildError::at("labelKey", "expected the key of a label, found nothing"));
    }
    cx.reads_header(&cfg.header_name);
    let scorer = HeaderLabelAffinity {
        header: cfg.header_name.to_ascii_lowercase(),
        label: cfg.label_key,
        values: PerRow::default(),
    };
    Ok(Instance { scorer: Some(Arc::new(scorer)), ..Instance::default() })
}

struct HeaderLabelAffinity {
    header: String,
    label: String,
    values: PerRow<Option<Box<str>>>,
}

impl Scorer for HeaderLabelAffinity {
    fn score(&self, cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let Some(wanted) = cx.request.headers.find(&self.header).filter(|value| !value.is_empty()) else { return };
        let values = self.values.of(cx.snapshot, |meta| meta.label(&self.label).map(Box::from));
        for idx in among.iter().filter(|idx| values[idx.row()].as_deref() == Some(wanted)) {
            scores[idx.row()] = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"headerName": "x", "labelKey": "y"}));

    #[test]
    fn only_the_very_same_value_scores() {
        let scorer = Rig::default().build(&TYPE, json!({"headerName": "X-Slice", "labelKey": "slice"})).scorer.unwrap();
        let labels = ["a", "b", ""].map(|value| Row::labelled(&[("slice", value)]));
        let board = snapshot(1, labels.into_iter().chain([Row::default()]));
        for (header, value, expected) in [
            ("x-slice", "a", [1.0, 0.0, 0.0, 0.0]),
            ("x-slice", "b", [0.0, 1.0, 0.0, 0.0]),
            ("x-slice", " a", [0.0; 4]),
            ("x-slice", "A", [0.0; 4]),
            ("x-slice", "", [0.0; 4]),
            ("x-other", "a", [0.0; 4]),
        ] {
            let mut request = request(b"", Default::default());
            request.headers.set(header, value.to_owned());
            let mut scores = vec![0.0; 4];
            scorer.score(&cycle(&board, &request), &Columns::default(), &Candidates::all(4), &mut scores);
            assert_eq!(scores, expected, "{header}: {value}");
        }
    }

    #[test]
    fn refuses_half_a_pair() {
        for (parameters, culprit) in [
            (json!(null), "parameters"),
            (json!({"labelKey": "x"}), "headerName"),
            (json!({"headerName": "x"}), "labelKey"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
    }
}
