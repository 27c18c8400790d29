//! The page of vLLM 0.32: its families with their labels, in its order.

use super::page::Page;
use super::table::{Created, Family, Scope, ScopeLabels, Series, Shape};
use super::{View, process, web};

/// Writes the page.
pub(super) fn page(view: &View) -> String {
    let mut page = Page::default();
    process::write(&mut page, view);
    let (engine, model) = (("engine", "0"), ("model_name", view.model_name.as_str()));
    let labels = ScopeLabels { engine: &[engine, model], server: &[model] };
    page.table(FAMILIES, view, &labels, Created::Told);
    cache_config(&mut page, view);
    web::write(&mut page, view);
    page.into_text()
}

fn zero(_: &View) -> f64 {
    0.0
}

fn cache_config(page: &mut Page, view: &View) {
    let (block_size, blocks) = (view.settings.block_size.to_string(), view.settings.blocks.to_string());
    let tokens = view.settings.window().to_string();
    page.family("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge");
    let labels = [
        ("_block_size_resolved", "True"),
        ("block_size", &block_size),
        ("cache_dtype", "auto"),
        ("cache_hit_alignment_tokens", "None"),
        ("effective_attention_block_size", &block_size),
        ("enable_mamba_shared_prefix_checkpoint", "False"),
        ("enable_prefix_caching", "True"),
        ("engine", "0"),
        ("gpu_memory_utilization", "0.92"),
        ("hash_block_size", "None"),
        ("is_attention_free", "False"),
        ("kv_cache_dtype_skip_layers", "[]"),
        ("kv_cache_layout", "None"),
        ("kv_cache_max_concurrency", "512.0"),
        ("kv_cache_memory_bytes", "1073741824"),
        ("kv_cache_size_tokens", &tokens),
        ("kv_offloading_backend", "native"),
        ("kv_offloading_size", "None"),
        ("kv_sharing_fast_prefill", "False"),
        ("mamba_block_size", "None"),
        ("mamba_cache_dtype", "auto"),
        ("mamba_cache_mode", "none"),
        ("mamba_page_size_padded", "None"),
        ("mamba_ssm_cache_dtype", "float32"),
        ("num_cpu_blocks", "None"),
        ("num_gpu_blocks", &blocks),
        ("num_gpu_blocks_override", "None"),
        ("prefix_cache_retention_interval", "0"),
        ("prefix_caching_hash_algo", "sha256"),
        ("prefix_match_unit", "None"),
        ("replayssm_buffer_len", "16"),
        ("skip_page_size_padded", "None"),
        ("sliding_window", "None"),
        ("swa_bounded_replay", "True"),
        ("use_kda_recoverssm", "False"),
        ("use_replayssm", "False"),
        ("user_specified_block_size", "False"),
    ];
    page.sample("vllm:cache_config_info", &labels, 1.0);
}

static FAMILIES: &[Family] = &[
    Family {
        name: "vllm:estimated_flops_per_gpu_total",
        help: "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:estimated_read_bytes_per_gpu_total",
        help: "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:estimated_write_bytes_per_gpu_total",
        help: "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:num_requests_running",
        help: "Number of requests in model execution batches.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.load.running as f64)),
    },
    Family {
        name: "vllm:num_requests_waiting",
        help: "Number of requests waiting to be processed.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.load.waiting as f64)),
    },
    Family {
        name: "vllm:num_requests_waiting_by_reason",
        help: "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::By("reason", &[("capacity", |v| v.load.waiting as f64), ("deferred", zero)])),
    },
    Family {
        name: "vllm:engine_sleep_state",
        help: "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::By(
            "sleep_state",
            &[("awake", |_| 1.0), ("weights_offloaded", zero), ("discard_all", zero)],
        )),
    },
    Family {
        name: "vllm:kv_cache_usage_perc",
        help: "KV-cache usage. 1 means 100 percent usage.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.kv_usage())),
    },
    Family {
        name: "vllm:prefix_cache_queries_total",
        help: "Prefix cache queries, in terms of number of queried tokens.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.prompt_tokens as f64)),
    },
    Family {
        name: "vllm:prefix_cache_hits_total",
        help: "Prefix cache hits, in terms of number of cached tokens.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.cached_tokens as f64)),
    },
    Family {
        name: "vllm:external_prefix_cache_queries_total",
        help: "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:external_prefix_cache_hits_total",
        help: "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:mm_cache_queries_total",
        help: "Multi-modal cache queries, in terms of number of queried items.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:mm_cache_hits_total",
        help: "Multi-modal cache hits, in terms of number of cached items.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(zero)),
    },
    Family {
        name: "vllm:num_preemptions_total",
        help: "Cumulative number of preemption from the engine.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.preemptions as f64)),
    },
    Family {
        name: "vllm:prompt_tokens_total",
        help: "Number of prefill tokens processed.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.prompt_tokens as f64)),
    },
    Family {
        name: "vllm:prompt_tokens_by_source_total",
        help: "Number of prompt tokens by source.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::By(
            "source",
            &[
                ("local_compute", |v| (v.tally.prompt_tokens - v.tally.cached_tokens) as f64),
                ("local_cache_hit", |v| v.tally.cached_tokens as f64),
                ("external_kv_transfer", zero),
            ],
        )),
    },
    Family {
        name: "vllm:prompt_tokens_cached_total",
        help: "Number of cached prompt tokens (local + external).",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.cached_tokens as f64)),
    },
    Family {
        name: "vllm:prompt_tokens_cached_by_source_total",
        help: "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::By(
            "source",
            &[
                ("device", |v| v.tally.cached_tokens as f64),
                ("host", zero),
                ("p2p", zero),
                ("disk", zero),
                ("external_unspecified", zero),
            ],
        )),
    },
    Family {
        name: "vllm:generation_tokens_total",
        help: "Number of generation tokens processed.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.generated_tokens as f64)),
    },
    Family {
        name: "vllm:request_success_total",
        help: "Count of successfully processed requests.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::By(
            "finished_reason",
            &[
                ("stop", zero),
                ("length", |v| v.tally.finished as f64),
                ("abort", |v| v.tally.aborted as f64),
                ("error", zero),
                ("repetition", zero),
            ],
        )),
    },
    Family {
        name: "vllm:admission_rejections_total",
        help: "Number of admission attempts rejected by a queue limit, by reason.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::By(
            "reason",
            &[("max_num_queued_reqs", |v| v.tally.refused as f64), ("max_num_queued_tokens", zero)],
        )),
    },
    Family {
        name: "vllm:request_prompt_tokens",
        help: "Number of prefill tokens processed.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.prompt_tokens),
    },
    Family {
        name: "vllm:request_generation_tokens",
        help: "Number of generation tokens processed.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.output_tokens),
    },
    Family {
        name: "vllm:iteration_tokens_total",
        help: "Histogram of number of tokens per engine_step.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.step_tokens),
    },
    Family {
        name: "vllm:request_max_num_generation_tokens",
        help: "Histogram of maximum number of requested generation tokens.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.output_tokens),
    },
    Family {
        name: "vllm:request_params_n",
        help: "Histogram of the n request parameter.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.choices),
    },
    Family {
        name: "vllm:request_params_max_tokens",
        help: "Histogram of the max_tokens request parameter.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.asked_tokens),
    },
    Family {
        name: "vllm:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.first_token),
    },
    Family {
        name: "vllm:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.next_token),
    },
    Family {
        name: "vllm:request_time_per_output_token_seconds",
        help: "Histogram of time_per_output_token_seconds per request.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.per_output_token),
    },
    Family {
        name: "vllm:e2e_request_latency_seconds",
        help: "Histogram of e2e request latency in seconds.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.total),
    },
    Family {
        name: "vllm:request_queue_time_seconds",
        help: "Histogram of time spent in WAITING phase for request.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.queued),
    },
    Family {
        name: "vllm:request_inference_time_seconds",
        help: "Histogram of time spent in RUNNING phase for request.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.inference),
    },
    Family {
        name: "vllm:request_prefill_time_seconds",
        help: "Histogram of time spent in PREFILL phase for request.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.prefill),
    },
    Family {
        name: "vllm:request_decode_time_seconds",
        help: "Histogram of time spent in DECODE phase for request.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.decode),
    },
    Family {
        name: "vllm:request_num_preemptions",
        help: "Histogram of the number of times a request was preempted.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.preemptions),
    },
    Family {
        name: "vllm:request_prefill_kv_computed_tokens",
        help: "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.computed_tokens),
    },
];
