//! The table of every plugin type that comes with the endpoint picker: one line each.

use epp_plugin_api::PluginType;

use crate::{
    admitters, board, context_length, deciders, detectors, filters, handlers, hooks, parsers, pickers, policies,
    producers, scorers, screeners,
};

/// Every plugin type, by what it is for and then by name.
pub static REGISTRY: &[&PluginType] = &[
    &admitters::latency_slo::TYPE,
    &admitters::probabilistic::TYPE,
    &board::core_metrics::TYPE,
    &board::endpoint_notification::TYPE,
    &board::file_discovery::CLUSTERS,
    &board::file_discovery::TYPE,
    &board::gpus::TYPE,
    &board::k8s_notification::TYPE,
    &board::metrics_source::CLUSTERS,
    &board::metrics_source::GPUS,
    &board::metrics_source::MODELS,
    &board::metrics_source::TYPE,
    &context_length::TYPE,
    &deciders::always::TYPE,
    &deciders::multimodal::TYPE,
    &deciders::prefix_based::TYPE,
    &board::models::TYPE,
    &board::multicluster_metrics::TYPE,
    &detectors::concurrency::TYPE,
    &detectors::kv_token_budget::TYPE,
    &detectors::utilization::TYPE,
    &filters::by_label::TYPE,
    &filters::endpoint_attribute::TYPE,
    &filters::header_testing::TYPE,
    &filters::label_selector::ALIAS,
    &filters::label_selector::TYPE,
    &filters::prefix_affinity::TYPE,
    &filters::role::DECODE,
    &filters::role::ENCODE,
    &filters::role::PREFILL,
    &filters::session_affinity::MULTICLUSTER,
    &filters::session_affinity::TYPE,
    &filters::slo_headroom_tier::TYPE,
    &filters::topology_affinity::TYPE,
    &filters::utilization::TYPE,
    &handlers::data_parallel::TYPE,
    &handlers::disagg::TYPE,
    &handlers::disagg_headers::ALIAS,
    &handlers::disagg_headers::TYPE,
    &handlers::header::TYPE,
    &handlers::pd::TYPE,
    &handlers::single::TYPE,
    &hooks::agent_identity::TYPE,
    &hooks::attribute_reporter::TYPE,
    &hooks::served_verifier::TYPE,
    &parsers::anthropic::TYPE,
    &parsers::openai::TYPE,
    &parsers::passthrough::TYPE,
    &parsers::sglanghttp::TYPE,
    &parsers::vertexai::TYPE,
    &parsers::vllmgrpc::TYPE,
    &parsers::vllmhttp::TYPE,
    &pickers::max_score::TYPE,
    &pickers::random::TYPE,
    &pickers::weighted_random::TYPE,
    &policies::edf::TYPE,
    &policies::fcfs::TYPE,
    &policies::global_strict::TYPE,
    &policies::priority_holdback::TYPE,
    &policies::program_aware::TYPE,
    &policies::round_robin::TYPE,
    &policies::slo_deadline::TYPE,
    &policies::soft_reflective::TYPE,
    &policies::static_limit::TYPE,
    &producers::approx_prefix::MULTICLUSTER,
    &producers::approx_prefix::TYPE,
    &producers::burst::TYPE,
    &producers::inflight_load::TYPE,
    &producers::mm_embeddings::TYPE,
    &producers::p2p_source::TYPE,
    &producers::precise::TYPE,
    &producers::predicted_latency::TYPE,
    &producers::recent_load::TYPE,
    &producers::session_id::TYPE,
    &producers::token::ALIAS,
    &producers::token::TYPE,
    &producers::topology::TYPE,
    &scorers::active_request::TYPE,
    &scorers::endpoint_attribute::TYPE,
    &scorers::header_label_affinity::TYPE,
    &scorers::kv_cache::TYPE,
    &scorers::latency::TYPE,
    &scorers::load_aware::TYPE,
    &scorers::lora_affinity::TYPE,
    &scorers::mm_embeddings::TYPE,
    &scorers::multicluster::KV_CACHE,
    &scorers::multicluster::QUEUE,
    &scorers::no_hit_lru::TYPE,
    &producers::precise::SCORER,
    &scorers::prefix_cache::MULTICLUSTER,
    &scorers::prefix_cache::TYPE,
    &scorers::queue::TYPE,
    &scorers::recent_load::TYPE,
    &scorers::running_requests::TYPE,
    &scorers::session_affinity::TYPE,
    &scorers::token_load::TYPE,
    &scorers::topology_affinity::TYPE,
    &screeners::rollout::TYPE,
];

/// The plugin type of this name.
pub fn find(name: &str) -> Option<&'static PluginType> {
    REGISTRY.iter().copied().find(|kind| kind.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_type() {
        for kind in REGISTRY {
            assert!(std::ptr::eq(find(kind.name).unwrap(), *kind), "{} is there twice", kind.name);
        }
    }

    #[test]
    fn what_replaces_a_deprecated_type_is_there() {
        for kind in REGISTRY {
            assert!(kind.replaced_by.is_none_or(|name| find(name).is_some()), "{}", kind.name);
        }
    }
}
