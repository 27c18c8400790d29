//! The families that llm-d's dashboards ask for are there, with their labels, their bounds and their older names.

use std::collections::BTreeSet;

use epp::cli::metrics::family::Family;

use super::registry;

/// What stands before the names in the tables below.
const PREFIX: &str = "llm_d_epp_";

/// Short names of label sets: the models, a request, a plugin, a flow.
const LABELS: [(&str, &str); 5] = [
    ("M", "model_name target_model_name"),
    ("R", "model_name target_model_name fairness_id priority"),
    ("P", "plugin_name plugin_type"),
    ("PM", "plugin_name plugin_type model_name target_model_name"),
    ("F", "fairness_id priority inference_pool model_name target_model_name"),
];

/// Upper bounds of histograms.
const BOUNDS: [(&str, &str); 20] = [
    (
        "LAT",
        ".005 .025 .05 .1 .2 .4 .6 .8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60 120 180 240 300 360 480 600 900 1200 \
         1800 2700 3600",
    ),
    ("TTFT", ".005 .025 .05 .1 .2 .4 .6 .8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 60 120"),
    ("SCHED", ".0001 .0002 .0005 .001 .002 .005 .01 .02 .05 .1"),
    ("QUEUE", ".0001 .0005 .001 .005 .01 .025 .05 .1 .25 .5 1 2.5 5 10 30 60"),
    ("NTPOT", ".001 .002 .005 .01 .02 .05 .1 .2 .5 1 2 5 10"),
    ("TPOT", ".0005 .00205 .005 .01 .02 .04 .06 .08 .1 .125 .15 .2 .3 .4 .5 .6 .8 1 2"),
    (
        "TPOTP",
        ".0005 .00205 .005 .01 .02 .04 .06 .08 .1 .125 .15 .2 .3 .4 .5 .6 .8 1 1.5 2 3 4.5 6 12 18 24 30 36 48 60 90 \
         120 180 270 360",
    ),
    ("ITL", ".001 .005 .01 .02 .04 .06 .08 .1 .15 .2 .3 .5 .75 1 2"),
    ("PRED", ".0001 .0005 .001 .002 .005 .01 .02 .05 .1 .2 .5 1 2 5"),
    ("REQPROC", ".0005 .001 .002 .005 .01 .015 .025 .04 .06 .1 .25 .5 1 2.5 5 10"),
    ("RESPROC", ".0001 .00025 .0005 .001 .0025 .005 .01 .025 .05 .1 .25 .5 1 2.5 5"),
    ("REV", ".005 .01 .025 .05 .1 .25 .5 1 2.5 5 10"),
    (
        "REQSIZE",
        "64 128 256 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576 2097152 4194304 8388608 \
         16777216 33554432 67108864 134217728 268435456 536870912 1073741824",
    ),
    ("RESPSIZE", "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32778 65536"),
    ("TOKIN", "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 32778 65536 131072 262144 524288 1048576"),
    ("TOKOUT", "1 8 16 32 64 128 256 512 1024 2048 4096 8192"),
    ("RATIO", "0 .1 .2 .3 .4 .5 .6 .7 .8 .9 1"),
    ("HITBYTES", "0 16 32 64 128 256 512 1024 2048 4096 8192 16384 32768 65536"),
    ("STREAM", ".001 .005 .01 .05 .1 .5 1 5 10 30 60 120 300 600"),
    ("", ""),
];

/// Name, kind, labels, bounds, and the older name with its labels; `=`: the same labels. Bounds of its own stand behind `@`.
const FAMILIES: &str = "
request_total | counter | R | | inference_objective_request_total M priority
request_error_total | counter | R error_code | | inference_objective_request_error_total M error_code
request_duration_seconds | histogram | R | LAT | inference_objective_request_duration_seconds M
request_size_bytes | histogram | R | REQSIZE | inference_objective_request_sizes M
response_size_bytes | histogram | R | RESPSIZE | inference_objective_response_sizes M
request_input_tokens | histogram | R | TOKIN | inference_objective_input_tokens M
request_output_tokens | histogram | R | TOKOUT | inference_objective_output_tokens M
request_cached_tokens | histogram | R | TOKIN | inference_objective_prompt_cached_tokens M
request_running | gauge | R | | inference_objective_running_requests model_name
request_ntpot_seconds | histogram | R | NTPOT | inference_objective_normalized_time_per_output_token_seconds M
request_ttft_seconds | histogram | R streaming | TTFT | inference_objective_request_ttft_seconds M @ LAT
request_streaming_tpot_seconds | histogram | R | TPOT | inference_objective_request_tpot_seconds M @ TPOTP
request_streaming_itl_seconds | histogram | R | ITL |
request_processing_duration_seconds | histogram | | REQPROC |
response_processing_duration_seconds | histogram | | RESPROC |
average_kv_cache_utilization | gauge | name | | inference_pool_average_kv_cache_utilization =
average_queue_size | gauge | name | | inference_pool_average_queue_size =
average_running_requests | gauge | name | | inference_pool_average_running_requests =
std_dev_kv_cache_utilization | gauge | name | |
std_dev_queue_size | gauge | name | |
std_dev_running_requests | gauge | name | |
ready_endpoints | gauge | name | | inference_pool_ready_pods =
per_endpoint_queue_size | gauge | name model_server_endpoint | | inference_pool_per_pod_queue_size name model_server_pod
scheduler_e2e_duration_seconds | histogram | | SCHED | inference_extension_scheduler_e2e_duration_seconds =
scheduler_attempts_total | counter | status target_model_name endpoint_name namespace port | | inference_extension_scheduler_attempts_total status target_model_name pod_name namespace port
plugin_duration_seconds | histogram | extension_point P | SCHED | inference_extension_plugin_duration_seconds =
datalayer_poll_errors_total | counter | source_type | | llm_d_inference_scheduler_datalayer_poll_errors_total =
datalayer_extract_errors_total | counter | source_type extractor_type | | llm_d_inference_scheduler_datalayer_extract_errors_total =
info | gauge | commit build_ref | | inference_extension_info =
flow_control_request_queue_duration_seconds | histogram | F outcome | QUEUE | inference_extension_flow_control_request_queue_duration_seconds =
flow_control_request_enqueue_duration_seconds | histogram | fairness_id priority outcome | SCHED | inference_extension_flow_control_request_enqueue_duration_seconds =
flow_control_dispatch_cycle_duration_seconds | histogram | | SCHED | inference_extension_flow_control_dispatch_cycle_duration_seconds =
flow_control_queue_size | gauge | F | | inference_extension_flow_control_queue_size =
flow_control_queue_bytes | gauge | F | | inference_extension_flow_control_queue_bytes =
flow_control_pool_saturation | gauge | inference_pool stage | | inference_extension_flow_control_pool_saturation =
flow_control_stale_endpoints | gauge | detector | |
flow_control_capacity_utilization_requests | gauge | priority inference_pool | |
flow_control_capacity_utilization_bytes | gauge | priority inference_pool | |
flow_control_global_capacity_utilization_requests | gauge | inference_pool | |
flow_control_global_capacity_utilization_bytes | gauge | inference_pool | |
flow_control_requests_total | counter | outcome priority inference_pool | |
flow_control_revocations_issued_total | counter | priority inference_pool | |
flow_control_revocations_total | counter | outcome inference_pool | |
flow_control_reclaim_target | gauge | inference_pool | |
flow_control_pending_reclaim | gauge | inference_pool | |
flow_control_revocation_confirmation_seconds | histogram | inference_pool | REV |
extproc_streams_inflight | gauge | | |
extproc_stream_duration_seconds | histogram | | STREAM |
extproc_streams_total | counter | code | |
inflight_requests | gauge | endpoint_name namespace producer_name fairness_id priority | |
inflight_tokens | gauge | endpoint_name namespace producer_name fairness_id priority | |
disagg_decision_total | counter | P model_name decision_type | | llm_d_inference_scheduler_disagg_decision_total model_name decision_type
pd_decision_total | counter | P model_name decision_type | | llm_d_inference_scheduler_pd_decision_total model_name decision_type
prefix_indexer_size | gauge | P | | inference_extension_prefix_indexer_size
prefix_indexer_hit_ratio | histogram | P | RATIO | inference_extension_prefix_indexer_hit_ratio
prefix_indexer_hit_bytes | histogram | P | HITBYTES | inference_extension_prefix_indexer_hit_bytes
encoder_cache_queries_total | counter | P modality | |
encoder_cache_hits_total | counter | P modality pod | |
encoder_cache_hit_ratio | histogram | P | RATIO |
disaggregatedset_strict_header_no_match_total | counter | P selector | |
disaggregatedset_revision_gating_share | gauge | P mode revision | |
program_aware_jains_fairness_index | gauge | | |
program_aware_avg_wait_time_milliseconds | gauge | program_id | |
program_aware_attained_service_tokens | gauge | program_id | |
inference_request_metric | gauge | PM type | | inference_objective_inference_request_metric M type
request_predicted_ttft_seconds | histogram | PM | LAT | inference_objective_request_predicted_ttft_seconds M
request_ttft_prediction_duration_seconds | histogram | PM | PRED | inference_objective_request_ttft_prediction_duration_seconds M
request_predicted_tpot_seconds | histogram | PM | TPOTP | inference_objective_request_predicted_tpot_seconds M
request_tpot_prediction_duration_seconds | histogram | PM | PRED | inference_objective_request_tpot_prediction_duration_seconds M
request_slo_violation_total | counter | PM type | | inference_objective_request_slo_violation_total M type
kv_cache_index_admissions_total | counter | | | kvcache_index_admissions_total =
kv_cache_index_evictions_total | counter | | | kvcache_index_evictions_total =
kv_cache_index_lookup_requests_total | counter | | | kvcache_index_lookup_requests_total =
kv_cache_index_lookup_hits_total | counter | | | kvcache_index_lookup_hits_total =
kv_cache_index_max_pod_hit_count_total | counter | | | kvcache_index_max_pod_hit_count_total =
kv_cache_events_dedup_removed_hashes_suppressed_total | counter | | | kvcache_kvevents_dedup_removed_hashes_suppressed_total =
kv_cache_events_dedup_removed_hashes_forwarded_total | counter | | | kvcache_kvevents_dedup_removed_hashes_forwarded_total =
kv_cache_events_stores_skipped_total | counter | cache_kind reason | |
kv_cache_events_removals_skipped_total | counter | cache_kind reason | |
kv_cache_events_active_subscribers | gauge | | |
kv_cache_events_subscriber_reconnections_total | counter | pod_identifier | |
kv_cache_events_messages_received_total | counter | pod_identifier | |
kv_cache_events_zmq_errors_total | counter | pod_identifier operation | |
";

fn looked_up(name: &str, table: &[(&'static str, &'static str)]) -> Option<&'static str> {
    table.iter().find(|(short, _)| *short == name).map(|(_, long)| *long)
}

fn labels(text: &str) -> BTreeSet<String> {
    let long = |word| looked_up(word, &LABELS).unwrap_or(word);
    text.split_whitespace().flat_map(|word| long(word).split(' ')).map(str::to_owned).collect()
}

fn numbers<'a>(text: impl Iterator<Item = &'a str>) -> Vec<f64> {
    text.map(|n| n.parse().unwrap_or(f64::NAN)).collect()
}

/// What is wrong with what is shown of a line of the table.
fn wrong(line: &str, shown: &[Family]) -> Vec<String> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, kind, set, bounds, old] = cells[..] else { return vec![format!("not a line of the table: {line}")] };
    let name = format!("{PREFIX}{name}");
    let (old, old_bounds) = old.split_once(" @ ").unwrap_or((old, bounds));
    let (old, old_set) = old.split_once(' ').unwrap_or((old, ""));
    let old_set = if old_set == "=" { set } else { old_set };
    let mut wanted = vec![(name.clone(), set, bounds, None)];
    if !old.is_empty() {
        wanted.push((old.to_owned(), old_set, old_bounds, Some(name)));
    }
    let mut wrong = Vec::new();
    for (name, set, bounds, instead) in wanted {
        let bounds = looked_up(bounds, &BOUNDS).unwrap_or("not known");
        let Some(family) = shown.iter().find(|f| f.name == name) else {
            wrong.push(format!("{name} is not there"));
            continue;
        };
        if family.kind != kind {
            wrong.push(format!("{name}: expected a {kind}, found a {}", family.kind));
        }
        if family.labels.iter().cloned().collect::<BTreeSet<_>>() != labels(set) {
            wrong.push(format!("{name}: expected {:?}, found {:?}", labels(set), family.labels));
        }
        if numbers(family.buckets.iter().map(String::as_str)) != numbers(bounds.split_whitespace()) {
            wrong.push(format!("{name}: expected {bounds}, found {:?}", family.buckets));
        }
        if family.instead != instead {
            wrong.push(format!("{name}: expected to be told to use {instead:?}, found {:?}", family.instead));
        }
    }
    wrong
}

#[test]
fn the_families_that_dashboards_know_are_all_there() {
    let shown = epp::cli::metrics::families(registry());
    let wrong: Vec<String> = FAMILIES.trim().lines().flat_map(|line| wrong(line, &shown)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let lines = FAMILIES.trim().lines().count();
    let ours = |f: &&Family| f.name.starts_with(PREFIX) && f.instead.is_none();
    assert_eq!(lines, shown.iter().filter(ours).count(), "a family of llm-d's prefix is not in the table");
}

#[test]
fn the_table_is_looked_at() {
    let shown = epp::cli::metrics::families(registry());
    for line in [
        "wibble | gauge | | |",
        "request_total | gauge | R | |",
        "request_total | counter | M | |",
        "request_duration_seconds | histogram | R | TTFT |",
        "request_total | counter | R | | inference_objective_request_total =",
        "request_total | counter | R | | wibble =",
    ] {
        assert!(!wrong(line, &shown).is_empty(), "{line}");
    }
}

#[test]
fn no_family_is_there_twice() {
    let mut names = BTreeSet::new();
    for family in epp::cli::metrics::families(registry()) {
        assert!(names.insert(family.name.clone()), "{}", family.name);
    }
}

#[test]
fn every_family_has_a_place_a_help_text_and_labels_that_are_explained() {
    let page = epp::cli::metrics::markdown(registry());
    assert!(!page.contains("\n## Others\n"), "a family has no section");
    let (_, rest) = page.split_once("| label | what |").expect("the page explains labels");
    let (explained, _) = rest.split_once("\n## ").expect("more follows");
    for family in epp::cli::metrics::families(registry()) {
        assert!(family.help.len() > 10, "{}: {:?}", family.name, family.help);
        for label in family.labels {
            assert!(explained.contains(&format!("`{label}`")), "{label} of {}", family.name);
        }
    }
}
