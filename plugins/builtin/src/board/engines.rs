//! Under which names the known engines show their load.

use epp_plugin_api::{EngineMapping, Selector};

/// The engines that are known without any configuration.
pub fn known() -> Vec<EngineMapping> {
    vec![vllm(), sglang(), trtllm_serve(), triton_tensorrt_llm(), triton()]
}

fn vllm() -> EngineMapping {
    EngineMapping {
        name: "vllm".into(),
        queued: series("vllm:num_requests_waiting"),
        running: series("vllm:num_requests_running"),
        kv_usage: series("vllm:kv_cache_usage_perc"),
        kv_usage_fallback: series("vllm:gpu_cache_usage_perc"),
        lora: series("vllm:lora_requests_info"),
        cache_info: series("vllm:cache_config_info"),
        cache_block_size_label: "block_size".into(),
        cache_num_blocks_label: "num_gpu_blocks".into(),
        ..EngineMapping::default()
    }
}

fn sglang() -> EngineMapping {
    EngineMapping {
        name: "sglang".into(),
        queued: series("sglang:num_queue_reqs"),
        running: series("sglang:num_running_reqs"),
        kv_usage: series("sglang:token_usage"),
        cache_info: series("sglang:cache_config_info"),
        cache_block_size_label: "page_size".into(),
        cache_num_blocks_label: "num_pages".into(),
        ..EngineMapping::default()
    }
}

fn trtllm_serve() -> EngineMapping {
    EngineMapping {
        name: "trtllm-serve".into(),
        queued: series("trtllm_num_requests_waiting"),
        running: series("trtllm_num_requests_running"),
        kv_usage: series("trtllm_kv_cache_utilization"),
        cache_block_size: series("trtllm_kv_cache_tokens_per_block"),
        cache_num_blocks: series("trtllm_kv_cache_max_blocks"),
        ..EngineMapping::default()
    }
}

fn triton_tensorrt_llm() -> EngineMapping {
    let requests = |kind| labelled("nv_trt_llm_request_metrics", "request_type", kind);
    let blocks = |kind| labelled("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", kind);
    EngineMapping {
        name: "triton-tensorrt-llm".into(),
        queued: requests("waiting"),
        running: requests("scheduled"),
        kv_usage: blocks("fraction"),
        cache_block_size: blocks("tokens_per"),
        cache_num_blocks: blocks("max"),
        ..EngineMapping::default()
    }
}

/// Shows no number of running requests: its execution count only ever grows.
fn triton() -> EngineMapping {
    EngineMapping {
        name: "triton".into(),
        queued: series("nv_inference_pending_request_count"),
        ..EngineMapping::default()
    }
}

fn series(family: &str) -> Option<Selector> {
    Some(Selector { family: family.into(), labels: Vec::new() })
}

fn labelled(family: &str, label: &str, value: &str) -> Option<Selector> {
    Some(Selector { family: family.into(), labels: vec![(label.into(), value.into())] })
}
