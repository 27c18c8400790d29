//! `k8s-notification-source`: accepted so that configs that list it load; there is no Kubernetes to be told of.
//!
//! ```yaml
//! - type: k8s-notification-source
//!   parameters: {group: "", version: v1, kind: Pod}
//! ```

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, NodeError, PluginType, Stability};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "k8s-notification-source",
    kinds: &[Kind::Source],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "k8s-notification-source",
    summary: "Does nothing: there is no Kubernetes to be told of.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["version", "kind"]))]
struct Config {
    /// The group of the objects. Default: the core group.
    #[serde(rename = "group")]
    _group: String,
    /// Their version. Required.
    #[schemars(length(min = 1), example = &"v1")]
    version: String,
    /// Their kind. Required.
    #[schemars(length(min = 1), example = &"Pod")]
    kind: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let required = [("version", &cfg.version), ("kind", &cfg.kind)];
    let missing = required.iter().filter(|(_, value)| value.is_empty());
    let mistakes: Vec<NodeError> = missing
        .map(|(path, _)| NodeError {
            place: None,
            path: (*path).into(),
            message: format!("expected the {path} of the objects, found nothing"),
        })
        .collect();
    if mistakes.is_empty() { Ok(Instance::default()) } else { Err(BuildError(mistakes)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!({"version": "v1", "kind": "Pod"}));

    #[test]
    fn needs_a_version_and_a_kind() {
        assert_eq!(Rig::default().refused(&TYPE, json!({"group": "g"})).lines().count(), 2);
    }
}
