//! The page of `trtllm-serve` as of 2026.

use super::View;
use super::page::Page;
use super::table::{Created, Family, Scope, ScopeLabels, Series, Shape};

/// Writes the page.
pub(super) fn page(view: &View) -> String {
    let labels = [("model_name", view.model_name.as_str())];
    let mut page = Page::default();
    page.table(FAMILIES, view, &ScopeLabels { engine: &labels, server: &labels }, Created::Untold);
    page.into_text()
}

fn used_blocks(view: &View) -> f64 {
    view.load.used_blocks as f64
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&View) -> f64) -> Family {
    Family { name, help, scope: Scope::Engine, shape: Shape::Gauge(Series::One(value)) }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&View) -> f64) -> Family {
    Family { name, help, scope: Scope::Engine, shape: Shape::Counter(Series::One(value)) }
}

const fn histogram(name: &'static str, help: &'static str, of: fn(&View) -> &super::histogram::Histogram) -> Family {
    Family { name, help, scope: Scope::Engine, shape: Shape::Histogram(of) }
}

static FAMILIES: &[Family] = &[
    gauge("trtllm_num_requests_running", "Number of requests that run.", |v| v.load.running as f64),
    gauge("trtllm_num_requests_waiting", "Number of requests that wait.", |v| v.load.waiting as f64),
    gauge("trtllm_max_num_active_requests", "Most requests that can run at once.", |v| v.settings.seats as f64),
    gauge("trtllm_kv_cache_utilization", "Share of the KV cache in use, 0 to 1.", View::kv_usage),
    gauge("trtllm_kv_cache_hit_rate", "Share of prompt tokens found in the KV cache, 0 to 1.", View::hit_rate),
    gauge("trtllm_kv_cache_max_blocks", "Blocks of the KV cache.", |v| v.settings.blocks as f64),
    gauge("trtllm_kv_cache_free_blocks", "Blocks that no request holds.", |v| {
        v.settings.blocks as f64 - used_blocks(v)
    }),
    gauge("trtllm_kv_cache_used_blocks", "Blocks that some request holds.", used_blocks),
    gauge("trtllm_kv_cache_tokens_per_block", "Tokens a block.", |v| v.settings.block_size as f64),
    Family {
        name: "trtllm_request_success_total",
        help: "Requests answered to the end, by the reason of the end.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::By("finished_reason", &[("length", |v| v.tally.finished as f64)])),
    },
    counter("trtllm_prompt_tokens_total", "Prompt tokens taken in.", |v| v.tally.prompt_tokens as f64),
    counter("trtllm_generation_tokens_total", "Tokens generated.", |v| v.tally.generated_tokens as f64),
    counter("trtllm_num_requests_completed_total", "Requests answered to the end.", |v| v.tally.finished as f64),
    histogram("trtllm_time_to_first_token_seconds", "Seconds to the first token.", |v| &v.tally.first_token),
    histogram("trtllm_time_per_output_token_seconds", "Seconds a token after the first.", |v| {
        &v.tally.requests.per_output_token
    }),
    histogram("trtllm_e2e_request_latency_seconds", "Seconds from arrival to the last token.", |v| {
        &v.tally.requests.total
    }),
    histogram("trtllm_request_queue_time_seconds", "Seconds of waiting.", |v| &v.tally.requests.queued),
];
