//! `endpoint-notification-source`: accepted so that configs that list it load; does nothing.
//!
//! Plugins are told of endpoints that come and go without it.
//!
//! ```yaml
//! - type: endpoint-notification-source
//! ```

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, PluginType, Stability};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "endpoint-notification-source",
    kinds: &[Kind::Source],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "endpoint-notification-source",
    summary: "Does nothing: plugins are told of endpoints that come and go without it.",
    schema: None,
    build,
};

fn build(_cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance::default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    crate::conformance!(TYPE, json!(null));
}
