//! `core-metrics-extractor`: under which names each kind of engine shows its load.
//!
//! A label of the endpoint names its engine. Known without configuration are `vllm`, `sglang`, `trtllm-serve`,
//! `triton-tensorrt-llm` and `triton`; a mapping of one of these names in `engineConfigs` takes its place whole. A spec is
//! `name` or `name{label=value,other="value"}`; the empty one turns the metric off.
//!
//! ```yaml
//! - type: core-metrics-extractor
//!   parameters:
//!     engineLabelKey: llm-d.ai/engine-type
//!     defaultEngine: vllm
//!     engineConfigs:
//!     - name: mine
//!       queuedRequestsSpec: my_requests{state=waiting}
//!       runningRequestsSpec: my_requests{state=running}
//!       kvUsageSpec: my_kv_usage
//!       customMetrics:
//!       - {attributeKey: temperature, metricSpec: my_heat}
//! ```

use std::collections::HashSet;

use epp_plugin_api::{
    BuildContext, BuildError, CustomMetric, EngineMapping, ExtractorSpec, Instance, Kind, NodeError, PluginType,
    Selector, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{engines, selector};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "core-metrics-extractor",
    kinds: &[Kind::Extractor],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "core-metrics-extractor",
    summary: "Says under which names each kind of engine shows its load.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// What other plugins can ask for, whatever engines are mapped.
const PROVIDED: [&str; 5] =
    ["KVCacheUsagePercent", "WaitingQueueSize", "RunningRequestsSize", "ActiveModels", "WaitingModels"];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The endpoint label that names the engine. Default `llm-d.ai/engine-type`.
    engine_label_key: String,
    /// The engine of endpoints whose label names no known one. Default `vllm`.
    default_engine: String,
    /// Engines beside the known ones, or in their place.
    engine_configs: Vec<Engine>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine_label_key: "llm-d.ai/engine-type".into(),
            default_engine: "vllm".into(),
            engine_configs: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
struct Engine {
    /// The value of the label; not `default`. Required.
    #[schemars(length(min = 1))]
    name: String,
    /// Requests that wait.
    queued_requests_spec: String,
    /// Requests in the batch.
    running_requests_spec: String,
    /// Share of the KV cache in use, 0 to 1.
    kv_usage_spec: String,
    /// An info series whose labels name LoRA adapters.
    lora_spec: String,
    /// An info series whose labels hold the size and the number of KV blocks.
    cache_info_spec: String,
    /// Its label for the tokens of a block. Default `block_size`.
    cache_block_size_label_name: String,
    /// Its label for the number of blocks. Default `num_gpu_blocks`.
    cache_num_blocks_label_name: String,
    /// Tokens of a KV block, as a gauge.
    cache_block_size_spec: String,
    /// Number of KV blocks, as a gauge.
    cache_num_blocks_spec: String,
    /// Other numbers, for plugins that ask for them by key.
    custom_metrics: Vec<Custom>,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            name: String::new(),
            queued_requests_spec: String::new(),
            running_requests_spec: String::new(),
            kv_usage_spec: String::new(),
            lora_spec: String::new(),
            cache_info_spec: String::new(),
            cache_block_size_label_name: "block_size".into(),
            cache_num_blocks_label_name: "num_gpu_blocks".into(),
            cache_block_size_spec: String::new(),
            cache_num_blocks_spec: String::new(),
            custom_metrics: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["attributeKey", "metricSpec"]))]
struct Custom {
    /// The key by which plugins ask for it; once an engine. Required.
    #[schemars(length(min = 1))]
    attribute_key: String,
    /// The series. Required.
    #[schemars(length(min = 1))]
    metric_spec: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Mistakes::default();
    let mut mapped = Vec::new();
    for (i, engine) in cfg.engine_configs.into_iter().enumerate() {
        let path = format!("engineConfigs[{i}]");
        if engine.name.is_empty() || engine.name == "default" {
            mistakes.push(&path, "name", format!("expected a name other than default, found {:?}", engine.name));
        } else if mapped.iter().any(|m: &EngineMapping| m.name == engine.name) {
            mistakes.push(&path, "name", format!("expected each engine once, found {:?} again", engine.name));
        }
        mapped.push(mapping(engine, &path, &mut mistakes));
    }
    let known = engines::known().into_iter().filter(|k| mapped.iter().all(|m| m.name != k.name)).collect::<Vec<_>>();
    mapped.extend(known);
    if !mapped.iter().any(|m| m.name == cfg.default_engine) {
        let names: Vec<_> = mapped.iter().map(|m| m.name.as_str()).collect();
        let message = format!("expected one of {}, found {:?}", names.join(", "), cfg.default_engine);
        mistakes.push("", "defaultEngine", message);
    }
    if !mistakes.0.is_empty() {
        return Err(BuildError(mistakes.0));
    }
    PROVIDED.into_iter().for_each(|data| cx.writes_metric(data));
    let extractor =
        ExtractorSpec { engine_label: cfg.engine_label_key, default_engine: cfg.default_engine, engines: mapped };
    Ok(Instance { extractor: Some(extractor), ..Instance::default() })
}

#[derive(Default)]
struct Mistakes(Vec<NodeError>);

impl Mistakes {
    fn push(&mut self, part: &str, key: &str, message: String) {
        let path = if part.is_empty() { key.to_owned() } else { format!("{part}.{key}") };
        self.0.push(NodeError { place: None, path, message });
    }

    fn selector(&mut self, part: &str, key: &str, spec: &str) -> Option<Selector> {
        selector::parse(spec).unwrap_or_else(|message| {
            self.push(part, key, message);
            None
        })
    }
}

fn mapping(engine: Engine, path: &str, mistakes: &mut Mistakes) -> EngineMapping {
    let mut keys = HashSet::new();
    let mut custom = Vec::new();
    for (i, metric) in engine.custom_metrics.into_iter().enumerate() {
        let part = format!("{path}.customMetrics[{i}]");
        if metric.attribute_key.is_empty() {
            mistakes.push(&part, "attributeKey", "expected a key, found nothing".into());
        } else if !keys.insert(metric.attribute_key.clone()) {
            let message = format!("expected each key once an engine, found {:?} again", metric.attribute_key);
            mistakes.push(&part, "attributeKey", message);
        }
        if metric.metric_spec.trim().is_empty() {
            mistakes.push(&part, "metricSpec", "expected a series, found nothing".into());
        }
        if let Some(series) = mistakes.selector(&part, "metricSpec", &metric.metric_spec) {
            custom.push(CustomMetric { attribute_key: metric.attribute_key, metric: series });
        }
    }
    let mut series = |key, spec: &str| mistakes.selector(path, key, spec);
    EngineMapping {
        name: engine.name,
        queued: series("queuedRequestsSpec", &engine.queued_requests_spec),
        running: series("runningRequestsSpec", &engine.running_requests_spec),
        kv_usage: series("kvUsageSpec", &engine.kv_usage_spec),
        kv_usage_fallback: None,
        lora: series("loraSpec", &engine.lora_spec),
        cache_info: series("cacheInfoSpec", &engine.cache_info_spec),
        cache_block_size_label: engine.cache_block_size_label_name,
        cache_num_blocks_label: engine.cache_num_blocks_label_name,
        cache_block_size: series("cacheBlockSizeSpec", &engine.cache_block_size_spec),
        cache_num_blocks: series("cacheNumBlocksSpec", &engine.cache_num_blocks_spec),
        custom,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    fn spec(parameters: serde_json::Value) -> ExtractorSpec {
        Rig::default().build(&TYPE, parameters).extractor.unwrap()
    }

    #[test]
    fn the_usual_engines_are_known() {
        let got = spec(json!(null));
        let names: Vec<_> = got.engines.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"]);
        assert_eq!((got.engine_label.as_str(), got.default_engine.as_str()), ("llm-d.ai/engine-type", "vllm"));
        let old = got.engines[0].kv_usage_fallback.as_ref().map(|s| s.family.as_str());
        assert_eq!(old, Some("vllm:gpu_cache_usage_perc"));
        assert_eq!(got.engines[4].running, None);
    }

    #[test]
    fn a_mapping_of_a_known_name_replaces_it_whole() {
        let got = spec(json!({"engineConfigs": [{"name": "vllm", "queuedRequestsSpec": "q", "kvUsageSpec": ""}]}));
        assert_eq!(got.engines.len(), 5);
        let queued = Some(Selector { family: "q".into(), labels: vec![] });
        let expected = EngineMapping {
            name: "vllm".into(),
            queued,
            cache_block_size_label: "block_size".into(),
            cache_num_blocks_label: "num_gpu_blocks".into(),
            ..EngineMapping::default()
        };
        assert_eq!(got.engines[0], expected);
    }

    #[test]
    fn an_engine_of_ones_own_can_be_the_default() {
        let custom = json!([{"attributeKey": "gold", "metricSpec": "depth{tier=gold}"}]);
        let got = spec(json!({"defaultEngine": "mine", "engineConfigs": [{"name": "mine", "customMetrics": custom}]}));
        assert_eq!((got.engines.len(), got.default_engine.as_str()), (6, "mine"));
        assert_eq!(got.engines[0].custom[0].attribute_key, "gold");
        assert_eq!(got.engines[0].custom[0].metric.labels, [("tier".to_owned(), "gold".to_owned())]);
    }

    #[test]
    fn provides_the_standard_values() {
        let [.., writes] = Rig::default().keys(&TYPE, json!(null));
        let names: Vec<_> = writes.iter().map(ToString::to_string).collect();
        assert!(names.contains(&"WaitingQueueSize/core-metrics-extractor".to_owned()), "{names:?}");
    }

    #[test]
    fn refuses_what_maps_nothing() {
        let engine = |e: serde_json::Value| json!({"engineConfigs": [e]});
        for (parameters, culprit) in [
            (engine(json!({"name": "", "queuedRequestsSpec": "f"})), "engineConfigs[0].name"),
            (engine(json!({"name": "default", "queuedRequestsSpec": "f"})), "engineConfigs[0].name"),
            (json!({"engineConfigs": [{"name": "x"}, {"name": "x"}]}), "engineConfigs[1].name"),
            (json!({"defaultEngine": "nope"}), "defaultEngine"),
            (engine(json!({"name": "x", "queuedRequestsSpec": "f{x=1"})), "engineConfigs[0].queuedRequestsSpec"),
            (
                engine(json!({"name": "x", "customMetrics": [{"attributeKey": "", "metricSpec": "f"}]})),
                "engineConfigs[0].customMetrics[0].attributeKey",
            ),
            (
                engine(json!({"name": "x", "customMetrics": [{"attributeKey": "k", "metricSpec": ""}]})),
                "engineConfigs[0].customMetrics[0].metricSpec",
            ),
            (
                engine(json!({"name": "x", "customMetrics": [
                    {"attributeKey": "k", "metricSpec": "f"}, {"attributeKey": "k", "metricSpec": "g"}]})),
                "engineConfigs[0].customMetrics[1].attributeKey",
            ),
            (engine(json!({"name": "x", "queueSpec": "f"})), "queueSpec"),
            (json!({"engine": "vllm"}), "engine"),
            (json!({"engineConfigs": {}}), "engineConfigs"),
        ] {
            let message = Rig::default().refused(&TYPE, parameters);
            assert!(message.contains(culprit), "{message}");
        }
    }
}
