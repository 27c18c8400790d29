//! `file-discovery`: finds the endpoints in a YAML file and follows its changes. `multicluster-file-discovery` takes them
//! for gateways of clusters: host names are passed on as they are, and the labels `metricsAddress` and `metricsPort` say
//! where metrics are.
//!
//! ```yaml
//! - type: file-discovery
//!   parameters: {path: /etc/epp/endpoints.yaml, watchFile: true}
//! ```

use epp_plugin_api::{BuildContext, BuildError, DiscoverySpec, Instance, Kind, PluginType, Stability};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "file-discovery",
    kinds: &[Kind::Discovery],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "file-discovery",
    summary: "Finds the endpoints in a YAML file and follows its changes.",
    schema: Some(crate::schema::of::<Config>),
    build: |cx| build(cx, false),
};

/// The registry's line for gateways of clusters.
pub static CLUSTERS: PluginType = PluginType {
    name: "multicluster-file-discovery",
    kinds: &[Kind::Discovery],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "multicluster-file-discovery",
    summary: "Finds the gateways of clusters in a YAML file and follows its changes.",
    schema: Some(crate::schema::of::<Config>),
    build: |cx| build(cx, true),
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["path"]))]
struct Config {
    /// The endpoints file; relative to the working directory. Required.
    #[schemars(length(min = 1), example = &"endpoints.yaml")]
    path: String,
    /// Whether changes of the file are taken up while running. Default true.
    watch_file: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { path: String::new(), watch_file: true }
    }
}

fn build(cx: &mut BuildContext<'_>, clusters: bool) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    if cfg.path.is_empty() {
        return Err(BuildError::at("path", "expected the path of the endpoints file, found nothing"));
    }
    let discovery = DiscoverySpec { path: cfg.path, watch: cfg.watch_file, clusters };
    Ok(Instance { discovery: Some(discovery), ..Instance::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!({"path": "f"}));

    #[test]
    fn follows_the_file_unless_told_not_to() {
        for (parameters, watch) in [
            (json!({"path": "f"}), true),
            (json!({"path": "f", "watchFile": null}), true),
            (json!({"path": "f", "watchFile": false}), false),
        ] {
            let spec = Rig::default().build(&TYPE, parameters).discovery;
            assert_eq!(spec, Some(DiscoverySpec { path: "f".into(), watch, clusters: false }));
        }
    }

    #[test]
    fn needs_a_path() {
        assert!(Rig::default().refused(&TYPE, json!(null)).contains("path"));
        assert!(Rig::default().refused(&TYPE, json!({"path": ""})).contains("path"));
        assert!(Rig::default().refused(&TYPE, json!({"path": "/x", "foo": 1})).contains("\"foo\""));
    }
}
