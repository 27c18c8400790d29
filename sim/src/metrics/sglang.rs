//! The page of SGLang as of 2026.

use super::View;
use super::page::Page;
use super::table::{Created, Family, Scope, ScopeLabels, Series, Shape};

/// Writes the page.
pub(super) fn page(view: &View) -> String {
    let model = ("model_name", view.model_name.as_str());
    let (unified, expert, pipeline, tensor) =
        (("engine_type", "unified"), ("moe_ep_rank", "0"), ("pp_rank", "0"), ("tp_rank", "0"));
    let (page_size, pages) = (view.settings.block_size.to_string(), view.settings.blocks.to_string());
    let mut page = Page::default();
    let labels = ScopeLabels { engine: &[unified, model, expert, pipeline, tensor], server: &[unified, model] };
    page.table(FAMILIES, view, &labels, Created::Untold);
    page.family("sglang:cache_config_info", "Information of the cache config.", "gauge");
    let config = [unified, model, expert, ("num_pages", &pages), ("page_size", &page_size), pipeline, tensor];
    page.sample("sglang:cache_config_info", &config, 1.0);
    page.into_text()
}

fn used_tokens(view: &View) -> f64 {
    (view.load.used_blocks * view.settings.block_size) as f64
}

static FAMILIES: &[Family] = &[
    Family {
        name: "sglang:num_running_reqs",
        help: "The number of running requests.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.load.running as f64)),
    },
    Family {
        name: "sglang:num_used_tokens",
        help: "The number of used tokens.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(used_tokens)),
    },
    Family {
        name: "sglang:token_usage",
        help: "The token usage.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(View::kv_usage)),
    },
    Family {
        name: "sglang:num_queue_reqs",
        help: "The number of requests in the waiting queue.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.load.waiting as f64)),
    },
    Family {
        name: "sglang:gen_throughput",
        help: "The generation throughput (token/s).",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(View::tokens_per_busy_second)),
    },
    Family {
        name: "sglang:cache_hit_rate",
        help: "The prefix cache hit rate.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(View::hit_rate)),
    },
    Family {
        name: "sglang:kv_used_tokens",
        help: "The number of used tokens in the KV cache pool.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(used_tokens)),
    },
    Family {
        name: "sglang:num_retracted_requests_total",
        help: "Total number of retracted requests.",
        scope: Scope::Engine,
        shape: Shape::Counter(Series::One(|v| v.tally.preemptions as f64)),
    },
    Family {
        name: "sglang:prompt_tokens_total",
        help: "Number of prefill tokens processed.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::One(|v| v.tally.prompt_tokens as f64)),
    },
    Family {
        name: "sglang:generation_tokens_total",
        help: "Number of generation tokens processed.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::One(|v| v.tally.generated_tokens as f64)),
    },
    Family {
        name: "sglang:cached_tokens_total",
        help: "Number of cached prompt tokens.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::One(|v| v.tally.cached_tokens as f64)),
    },
    Family {
        name: "sglang:num_requests_total",
        help: "Number of requests processed.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::One(|v| v.tally.finished as f64)),
    },
    Family {
        name: "sglang:num_aborted_requests_total",
        help: "Number of requests aborted.",
        scope: Scope::Server,
        shape: Shape::Counter(Series::One(|v| v.tally.aborted as f64)),
    },
    Family {
        name: "sglang:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        scope: Scope::Server,
        shape: Shape::Histogram(|v| &v.tally.first_token),
    },
    Family {
        name: "sglang:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        scope: Scope::Server,
        shape: Shape::Histogram(|v| &v.tally.next_token),
    },
    Family {
        name: "sglang:e2e_request_latency_seconds",
        help: "Histogram of End-to-end request latency in seconds",
        scope: Scope::Server,
        shape: Shape::Histogram(|v| &v.tally.requests.total),
    },
    Family {
        name: "sglang:queue_time_seconds",
        help: "Histogram of queueing time in seconds.",
        scope: Scope::Engine,
        shape: Shape::Histogram(|v| &v.tally.requests.queued),
    },
    Family {
        name: "sglang:max_total_num_tokens",
        help: "Maximum total number of tokens in the KV cache pool.",
        scope: Scope::Engine,
        shape: Shape::Gauge(Series::One(|v| v.settings.window() as f64)),
    },
];
