//! `multicluster-metrics-extractor`: the averages that the picker of another cluster shows of its pool.
//!
//! Provides `llm-d.ai/multicluster-kv-cache-utilization` and `llm-d.ai/multicluster-queue-size`.
//!
//! ```yaml
//! - type: multicluster-metrics-extractor
//!   parameters:
//!     kvCacheUtilizationMetric: llm_d_epp_average_kv_cache_utilization
//!     queueSizeMetric: llm_d_epp_average_queue_size
//! ```

use epp_plugin_api::{BuildContext, BuildError, Extraction, Instance, Kind, PluginType, Stability};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "multicluster-metrics-extractor",
    kinds: &[Kind::Extractor],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "multicluster-metrics-extractor",
    summary: "Reads the averages that the picker of another cluster shows of its pool.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The family of the mean share of KV cache in use. Default `llm_d_epp_average_kv_cache_utilization`.
    kv_cache_utilization_metric: String,
    /// The family of the mean number of waiting requests. Default `llm_d_epp_average_queue_size`.
    queue_size_metric: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kv_cache_utilization_metric: "llm_d_epp_average_kv_cache_utilization".into(),
            queue_size_metric: "llm_d_epp_average_queue_size".into(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let usage = ("llm-d.ai/multicluster-kv-cache-utilization", cfg.kv_cache_utilization_metric);
    let queue = ("llm-d.ai/multicluster-queue-size", cfg.queue_size_metric);
    let gauges = [usage, queue].map(|(data, family)| {
        cx.writes_metric_of(data, "");
        // The key of a value of no producer ends with the slash.
        (family, format!("{data}/"))
    });
    Ok(Instance { extractor: Some(Extraction::Gauges(gauges.into())), ..Instance::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn provides_both_averages() {
        let [.., writes] = Rig::default().keys(&TYPE, json!(null));
        let names: Vec<String> = writes.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["llm-d.ai/multicluster-kv-cache-utilization/", "llm-d.ai/multicluster-queue-size/"]);
    }

    #[test]
    fn families_can_be_named() {
        let instance = Rig::default().build(&TYPE, json!({"queueSizeMetric": "q"}));
        let Some(Extraction::Gauges(gauges)) = instance.extractor else { panic!("reads gauges") };
        assert_eq!(gauges[1], ("q".to_owned(), "llm-d.ai/multicluster-queue-size/".to_owned()));
    }
}
