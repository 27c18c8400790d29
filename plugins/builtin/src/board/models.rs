//! `models-data-extractor`: looks at the list of models that an engine serves. Nothing reads it yet, so nothing is kept.
//!
//! ```yaml
//! - type: models-data-extractor
//! ```

use epp_plugin_api::{BuildContext, BuildError, Extraction, Instance, Kind, PluginType, Stability};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "models-data-extractor",
    kinds: &[Kind::Extractor],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "models-data-extractor",
    summary: "Looks at the list of models that an engine serves.",
    schema: None,
    build,
};

fn build(_cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { extractor: Some(Extraction::Models), ..Instance::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    crate::conformance!(TYPE, json!(null));
}
