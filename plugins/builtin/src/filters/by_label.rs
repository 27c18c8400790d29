//! `by-label`: keeps the endpoints whose label has one of the listed values. Replaced by `label-selector-filter`.
//!
//! Keeps an endpoint if the value is listed, or if it lacks the label and `allowsNoLabel` is set. A missing label has
//! the empty value. Reads no column. Costs an intersection of two bit sets; labels are compared when the membership
//! changes.
//!
//! ```yaml
//! - type: by-label
//!   parameters: {label: tier, validValues: [gold, silver], allowsNoLabel: false}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Filter, Instance, Kind, PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::by_membership::ByMembership;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "by-label",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: Some("label-selector-filter"),
    reported: "by-label",
    summary: "Keeps the endpoints whose label has one of the listed values.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["label"]))]
struct Config {
    /// The key of the label. Required.
    #[schemars(length(min = 1), example = &"zone")]
    label: String,
    /// The values that stay. Required unless `allowsNoLabel` is set.
    #[schemars(example = ["a", "b"])]
    valid_values: Vec<String>,
    /// Whether endpoints without the label stay. Default false.
    allows_no_label: bool,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if cfg.label.is_empty() {
        return Err(BuildError::at("label", "expected the key of a label, found nothing"));
    }
    if cfg.valid_values.is_empty() && !cfg.allows_no_label {
        return Err(BuildError::at(
            "validValues",
            "expected at least one value unless allowsNoLabel is set, found none",
        ));
    }
    Ok(Instance { filter: Some(Arc::new(ByLabel { cfg, known: ByMembership::default() })), ..Instance::default() })
}

struct ByLabel {
    cfg: Config,
    known: ByMembership,
}

impl Filter for ByLabel {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        let Config { label, valid_values, allows_no_label } = &self.cfg;
        self.known.retain(cx.snapshot, keep, |meta| {
            let value = meta.label(label);
            (value.is_none() && *allows_no_label) || valid_values.iter().any(|v| v == value.unwrap_or_default())
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"label": "t", "validValues": ["a"], "allowsNoLabel": true}));

    #[test]
    fn keeps_the_listed_values() {
        let mut rows = ["a", "b", "c", ""].map(|v| Row::labelled(&[("t", v)])).to_vec();
        rows.push(Row::default());
        for (parameters, expected) in [
            (json!({"label": "t", "validValues": ["a", "b"]}), vec![0, 1]),
            (json!({"label": "t", "validValues": ["a"], "allowsNoLabel": true}), vec![0, 4]),
            (json!({"label": "t", "allowsNoLabel": true}), vec![4]),
            (json!({"label": "t", "validValues": [""]}), vec![3, 4]),
            (json!({"label": "t", "validValues": ["A"]}), vec![]),
        ] {
            let filter = Rig::default().build(&TYPE, parameters).filter.unwrap();
            assert_eq!(kept(&*filter, &snapshot(1, rows.clone())), expected);
        }
    }

    #[test]
    fn refuses_a_rule_that_keeps_nobody() {
        for (parameters, culprit) in [
            (json!(null), "label"),
            (json!({"label": "x"}), "validValues"),
            (json!({"label": "x", "validValues": ["a"], "extra": 1}), "extra"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
    }
}
