//! What a config becomes, and what is refused with which words.

mod defaults;
mod golden;
mod references;
mod refused;
pub mod registry;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::config::plan::Origin;

const HEAD: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";
const DISCOVERY: &str = "{type: file-discovery, parameters: {path: e.yaml}}";

type Registry = &'static [&'static PluginType];

fn load_with(registry: Registry, text: &str, previous: Option<&Plan>) -> Result<Plan, Vec<Mistake>> {
    load_as(registry, text, previous, false)
}

fn load_as(
    registry: Registry,
    text: &str,
    previous: Option<&Plan>,
    allow_experimental: bool,
) -> Result<Plan, Vec<Mistake>> {
    let environment = Environment {
        registry,
        slots: &Slots::default(),
        metrics: &MetricHub::default(),
        staleness: Duration::from_secs(5),
        allow_experimental,
        previous,
    };
    load(text, &environment)
}

fn loaded(text: &str) -> Result<Plan, Vec<Mistake>> {
    load_with(registry::REGISTRY, text, None)
}

fn plan_with(registry: Registry, text: &str) -> Plan {
    load_as(registry, text, None, true).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:?}"))
}

fn plan(text: &str) -> Plan {
    plan_with(registry::REGISTRY, text)
}

/// A config as text: file discovery, `plugins` as flow mappings, `data` inside dataLayer, `top` at the end.
fn doc(plugins: &[&str], data: &str, top: &str) -> String {
    let listed: String = [DISCOVERY].iter().chain(plugins).map(|p| format!("- {p}\n")).collect();
    format!("{HEAD}plugins:\n{listed}dataLayer: {{{data}discovery: {{pluginRef: file-discovery}}}}\n{top}")
}

fn names(plan: &Plan, places: &[usize]) -> Vec<String> {
    places.iter().map(|at| plan.plugins[*at].name.clone()).collect()
}

fn all_names(plan: &Plan) -> Vec<&str> {
    plan.plugins.iter().map(|p| p.name.as_str()).collect()
}

/// A plan as text, without the places and origins that a written-out config cannot keep.
fn shape(plan: &Plan) -> String {
    let plugins: Vec<String> = plan
        .plugins
        .iter()
        .map(|p| format!("{} {} {:?}", p.name, p.kind.name, p.parameters.as_ref().map(|p| without_places(&p.value))))
        .collect();
    format!(
        "{plugins:#?}\n{:#?}\n{:?}",
        plan.profiles,
        (
            (plan.handler, &plan.producers, &plan.parsers, plan.saturation),
            (plan.gates, &plan.objectives, plan.discovery, &plan.sources, &plan.flow)
        )
    )
}

fn without_places(value: &Value) -> String {
    match value {
        Value::List(items) => items.iter().map(|i| without_places(&i.value)).collect::<Vec<_>>().join(";"),
        Value::Map(entries) => {
            entries.iter().map(|(k, _, v)| format!("{k}={}", without_places(&v.value))).collect::<Vec<_>>().join(",")
        }
        scalar => format!("{scalar:?}"),
    }
}

fn comes_back(registry: Registry, text: &str) {
    let first = plan_with(registry, text);
    let again = plan_with(registry, &first.effective);
    assert_eq!(shape(&first), shape(&again), "{}", first.effective);
    assert_eq!(without_comments(&first.effective), again.effective);
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split(" #").next().unwrap_or_default().to_owned() + "\n").collect()
}

#[test]
fn a_bare_config_gets_everything_it_needs() {
    insta::assert_snapshot!(plan(&doc(&[], "", "")).effective);
}

#[test]
fn an_empty_text_is_the_built_in_config() {
    for text in ["", "\n", "# nothing\n", "---\n"] {
        let plan = plan(text);
        assert_eq!(plan.discovery, None);
        assert_eq!(plan.required_discovery().unwrap_err().path, "dataLayer.discovery.pluginRef");
        let weights: Vec<f64> = plan.profiles[0].scorers.iter().map(|(_, weight)| *weight).collect();
        assert_eq!(weights, [2.0, 2.0, 3.0]);
        assert_eq!(names(&plan, &plan.producers), ["token-producer", "approx-prefix-cache-producer"]);
    }
}

#[test]
fn flow_control_is_written_out_whole() {
    let text = doc(
        &["{type: queue-scorer}"],
        "",
        "featureGates: [flowControl]\nflowControl: {maxBytes: 10Gi, maxRequests: 1k, defaultRequestTTL: 90s, enableEviction: true, \
         defaultPriorityBand: {maxRequests: 7}, priorityBands: [{priority: -3, maxBytes: 5000}, {priority: 9}]}\n",
    );
    comes_back(crate::app::registry(), &text);
    let effective = plan_with(crate::app::registry(), &text).effective;
    let flow = effective.split("flowControl:\n").nth(1).and_then(|rest| rest.split("requestHandler:").next());
    insta::assert_snapshot!(flow.unwrap_or_default());
}

#[test]
fn what_is_added_says_why() {
    insta::assert_snapshot!(
        plan(&doc(&["{type: prefix-cache-scorer}"], "", "objectives: {high: 10, \"low one\": -1}\n")).effective
    );
}

#[test]
fn the_written_config_is_read_as_the_same_plan() {
    for text in [
        String::new(),
        RICH.to_owned(),
        doc(&[], "", ""),
        doc(&["{type: prefix-cache-scorer, name: 'a: b', parameters: {}}", "{type: random-picker}"], "", ""),
        doc(
            &["{type: queue-scorer, parameters: {a: [1, {b: null, c: []}], d: '1', e: 1.0, f: \"x\\ny\", g: .inf, h: {}}}"],
            "injectDefaults: false, sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}], ",
            "featureGates: [haPopulateNonLeaderDatastore=false]\nobjectives: {x: 3}\n",
        )
        .replace("dataLayer", "- {type: metrics-data-source}\n- {type: core-metrics-extractor}\ndataLayer"),
        doc(
            &["{type: queue-scorer}", "{type: decode-filter}"],
            "",
            "schedulingProfiles: [{name: d, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer, weight: 2.5}, {pluginRef: queue-scorer, weight: -1}]}]\nparser: {pluginRef: vllmhttp-parser}\n",
        ),
    ] {
        comes_back(registry::REGISTRY, &text);
    }
}

#[test]
fn a_profile_keeps_its_order_and_its_weights() {
    let plan = plan(&doc(
        &[
            "{type: max-score-picker}",
            "{type: kv-cache-utilization-scorer}",
            "{type: queue-scorer}",
            "{type: decode-filter}",
        ],
        "",
        "schedulingProfiles: [{name: d, plugins: [{pluginRef: max-score-picker, weight: 9}, {pluginRef: queue-scorer, weight: null}, \
         {pluginRef: kv-cache-utilization-scorer, weight: 0}, {pluginRef: decode-filter}, {pluginRef: queue-scorer, weight: 0.5}]}]\n",
    ));
    let profile = &plan.profiles[0];
    assert_eq!(profile.scorers, [(3, 1.0), (2, 0.0), (3, 0.5)]);
    assert_eq!((profile.filters.as_slice(), profile.picker), ([4].as_slice(), 1));
}

#[test]
fn the_made_up_profile_lists_filters_scorers_and_pickers_in_the_order_of_the_file() {
    let plan = plan(&doc(
        &["{type: queue-scorer}", "{type: random-picker}", "{type: decode-filter}", "{type: token-producer}"],
        "",
        "",
    ));
    let profile = &plan.profiles[0];
    assert_eq!((profile.name.as_str(), profile.picker), ("default", 2));
    assert_eq!((profile.scorers.as_slice(), profile.filters.as_slice()), ([(1, 1.0)].as_slice(), [3].as_slice()));
}

#[test]
fn the_first_configured_picker_goes_to_profiles_without_one() {
    let plan = plan(&doc(
        &["{type: queue-scorer}", "{type: random-picker}", "{type: max-score-picker}"],
        "",
        "schedulingProfiles: [{name: d}]\n",
    ));
    assert_eq!(plan.plugins[plan.profiles[0].picker].name, "random-picker");
}

#[test]
fn missing_producers_are_made_and_run_before_their_readers() {
    let plan = plan(&doc(&["{type: prefix-cache-scorer}", "{type: inflight-load-producer}"], "", ""));
    assert_eq!(
        names(&plan, &plan.producers),
        ["token-producer", "approx-prefix-cache-producer", "inflight-load-producer"]
    );
    let made = plan.plugins.iter().find(|p| p.name == "token-producer").unwrap();
    let Origin::Created { reader } = made.origin else { panic!("{:?}", made.origin) };
    assert_eq!(plan.plugins[reader].name, "approx-prefix-cache-producer");
}

#[test]
fn a_listed_parser_need_not_be_a_plugin() {
    let plan = plan(&doc(&[], "", "requestHandler: {parsers: [{pluginRef: sglanghttp-parser}]}\n"));
    assert_eq!(names(&plan, &plan.parsers), ["sglanghttp-parser"]);
}

#[test]
fn default_parsers_that_are_not_built_in_are_left_out() {
    let plan = plan(&doc(&[], "", ""));
    assert_eq!(names(&plan, &plan.parsers), ["openai-parser", "vllmhttp-parser", "passthrough-parser"]);
}

#[test]
fn another_source_comes_before_the_default_one() {
    let plan = plan(
        &doc(&["{type: metrics-data-source, name: mine}"], "sources: [{pluginRef: mine}], ", "")
            .replace("e.yaml", "/e"),
    );
    let sources: Vec<_> = plan.sources.iter().map(|s| plan.plugins[s.source].name.as_str()).collect();
    assert_eq!(sources, ["mine", "metrics-data-source"]);
    assert!(all_names(&plan).contains(&"core-metrics-extractor"));
}

fn notices(text: &str) -> Vec<String> {
    plan(text)
        .notices
        .into_iter()
        .map(|n| format!("{} {}", if n.warning { "warning" } else { "deprecated" }, n.message))
        .collect()
}

#[test]
fn deprecations_and_settings_without_effect_are_noticed() {
    let old = doc(
        &["{type: by-label}"],
        "",
        "parser: {pluginRef: wibble}\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}\nsaturationDetector: {pluginRef: wibble}\nflowControl: {saturationDetector: {}, maxRequests: 5, priorityBands: [{priority: 1, maxBytes: -1, fairnessPolicyRef: wibble}]}\n",
    );
    insta::assert_snapshot!(notices(&old.replace("llm-d.ai", "inference.networking.x-k8s.io")).join("\n"));
    for section in
        ["{saturationDetector: {pluginRef: utilization-detector}}", "{enableEviction: true}", "{maxBytes: null}", "{}"]
    {
        assert_eq!(notices(&doc(&[], "", &format!("flowControl: {section}\n"))), [""; 0]);
    }
}

#[test]
fn optional_data_without_a_producer_is_noticed() {
    assert_eq!(
        notices(&doc(&["{type: optimist-scorer}"], "", "")),
        [
            "warning plugin \"optimist-scorer\": optional data key InFlightLoadDataKey/inflight-load-producer has no producer"
        ]
    );
}

const NOTIFIER: &str = "{type: endpoint-notification-source}";
const LISTENER: &str = "{type: listening-scorer}";

#[test]
fn a_listener_hears_endpoints_only_as_an_extractor_of_their_source() {
    let wired = "sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: listening-scorer}]}], ";
    let hears = |plan: &Plan| {
        let at = plan.plugins.iter().position(|p| p.name == "listening-scorer");
        at.is_some_and(|at| plan.hears_of_endpoints(at))
    };
    let text = doc(&[NOTIFIER, LISTENER], wired, "");
    assert!(hears(&plan(&text)));
    assert_eq!(notices(&text), [""; 0]);
    let alone = doc(&[LISTENER], "", "");
    assert!(!hears(&plan(&alone)));
    assert_eq!(
        notices(&alone),
        ["warning plugin \"listening-scorer\" hears no KV events: the config does not connect it to endpoints; add \
          `- type: endpoint-notification-source` to plugins, and to dataLayer \
          `sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: listening-scorer}]}]`"]
    );
    // Engines that connect by themselves need no source of endpoints.
    let bound = "{type: listening-scorer, parameters: {bind: \"tcp://*:5557\"}}";
    assert_eq!(notices(&doc(&[bound], "", "")), [""; 0]);
}

#[test]
fn a_listener_reads_no_pages() {
    let wrong = "sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: listening-scorer}]}], ";
    let got = loaded(&doc(&["{type: metrics-data-source}", LISTENER], wrong, "")).map(drop).unwrap_err();
    let got: Vec<String> = got.iter().map(ToString::to_string).collect();
    assert_eq!(got.len(), 1, "{got:?}");
    assert!(
        got[0].ends_with(
            "expected an extractor for what plugin \"metrics-data-source\" gives, found plugin \"listening-scorer\""
        ),
        "{got:?}"
    );
}

#[test]
fn an_unchanged_plugin_is_taken_over() {
    let first = plan(&doc(&["{type: queue-scorer}", "{type: load-aware-scorer, parameters: {threshold: 1}}"], "", ""));
    let text = doc(&["{type: load-aware-scorer, parameters: {threshold: 2}}", "{type: queue-scorer}"], "", "");
    let second = load_with(registry::REGISTRY, &text, Some(&first)).unwrap();
    let scorer = |plan: &Plan, name: &str| {
        plan.plugins.iter().find(|p| p.name == name).and_then(|p| p.instance.scorer.clone()).unwrap()
    };
    let same = |name: &str| Arc::ptr_eq(&scorer(&first, name), &scorer(&second, name));
    assert_eq!((same("queue-scorer"), same("load-aware-scorer")), (true, false));
    assert_eq!(names(&second, &second.producers), names(&first, &first.producers));
}

#[test]
fn versions_may_be_left_out_and_a_second_document_is_ignored() {
    for head in ["", "kind: EndpointPickerConfig\n", "apiVersion: llm-d.ai/v1alpha1\n", HEAD] {
        plan(&doc(&[], "", "---\nwibble: 1\n").replace(HEAD, head));
    }
}

/// A config that uses most of what there is.
const RICH: &str = "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [haPopulateNonLeaderDatastore=false]
plugins:
- &d {type: file-discovery, parameters: {path: e.yaml}}
- type: prefix-cache-scorer
  name: again
- {type: load-aware-scorer, parameters: {threshold: 10}}
- {type: random-picker}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: again, weight: 1.5}, {pluginRef: load-aware-scorer}]
dataLayer:
  discovery: {pluginRef: file-discovery}
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]
flowControl: {maxBytes: 10Gi, defaultRequestTTL: 60s, priorityBands: [{priority: 1}], saturationDetector: {}}
requestHandler: {parsers: [{pluginRef: openai-parser}]}
objectives: {high: 1}
";

proptest! {
    #[test]
    fn a_torn_config_either_comes_back_or_says_why(at in 0..RICH.len(), cut in 0..12_usize, put in "[-a-z0-9:{}\\[\\],'\"&* \n]{0,3}") {
        let cut = RICH.len().min(at + cut);
        let text = format!("{}{put}{}", &RICH[..at], &RICH[cut..]);
        match loaded(&text) {
            Ok(_) => comes_back(registry::REGISTRY, &text),
            Err(mistakes) => prop_assert!(!mistakes.is_empty(), "{}", text),
        }
    }
}
