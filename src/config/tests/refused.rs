//! What is refused, and whether the message names the fault.

use super::{HEAD, doc, loaded};

const QUEUE: &str = "{type: queue-scorer}";

/// The mistakes as they are shown.
fn mistakes(text: &str) -> Vec<String> {
    match loaded(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

/// Refused with this one mistake.
fn refused(text: &str, mistake: &str) {
    assert_eq!(mistakes(text), [mistake], "{text}");
}

fn top(text: &str) -> String {
    doc(&[QUEUE], "", text)
}

#[test]
fn the_outer_document_is_strict() {
    for (text, mistake) in [
        (
            "hello\n".to_owned(),
            "line 1 column 1: expected a config, which is a map with keys like plugins, found a string",
        ),
        (
            "- hello\n".to_owned(),
            "line 1 column 1: expected a config, which is a map with keys like plugins, found a list",
        ),
        (
            top("wibble: 1\n"),
            "line 7 column 1: wibble: unknown key \"wibble\", expected one of apiVersion, kind, featureGates, plugins, \
             schedulingProfiles, dataLayer, flowControl, requestHandler, objectives, saturationDetector, parser",
        ),
        (
            top("schedulingProfiles: [{name: d, plugins: [{pluginref: queue-scorer, pluginRef: queue-scorer}]}]\n"),
            "line 7 column 43: schedulingProfiles[0].plugins[0].pluginref: unknown key \"pluginref\", expected pluginRef in exactly this case",
        ),
        (
            top("featureGates: []\nfeatureGates: []\n"),
            "line 8 column 1: duplicate key \"featureGates\", first at line 7",
        ),
        (top("featureGates: 5\n"), "line 7 column 15: featureGates: expected a list, found an integer"),
        (
            top("").replace("/v1alpha1", "/v9"),
            "line 1 column 13: apiVersion: expected llm-d.ai/v1alpha1, found \"llm-d.ai/v9\"",
        ),
        (
            top("").replace("EndpointPickerConfig", "Wibble"),
            "line 2 column 7: kind: expected EndpointPickerConfig, found \"Wibble\"",
        ),
        (
            top("flowControl: {saturationDetector: {wibble: 1}}\n"),
            "line 7 column 36: flowControl.saturationDetector.wibble: unknown key \"wibble\", expected one of pluginRef",
        ),
        (
            top("objectives: {a: high}\n"),
            "line 7 column 17: objectives.a: expected a priority, an integer of at most 32 bits, found a string",
        ),
        (
            top("objectives: [a]\n"),
            "line 7 column 13: objectives: expected a map from names to priorities, found a list",
        ),
    ] {
        refused(&text, mistake);
    }
}

#[test]
fn one_bad_token_is_one_mistake() {
    assert_eq!(mistakes("plugins: [1\n").len(), 1);
    assert_eq!(mistakes(&top("a: b: c\n")).len(), 1);
}

#[test]
fn feature_gates_are_checked() {
    for (gates, mistake) in [
        (
            "[wibble]",
            "featureGates[0]: unknown feature gate \"wibble\", expected flowControl or haPopulateNonLeaderDatastore",
        ),
        (
            "[flowControl=false, dataLayer]",
            "featureGates[1]: unknown feature gate \"dataLayer\", expected flowControl or haPopulateNonLeaderDatastore",
        ),
        (
            "[flowControl=maybe]",
            "featureGates[0]: feature gate \"flowControl\": expected true or false, found \"maybe\"",
        ),
        ("[flowControl=]", "featureGates[0]: feature gate \"flowControl\": expected true or false, found \"\""),
        ("[5]", "featureGates[0]: expected a string, found an integer"),
    ] {
        let got = mistakes(&top(&format!("featureGates: {gates}\n")));
        assert_eq!(got.len(), 1, "{got:?}");
        assert!(got[0].ends_with(mistake), "{got:?}");
    }
    for gates in ["[flowControl=0]", "[flowControl, flowControl= False ]", "[flowControl=f=true]", "[]", "null"] {
        let plan = loaded(&top(&format!("featureGates: {gates}\n"))).unwrap();
        assert_eq!(plan.flow, None, "{gates}");
    }
    for gates in ["[flowControl]", "[flowControl=T]", "[flowControl=1]", "[flowControl=F, flowControl]"] {
        let plan = loaded(&top(&format!("featureGates: {gates}\n"))).unwrap();
        assert!(plan.flow.is_some(), "{gates}");
    }
}

#[test]
fn plugins_are_checked() {
    for (plugins, mistake) in [
        (&["{name: wibble}"][..], "line 5 column 3: plugins[1].type: plugin \"wibble\" is missing a type"),
        (&["{}"], "line 5 column 3: plugins[1].type: expected the type of the plugin, found nothing"),
        (&["{type: 5}"], "line 5 column 10: plugins[1].type: expected a string, found an integer"),
        (&["{type: wibble-scorer}"], "line 5 column 10: plugins[1].type: unknown plugin type \"wibble-scorer\""),
        (&[QUEUE, QUEUE], "line 6 column 3: plugins[2].name: duplicate plugin name \"queue-scorer\""),
        (
            &["{type: load-aware-scorer, parameters: {wibble: 1}}"],
            "line 5 column 42: plugins[1].parameters: plugin \"load-aware-scorer\": unknown key \"wibble\", expected one of threshold",
        ),
        (
            &["{type: load-aware-scorer, name: l, parameters: {threshold: lots}}"],
            "line 5 column 62: plugins[1].parameters.threshold: plugin \"l\" of type load-aware-scorer: expected an integer, found a string",
        ),
        (
            &["{type: load-aware-scorer, parameters: [1]}"],
            "line 5 column 41: plugins[1].parameters: plugin \"load-aware-scorer\": expected a map, found a list",
        ),
        (
            &["{type: file-discovery, name: f, parameters: {PATH: ''}}"],
            "line 5 column 54: plugins[1].parameters.path: plugin \"f\" of type file-discovery: expected the path of the endpoints file, found nothing",
        ),
        (
            &["{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: wibble}}"],
            "line 5 column 3: plugins[1]: no default producer found for missing data key PrefixCacheMatchInfoDataKey/wibble, consumed by plugin \"prefix-cache-scorer\"",
        ),
        (
            &["{type: queue-scorer, name: approx-prefix-cache-producer}", "{type: prefix-cache-scorer}"],
            "line 6 column 3: plugins[2]: plugin \"approx-prefix-cache-producer\" of type queue-scorer does not produce it: missing data key PrefixCacheMatchInfoDataKey/approx-prefix-cache-producer, consumed by plugin \"prefix-cache-scorer\"",
        ),
        (
            &["{type: ping-producer}", "{type: pong-producer}"],
            "line 5 column 3: plugins[1]: data producers read each other's data in a cycle: \"ping-producer\", \"pong-producer\"",
        ),
        (
            &["{type: session-affinity-scorer, name: wibble}"],
            "line 5 column 3: plugins[1]: plugin \"wibble\" (type session-affinity-scorer) has alpha stability, but --allow-experimental-plugins is not set",
        ),
        (
            &["{type: max-score-picker}", "{type: random-picker}"],
            "line 6 column 3: schedulingProfiles[0]: profile \"default\" has two pickers, \"max-score-picker\" and \"random-picker\", expected one",
        ),
        (
            &["{type: single-profile-handler}", "{type: single-profile-handler, name: wibble}"],
            "line 6 column 3: plugins[2]: expected one profile handler, found \"single-profile-handler\" and \"wibble\"",
        ),
        (
            &["{type: queue-scorer, name: max-score-picker}"],
            "schedulingProfiles[0]: profile \"default\" has no picker, expected one",
        ),
    ] {
        refused(&doc(plugins, "", ""), mistake);
    }
}

#[test]
fn profiles_are_checked() {
    for (profiles, mistake) in [
        (
            "[{plugins: []}]",
            "line 7 column 22: schedulingProfiles[0].name: expected the name of the profile, found nothing",
        ),
        (
            "[{name: d, plugins: [{weight: 1}]}]",
            "line 7 column 42: schedulingProfiles[0].plugins[0].pluginRef: expected the name of a plugin, found nothing",
        ),
        (
            "[{name: d, plugins: [{pluginRef: wibble}]}]",
            "line 7 column 54: schedulingProfiles[0].plugins[0].pluginRef: no plugin is named \"wibble\"",
        ),
        (
            "[{name: d, plugins: [{pluginRef: queue-scorer, weight: heavy}]}]",
            "line 7 column 76: schedulingProfiles[0].plugins[0].weight: expected a number, found a string",
        ),
        (
            "[{name: d, plugins: [{pluginRef: queue-scorer, weight: .nan}]}]",
            "line 7 column 76: schedulingProfiles[0].plugins[0].weight: expected a finite number, found NaN",
        ),
        (
            "[{name: d}, {name: e}]",
            "line 7 column 1: schedulingProfiles: expected a profile handler for 2 profiles, found none",
        ),
    ] {
        refused(&top(&format!("schedulingProfiles: {profiles}\n")), mistake);
    }
    refused(
        &doc(&["{type: single-profile-handler}"], "", "schedulingProfiles: [{name: d}, {name: e}]\n"),
        "line 7 column 1: schedulingProfiles: profile handler \"single-profile-handler\": expected one profile, found 2",
    );
    assert!(mistakes(&top("schedulingProfiles: [{name: w}, {name: w}]\n"))[0].contains("duplicate profile name \"w\""));
}

#[test]
fn references_are_checked() {
    for (data, text, mistake) in [
        (
            "",
            "flowControl: {saturationDetector: {pluginRef: wibble}}\n",
            "flowControl.saturationDetector.pluginRef: no plugin is named \"wibble\"",
        ),
        (
            "",
            "saturationDetector: {pluginRef: wibble}\n",
            "saturationDetector.pluginRef: no plugin is named \"wibble\"",
        ),
        (
            "",
            "saturationDetector: {pluginRef: queue-scorer}\n",
            "saturationDetector.pluginRef: expected a saturation detector, found plugin \"queue-scorer\", which is a scorer",
        ),
        (
            "",
            "requestHandler: {parsers: [{pluginRef: wibble}]}\n",
            "requestHandler.parsers[0].pluginRef: no plugin is named \"wibble\"",
        ),
        (
            "",
            "requestHandler: {parsers: [{pluginRef: queue-scorer}]}\n",
            "requestHandler.parsers[0].pluginRef: expected a parser, found plugin \"queue-scorer\", which is a scorer",
        ),
        ("sources: [{pluginRef: wibble}], ", "", "dataLayer.sources[0].pluginRef: no plugin is named \"wibble\""),
        (
            "sources: [{pluginRef: queue-scorer}], ",
            "",
            "dataLayer.sources[0].pluginRef: expected a data source, found plugin \"queue-scorer\", which is a scorer",
        ),
        (
            "sources: [{extractors: []}], ",
            "",
            "dataLayer.sources[0].pluginRef: expected the name of a plugin, found nothing",
        ),
        (
            "crossReplicaSyncerPluginRef: wibble, ",
            "",
            "dataLayer.crossReplicaSyncerPluginRef: no plugin is named \"wibble\"",
        ),
        (
            "crossReplicaSyncInterval: soon, ",
            "",
            "dataLayer.crossReplicaSyncInterval: expected a duration such as 1m30s or 500ms, found \"soon\"",
        ),
        ("injectDefaults: 1, ", "", "dataLayer.injectDefaults: expected true or false, found an integer"),
    ] {
        let got = mistakes(&doc(&[QUEUE], data, text));
        assert!(got.len() == 1 && got[0].ends_with(mistake), "{got:?}");
    }
    for (discovery, mistake) in [
        ("{pluginRef: wibble}", "dataLayer.discovery.pluginRef: no plugin is named \"wibble\""),
        (
            "{pluginRef: queue-scorer}",
            "dataLayer.discovery.pluginRef: expected an endpoint discovery, found plugin \"queue-scorer\", which is a scorer",
        ),
        ("{}", "dataLayer.discovery.pluginRef: expected the name of a plugin, found nothing"),
    ] {
        let got = mistakes(&top("").replace("{pluginRef: file-discovery}", discovery));
        assert!(got.len() == 1 && got[0].ends_with(mistake), "{got:?}");
    }
}

#[test]
fn a_config_without_a_data_source_is_refused() {
    assert_eq!(
        mistakes(&doc(&[QUEUE], "injectDefaults: false, ", "")),
        [
            "line 5 column 3: plugins[1]: no default producer found for missing data key WaitingQueueSize/core-metrics-extractor, consumed by plugin \"queue-scorer\"",
            "dataLayer.sources: expected a data source such as metrics-data-source, found none",
        ]
    );
}

#[test]
fn flow_control_counts_only_behind_its_gate() {
    for (section, mistake) in [
        ("maxBytes: -1", "flowControl.maxBytes: all bands together: expected a limit that is not negative, found -1"),
        (
            "priorityBands: [{priority: 5, maxRequests: -1}]",
            "flowControl.priorityBands[0].maxRequests: priority band 5: expected a limit that is not negative, found -1",
        ),
        (
            "priorityBands: [{priority: 37}, {priority: 37}]",
            "flowControl.priorityBands[1].priority: duplicate priority level 37, also that of flowControl.priorityBands[0]",
        ),
        ("usageLimitPolicyPluginRef: wibble", "flowControl.usageLimitPolicyPluginRef: no plugin is named \"wibble\""),
        (
            "defaultPriorityBand: {fairnessPolicyRef: queue-scorer}",
            "flowControl.defaultPriorityBand.fairnessPolicyRef: expected a fairness policy, found plugin \"queue-scorer\", which is a scorer",
        ),
    ] {
        loaded(&top(&format!("flowControl: {{{section}}}\n"))).unwrap();
        let got = mistakes(&top(&format!("featureGates: [flowControl]\nflowControl: {{{section}}}\n")));
        assert!(got.len() == 1 && got[0].ends_with(mistake), "{got:?}");
    }
    for (section, mistake) in [
        ("maxBytes: heaps", "flowControl.maxBytes: expected a quantity such as 10Gi, 1k or 500, found \"heaps\""),
        (
            "defaultRequestTTL: -1s",
            "flowControl.defaultRequestTTL: expected a duration that is not negative, found \"-1s\"",
        ),
        (
            "noEndpointRequestTTL: 5",
            "flowControl.noEndpointRequestTTL: expected a duration such as 1m30s, found an integer",
        ),
        ("priorityBands: {}", "flowControl.priorityBands: expected a list, found a map"),
    ] {
        let got = mistakes(&top(&format!("flowControl: {{{section}}}\n")));
        assert!(got.len() == 1 && got[0].ends_with(mistake), "{got:?}");
    }
}

#[test]
fn every_mistake_is_named_at_once_in_the_order_of_the_file() {
    let text = format!(
        "{HEAD}plugins:\n- {{type: wibble-scorer}}\n- {{type: load-aware-scorer, parameters: {{wobble: 1}}}}\n{}",
        "- {type: queue-scorer}\nwabble: 1\nschedulingProfiles:\n- name: d\n  plugins:\n  - pluginRef: wibble-scorer\n  \
         - pluginRef: wubble\nfeatureGates: [a, b]\nkind: Other\n"
    );
    insta::assert_snapshot!(mistakes(&text).join("\n"));
}
