//! `endpoint-notification-source`: tells its extractors of endpoints that come and go, so that they connect to them.
//!
//! Only plugins that hear what engines publish of their KV caches need it: an extractor of this source connects to the
//! publisher of every endpoint. Without it such a plugin hears nobody, unless engines connect to a socket of its own.
//! Everything else learns of endpoints that come and go by itself.
//!
//! ```yaml
//! - type: endpoint-notification-source
//! ```
//!
//! In `dataLayer`: `sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: NAME}]}]`.

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, PluginType, Stability};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "endpoint-notification-source",
    kinds: &[Kind::Source],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "endpoint-notification-source",
    summary: "Has its extractors connect to endpoints that come and go, to hear of their KV caches.",
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
