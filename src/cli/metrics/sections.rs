//! The parts of the page of metrics, and which families stand in each.

/// A part of the page.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    /// What all of it has in common; may be empty.
    pub about: &'static str,
    /// A family stands where the longest beginning of its name is.
    pub prefixes: &'static [&'static str],
}

/// In the order of the page. The last takes what has no place yet.
pub const SECTIONS: &[Section] = &[
    Section {
        title: "Requests",
        about: "Response size, tokens and the times within a response need Envoy to show the response body: they stay \
                empty with `envoy/lean.yaml`. Durations are those of complete responses; whoever leaves early counts \
                as a request only.",
        prefixes: &["llm_d_epp_request_", "llm_d_epp_response_"],
    },
    Section {
        title: "Scheduling",
        about: "",
        prefixes: &[
            "llm_d_epp_scheduler_",
            "llm_d_epp_plugin_",
            "llm_d_epp_disagg",
            "llm_d_epp_pd_",
            "epp_stage_",
            "epp_produce_",
            "epp_judge_",
        ],
    },
    Section {
        title: "Waiting",
        about: "There with the feature gate `flowControl` only; those of programs with `program-aware-fairness`. The time \
                in the queue by band is the sum over all labels of `llm_d_epp_flow_control_request_queue_duration_seconds` \
                but `priority`. The series of a flow go once nobody of it has come for five minutes, those of a band when \
                it goes.",
        prefixes: &["llm_d_epp_flow_control_", "llm_d_epp_program_aware_"],
    },
    Section {
        title: "Endpoints",
        about: "Averages and deviations are over the endpoints that were heard of lately, and stay as they are while there \
                is none. Series of endpoints that left are gone.",
        prefixes: &[
            "llm_d_epp_ready_",
            "llm_d_epp_average_",
            "llm_d_epp_std_dev_",
            "llm_d_epp_per_endpoint_",
            "llm_d_epp_datalayer_",
            "llm_d_epp_flow_control_stale_endpoints",
            "epp_board_",
        ],
    },
    Section {
        title: "KV events",
        about: "There while a plugin listens for what engines publish of their KV caches. Series of endpoints that left are \
                gone. Operations: `connect` (no connection or no handshake), `receive` (a connection broke), `message` (one \
                of no known shape or above the limits), `replay` (what was missed could not be had); of bound sockets, \
                without an endpoint, `unknown-endpoint` (the topic names none) and `socket` (everything else).",
        prefixes: &["llm_d_epp_kv_cache_events_", "epp_board_kv_", "epp_kv_"],
    },
    Section {
        title: "Caches",
        about: "There with the producers of prefix and encoder matches; `llm_d_epp_kv_cache_index_` with `enableMetrics` of \
                `precise-prefix-cache-producer`. What was believed to be cached less what engines reported is the \
                difference of the sums of `epp_prefix_overestimate_tokens` and `epp_prefix_underestimate_tokens`; these two \
                need response bodies and engines that report cached tokens.",
        prefixes: &[
            "llm_d_epp_prefix_indexer_",
            "epp_prefix_",
            "llm_d_epp_kv_cache_index_",
            "llm_d_epp_encoder_cache_",
        ],
    },
    Section { title: "Load", about: "There with `inflight-load-producer`.", prefixes: &["llm_d_epp_inflight_"] },
    Section {
        title: "Predicted latency",
        about: "There with `predicted-latency-producer`. Of `llm_d_epp_inference_request_metric` the types that begin with \
                `ttft` and `tpot` are what came, those with `predicted_` what was predicted, in seconds; `…_slo_violation` \
                is 1 if the last request missed its objective.",
        prefixes: &[
            "llm_d_epp_inference_request_metric",
            "llm_d_epp_request_predicted_",
            "llm_d_epp_request_ttft_prediction_",
            "llm_d_epp_request_tpot_prediction_",
            "llm_d_epp_request_slo_violation",
        ],
    },
    Section { title: "Config", about: "", prefixes: &["epp_config_"] },
    Section {
        title: "Recording",
        about: "There with `--record`; [replay.md](replay.md) tells of it.",
        prefixes: &["epp_recording_"],
    },
    Section {
        title: "Streams and the process",
        about: "The families of streams are there with `--enable-grpc-stream-metrics`.",
        prefixes: &["llm_d_epp_extproc_", "llm_d_epp_info", "epp_build_info", "process_"],
    },
    Section { title: "Others", about: "", prefixes: &[""] },
];

/// The part that the family of this name stands in, as its place in [`SECTIONS`].
pub fn section_of(name: &str) -> usize {
    let longest = |section: &Section| section.prefixes.iter().filter(|p| name.starts_with(**p)).map(|p| p.len()).max();
    let best = SECTIONS.iter().enumerate().filter_map(|(at, section)| Some((longest(section)?, at))).max();
    best.map_or(SECTIONS.len() - 1, |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_decides() {
        for (name, title) in [
            ("llm_d_epp_request_total", "Requests"),
            ("llm_d_epp_request_predicted_ttft_seconds", "Predicted latency"),
            ("llm_d_epp_flow_control_stale_endpoints", "Endpoints"),
            ("epp_board_kv_lost_total", "KV events"),
            ("wibble", "Others"),
        ] {
            assert_eq!(SECTIONS[section_of(name)].title, title, "{name}");
        }
    }
}
