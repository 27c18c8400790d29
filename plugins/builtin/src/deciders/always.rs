//! `always-disagg-pd-decider`: every stage is worth it. Parameters are ignored.
//!
//! ```yaml
//! - type: always-disagg-pd-decider
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decider, EndpointIdx, Instance, Kind, PluginType, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "always-disagg-pd-decider",
    kinds: &[Kind::Decider],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "always-disagg-pd-decider",
    summary: "Wants the stage for every request.",
    schema: None,
    build,
};

fn build(_cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { decider: Some(Arc::new(Always)), ..Instance::default() })
}

struct Always;

impl Decider for Always {
    fn wanted(&self, _cx: &Cycle<'_>, _columns: &Columns, _chosen: Option<EndpointIdx>) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));
}
