//! Plugins run anew on what they looked at when the recording was made.

use std::collections::BTreeMap;

use epp_plugin_api::{Adapters, Held, Slots};

use super::*;
use crate::config::{Environment, load};
use crate::sched::subset::Subset;

/// Every scorer that goes by what is recorded, behind filters of which one is given, and what they need.
fn every_scorer(filters: &str) -> String {
    let scorers = [
        "active-request-scorer",
        "zone",
        "heat",
        "kv-cache-utilization-scorer",
        "latency-scorer",
        "load-aware-scorer",
        "lora-affinity-scorer",
        "mm-embeddings-cache-scorer",
        "multicluster-queue-scorer",
        "multicluster-kv-cache-utilization-scorer",
        "prefix-cache-scorer",
        "queue-scorer",
        "recent-load-scorer",
        "running-requests-size-scorer",
        "token-load-scorer",
        "topology-affinity-scorer",
        "context-length-aware",
    ];
    let listed = scorers.iter().filter(|name| !["zone", "heat", "context-length-aware"].contains(name));
    let types: String = listed.map(|name| format!("- {{type: {name}}}\n")).collect();
    let weighted: Vec<String> =
        scorers.iter().enumerate().map(|(i, name)| format!("{{pluginRef: {name}, weight: 0.{}}}", i + 1)).collect();
    format!(
        "plugins:\n{types}\
- {{type: header-label-affinity-scorer, name: zone, parameters: {{headerName: X-Zone, labelKey: zone}}}}
- {{type: endpoint-attribute-scorer, name: heat, parameters: {{attributeKey: heat, algorithm: {{type: linear_lower_is_better}}}}}}
- {{type: context-length-aware, parameters: {{label: range, enableFiltering: true}}}}
- {{type: multicluster-metrics-extractor}}
- {{type: topology-extractor, parameters: {{hostnameLabel: host, zoneLabel: zone}}}}
- {{type: utilization-filter, parameters: {{fallbackOnEmpty: true, conditions: [{{metric: waiting-queue, maxValue: 5}}, {{metric: running-requests, maxValue: 40}}, {{metric: kv-cache-utilization, maxValue: 0.9}}, {{metric: active-requests, maxValue: 4}}]}}}}
- {{type: endpoint-attribute-filter, parameters: {{attribute: heat, fallbackOnEmpty: true, algorithm: {{type: threshold, threshold: {{operator: LessThan, value: 60}}}}}}}}
- {{type: label-selector-filter, parameters: {{matchExpressions: [{{key: zone, operator: In, values: [a, b]}}]}}}}
- {{type: by-label, parameters: {{label: zone, validValues: [a]}}}}
- {{type: by-label-selector, parameters: {{matchLabels: {{zone: b}}}}}}
- {{type: decode-filter}}
- {{type: prefill-filter}}
- {{type: encode-filter}}
- {{type: header-based-testing-filter}}
- {{type: prefix-cache-affinity-filter, parameters: {{affinityThreshold: 0.3}}}}
- {{type: slo-headroom-tier-filter, parameters: {{epsilonExploreNeg: 0}}}}
- {{type: topology-affinity-filter}}
- {{type: weighted-random-picker}}
schedulingProfiles:
- name: default
  plugins: [{filters}{}, {{pluginRef: weighted-random-picker}}]
",
        weighted.join(", ")
    )
}

/// Prefill near the endpoint that decodes.
const NEAR: &str = "
plugins:
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 2}}
- {type: topology-extractor, parameters: {hostnameLabel: host, zoneLabel: zone}}
- {type: prefill-filter}
- {type: decode-filter}
- {type: topology-affinity-filter, parameters: {minAffinity: zone}}
- {type: topology-affinity-scorer}
- {type: active-request-scorer}
- {type: random-picker}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: topology-affinity-filter}, {pluginRef: topology-affinity-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: active-request-scorer}, {pluginRef: random-picker}]}
";

/// A board on which anything may be unknown, stale or equal.
fn any_board(rng: &mut fastrand::Rng, n_endpoints: u32) -> Snapshot {
    let now = Instant::now() + Duration::from_secs(100);
    let rows = (0..n_endpoints).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let of = |values: &[&'static str]| values[i as usize % values.len()].to_owned();
        let labels = [
            ("llm-d.ai/role", of(&["decode", "prefill", "both", "encode-prefill-decode"])),
            ("zone", of(&["a", "b", "c"])),
            ("host", of(&["h0", "h1", "h2", "h3", "h4"])),
            ("range", of(&["0-100", "0-40", "50-4000", "wibble"])),
        ];
        let labels: BTreeMap<_, _> = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let meta = EndpointMeta::new(name, format!("10.0.0.{i}"), 8000, labels, i % 2);
        let mut maybe = |value: f64| (rng.u8(..8) > 0).then_some(value);
        let (waiting, kv_usage) = (maybe(f64::from(i % 7) / 3.0), maybe(f64::from(i) * 0.07 % 1.0));
        let names = |n: u32| (0..n).map(|n| format!("lora-{n}")).collect();
        let adapters = Adapters { running: names(rng.u32(..3)), waiting: names(rng.u32(..3)), most: 3 };
        let custom = ["heat", "llm-d.ai/multicluster-queue-size/", "llm-d.ai/multicluster-kv-cache-utilization/"];
        let custom: Vec<_> = custom.into_iter().filter(|_| rng.bool()).map(|key| key.to_owned()).collect();
        let observed = Observed {
            waiting: waiting.map(|waiting| waiting + f64::from(rng.u32(..5))),
            running: Some(f64::from(rng.u32(..50))),
            kv_usage: kv_usage.map(|usage| (usage + rng.f64()) / 2.0),
            block_tokens: rng.bool().then_some(16),
            blocks: rng.bool().then_some(1000),
            adapters: rng.bool().then(|| adapters.into()),
            custom: custom.into_iter().map(|key| (key, rng.f64() * 100.0)).collect(),
            at: Some(if rng.u8(..6) == 0 { Instant::now() } else { now }),
        };
        SnapshotRow { id: EndpointId::new(i, i + 1), meta: meta.into(), observed }
    });
    Snapshot::new(u64::from(n_endpoints), rows, now, Duration::from_secs(50))
}

fn any_request(rng: &mut fastrand::Rng, number: u32) -> InferenceRequest {
    let mut request = request(rng, number);
    let name = |rng: &mut fastrand::Rng, values: [&str; 3]| values[rng.usize(..3)].to_owned();
    request.target_model = name(rng, ["m", "lora-0", "lora-2"]);
    request.fairness_id = name(rng, ["default-flow", "a tenant", "another \"one\""]);
    request.priority = i32::from(rng.u8(..3));
    if rng.bool() {
        request.headers.set("x-zone", name(rng, ["a", "b", "\u{e9}"]));
    }
    request.headers.set("x-session-id", name(rng, ["s1", "s2", "s3"]));
    request.headers.set("test-epp-endpoint-selection", "10.0.0.0, 10.0.0.1:8000, 10.0.0.2".into());
    request
}

/// What stays in flight of a request.
type InFlight = (Charge, Vec<Box<dyn Held>>);

/// The recording of so many requests on boards of chance. With `keeps`, some stay in flight; otherwise none does, and what is
/// in flight is chance, too, so that picks change nothing about what comes after.
fn recorded_by_chance(config: &str, seed: u64, n: u32, keeps: bool) -> Vec<u8> {
    // Pipelines draw their seeds from here.
    fastrand::seed(seed);
    let (hub, slots, mut rng) = (MetricHub::default(), Slots::default(), fastrand::Rng::with_seed(seed));
    let staleness = Duration::from_secs(2);
    let env = Environment {
        registry: registry(),
        slots: &slots,
        metrics: &hub,
        staleness,
        allow_experimental: true,
        previous: None,
    };
    let plan = load(config, &env).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
    let pipeline = Pipeline::new(&plan, SchedMetrics::new(&hub).into(), &hub);
    let kept = Arc::new(Keeps::default());
    let decisions = Decisions::taped(kept.clone());
    let ledgers = [slots.ledger("inflight-load-producer"), Arc::default()];
    let mut in_flight: Vec<InFlight> = Vec::new();
    let mut snapshot = Arc::new(any_board(&mut rng, 5));
    for number in 0..n {
        if rng.u8(..3) == 0 {
            snapshot = Arc::new(any_board(&mut rng, 5 + number / 20));
        }
        let request = any_request(&mut rng, number);
        let subset = Subset::new(["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.4"]);
        let chance = |ledger: &Arc<Ledger>, rng: &mut fastrand::Rng| {
            let rows = (0..20).map(|_| snapshot.ids()[rng.usize(..snapshot.rows())]);
            rows.map(|id| ledger.charge(id, 100)).collect::<Vec<_>>()
        };
        let others: Vec<_> = if keeps { Vec::new() } else { ledgers.iter().map(|l| chance(l, &mut rng)).collect() };
        let inputs = Inputs {
            board: &|| snapshot.clone(),
            request: &request,
            subset: (rng.u8(..4) == 0).then_some(&subset),
            ledger: &ledgers[1],
            now: request.received + Duration::from_millis(20) * number,
            with_scores: false,
            generation: 1,
            decisions: &decisions,
        };
        let outcome = pipeline.run(inputs, &NoCalls).now_or_never().expect("nothing is waited for");
        drop(others);
        in_flight.extend(outcome.ok().map(|(outcome, _)| (outcome.charge, outcome.held)).filter(|_| keeps));
        if in_flight.len() > 15 {
            in_flight.swap_remove(rng.usize(..15));
        }
    }
    std::mem::take(&mut kept.0.lock().text)
}

/// By request, where it went.
fn picks(recording: &[u8]) -> BTreeMap<String, Vec<String>> {
    let cycles = Reader::new(Box::new(std::io::Cursor::new(recording.to_vec()))).map(Result::unwrap);
    let picked = cycles.map(|cycle| {
        let rows = cycle.runs.iter().flat_map(|run| &run.picked);
        let picked = rows.map(|row| cycle.endpoints.endpoints[*row as usize].clone()).collect();
        (cycle.line.id, picked)
    });
    picked.collect()
}

const FILTERS: [&str; 13] = [
    "",
    "context-length-aware",
    "utilization-filter",
    "endpoint-attribute-filter",
    "label-selector-filter",
    "by-label",
    "by-label-selector",
    "decode-filter",
    "prefill-filter",
    "encode-filter",
    "header-based-testing-filter",
    "prefix-cache-affinity-filter",
    "slo-headroom-tier-filter",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]
    #[test]
    fn plugins_that_run_anew_say_exactly_what_was_recorded(seed in any::<u64>()) {
        let with_filter = |filter: &&str| match *filter {
            "" => every_scorer(""),
            filter => every_scorer(&format!("{{pluginRef: {filter}}}, ")),
        };
        for config in FILTERS.iter().map(with_filter).chain([NEAR.to_owned()]) {
            let recording = recorded_by_chance(&config, seed, 60, true);
            for given in [None, Some(config.as_str())] {
                let report = replayed(&recording, given).unwrap();
                prop_assert_eq!((report.cycles, report.differ, report.unknown), (60, 0, 0), "{}", config);
                // None is taken as recorded, and none scores otherwise.
                prop_assert_eq!(&report.notes, &[""; 0], "{}", config);
                prop_assert!(report.judged >= 20, "{} judged: {config}", report.judged);
            }
        }
    }

    #[test]
    fn another_config_picks_what_it_would_have_picked(seed in any::<u64>()) {
        let config = |plugins: &str, profile: &str| {
            format!(
                "plugins:\n- {{type: max-score-picker}}\n- {{type: kv-cache-utilization-scorer}}\n{plugins}\
                 schedulingProfiles: [{{name: default, plugins: [{profile}{{pluginRef: kv-cache-utilization-scorer}}, {{pluginRef: max-score-picker}}]}}]\n"
            )
        };
        let base = config(
            "- {type: active-request-scorer}\n- {type: utilization-filter, parameters: {fallbackOnEmpty: true, conditions: [{metric: waiting-queue, maxValue: 1}]}}\n",
            "{pluginRef: utilization-filter}, {pluginRef: active-request-scorer}, ",
        );
        let recording = recorded_by_chance(&base, seed, 80, false);
        let mut n_differ = 0;
        for other in [
            config("- {type: queue-scorer}\n", "{pluginRef: queue-scorer, weight: 2}, "),
            base.replace("maxValue: 1", "maxValue: 4"),
            base.replace("waiting-queue", "active-requests"),
            base.replace("{type: active-request-scorer}", "{type: active-request-scorer, parameters: {idleThreshold: 3}}"),
            config("- {type: token-load-scorer, parameters: {queueThresholdTokens: 900}}\n- {type: decode-filter}\n", "{pluginRef: decode-filter}, {pluginRef: token-load-scorer, weight: 3}, "),
            config("- {type: lora-affinity-scorer}\n- {type: load-aware-scorer, parameters: {threshold: 9}}\n", "{pluginRef: lora-affinity-scorer}, {pluginRef: load-aware-scorer}, "),
        ] {
            let would_pick = picks(&recorded_by_chance(&other, seed, 80, false));
            let report = replayed(&recording, Some(&other)).unwrap();
            let mut picked = picks(&recording);
            n_differ += report.differ;
            for difference in report.differences {
                picked.insert(difference.request, difference.now.into_iter().collect());
            }
            prop_assert_eq!(picked, would_pick, "{}", other);
        }
        prop_assert!(n_differ > 20, "{n_differ}");
    }
}

#[test]
fn a_difference_says_which_scorer_and_which_filter_made_it() {
    let base = "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]\n";
    let recording = recorded_by_chance(base, 3, 80, false);
    let other = "plugins:\n- {type: kv-cache-utilization-scorer}\n- {type: utilization-filter, parameters: {conditions: [{metric: kv-cache-utilization, maxValue: 0.3}]}}\n\
                 schedulingProfiles: [{name: default, plugins: [{pluginRef: utilization-filter}, {pluginRef: kv-cache-utilization-scorer}]}]\n";
    let report = replayed(&recording, Some(other)).unwrap();
    let dropped = report
        .differences
        .iter()
        .find(|difference| !difference.dropped.is_empty() && difference.now.is_some())
        .unwrap();
    assert_eq!(dropped.dropped[0].filter.as_deref(), Some("utilization-filter"));
    assert_eq!((&dropped.dropped[0].endpoint, dropped.dropped[0].is_now), (&dropped.recorded, true));
    let scorer = dropped.scorers.iter().find(|scorer| scorer.scorer == "kv-cache-utilization-scorer").unwrap();
    assert_eq!((scorer.weights, scorer.recorded), ([0.0, 1.0], [None, None]));
    assert!(matches!(scorer.now, [None, Some(score)] if score >= 0.7), "{scorer:?}");
    let back = replayed(&recorded_by_chance(other, 3, 80, false), Some(base)).unwrap();
    let dropped = back.differences.iter().flat_map(|difference| &difference.dropped).find(|d| !d.is_now).unwrap();
    assert_eq!(dropped.filter.as_deref(), Some("utilization-filter"));
}

#[test]
fn a_plugin_with_a_memory_is_taken_as_recorded_as_far_as_it_spoke() {
    let base = "plugins:\n- {type: session-affinity-filter, parameters: {strategy: session_id}}\n- {type: no-hit-lru-scorer}\n- {type: utilization-filter, parameters: {conditions: [{metric: waiting-queue, maxValue: 3}]}}\n- {type: queue-scorer}\n\
                schedulingProfiles: [{name: default, plugins: [{pluginRef: utilization-filter}, {pluginRef: session-affinity-filter}, {pluginRef: no-hit-lru-scorer}, {pluginRef: queue-scorer, weight: 0.1}]}]\n";
    let recording = recorded_by_chance(base, 5, 80, true);
    let report = replayed(&recording, None).unwrap();
    assert_eq!((report.differ, report.unknown), (0, 0));
    for taken in ["filter session-affinity-filter", "scorer no-hit-lru-scorer"] {
        assert!(report.notes.iter().any(|note| note.starts_with(taken)), "{:?}", report.notes);
    }
    // Whom the first filter lets through now, the second one has never seen.
    let report = replayed(&recording, Some(&base.replace("maxValue: 3", "maxValue: 6"))).unwrap();
    assert!(report.unknown > 0 && report.judged > 0, "{report:?}");
    assert!(report.notes.iter().any(|note| note.contains("cannot be judged")), "{:?}", report.notes);
}
