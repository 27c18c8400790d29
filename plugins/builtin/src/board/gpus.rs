//! `dcgm-extractor`: how busy the GPUs of an endpoint are, by the page of NVIDIA's exporter.
//!
//! The busiest GPU of `DCGM_FI_DEV_GPU_UTIL` counts, from 0 to 1; those of other pods, by their label `pod`, do not.
//! Provides `GPUUtilization`.
//!
//! ```yaml
//! - type: dcgm-extractor
//! ```

use epp_plugin_api::{BuildContext, BuildError, Extraction, Instance, Kind, PluginType, Stability};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "dcgm-extractor",
    kinds: &[Kind::Extractor],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "dcgm-extractor",
    summary: "Reads how busy the GPUs of an endpoint are.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.writes_metric_of("GPUUtilization", "dcgm-extractor");
    let (family, key) = ("DCGM_FI_DEV_GPU_UTIL".to_owned(), "GPUUtilization/dcgm-extractor".to_owned());
    Ok(Instance { extractor: Some(Extraction::Gpus { family, key }), ..Instance::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    crate::conformance!(TYPE, json!(null));
}
