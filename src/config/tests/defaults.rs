//! What is put in where a config says nothing, and what stays as it says.

use super::*;

/// As `load_with` the plugin types of the program, where experimental ones may be let in.
fn load_real(text: &str, allow_experimental: bool) -> Result<Plan, Vec<String>> {
    let loaded = load_as(crate::app::registry(), text, None, allow_experimental);
    loaded.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn real(text: &str) -> Plan {
    load_real(text, false).unwrap_or_else(|mistakes| panic!("{text}\n{mistakes:?}"))
}

#[test]
fn a_config_of_two_lines_runs_one_profile() {
    for head in [HEAD.to_owned(), format!("{HEAD}dataLayer: {{}}\n")] {
        let plan = real(&head);
        let profile = &plan.profiles[0];
        assert_eq!((plan.profiles.len(), profile.name.as_str()), (1, "default"));
        assert_eq!(plan.plugins[plan.handler].name, "single-profile-handler");
        assert_eq!(plan.plugins[profile.picker].name, "max-score-picker");
        assert_eq!(sources(&plan), [("metrics-data-source", vec!["core-metrics-extractor"])]);
    }
}

#[test]
fn gates_are_as_written_or_as_ever() {
    for (gates, ha) in [
        ("[]", true),
        ("[haPopulateNonLeaderDatastore=false]", false),
        ("[haPopulateNonLeaderDatastore=true]", true),
        ("[haPopulateNonLeaderDatastore=false, haPopulateNonLeaderDatastore]", true),
        ("[flowControl=false]", true),
    ] {
        let plan = real(&format!("{HEAD}featureGates: {gates}\n"));
        let gates_read = (plan.gates.flow_control, plan.gates.ha_populate_non_leader_datastore);
        assert_eq!(gates_read, (false, ha), "{gates}");
    }
}

/// Every data source with its extractors.
fn sources(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    let name = |at: &usize| plan.plugins[*at].name.as_str();
    plan.sources.iter().map(|s| (name(&s.source), s.extractors.iter().map(name).collect())).collect()
}

#[test]
fn engines_are_scraped_beside_what_else_is_asked() {
    let of_pods = "{type: k8s-notification-source, parameters: {version: v1, kind: Pod}}";
    let plan = real(&doc(&[of_pods], "sources: [{pluginRef: k8s-notification-source}], ", ""));
    let scrape = ("metrics-data-source", vec!["core-metrics-extractor"]);
    assert_eq!(sources(&plan), [("k8s-notification-source", vec![]), scrape.clone()]);
    let data = "sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}], ";
    let plan = real(&doc(&["{type: metrics-data-source}", "{type: core-metrics-extractor}"], data, ""));
    assert_eq!(sources(&plan), [scrape]);
}

#[test]
fn a_saturation_detector_counts_where_it_was_once_written() {
    let mine = "{type: utilization-detector, name: mine}";
    for text in ["saturationDetector: {pluginRef: mine}\n", "flowControl: {saturationDetector: {pluginRef: mine}}\n"] {
        let plan = real(&doc(&[mine], "", text));
        assert_eq!(plan.plugins[plan.saturation].name, "mine", "{text}");
    }
    let plan = real(&doc(&[], "", ""));
    assert_eq!(plan.plugins[plan.saturation].name, "utilization-detector");
}

#[test]
fn a_profile_runs_its_plugins_in_the_order_that_it_lists_them() {
    let listed =
        ["decode-filter, name: c", "decode-filter, name: a", "decode-filter, name: b", "queue-scorer, name: t"];
    let listed = listed.map(|plugin| format!("{{type: {plugin}}}"));
    let plan = real(&doc(
        &[&listed[0], &listed[1], &listed[2], &listed[3], "{type: queue-scorer, name: s}", "{type: random-picker}"],
        "",
        "schedulingProfiles: [{name: d, plugins: [{pluginRef: a}, {pluginRef: b}, {pluginRef: c}, {pluginRef: s}, \
         {pluginRef: t}, {pluginRef: random-picker}]}]\n",
    ));
    let profile = &plan.profiles[0];
    assert_eq!(names(&plan, &profile.filters), ["a", "b", "c"]);
    let scorers: Vec<usize> = profile.scorers.iter().map(|(at, _)| *at).collect();
    assert_eq!(names(&plan, &scorers), ["s", "t"]);
}

#[test]
fn a_handler_may_stand_before_the_decider_that_it_names() {
    let handler = "{type: disagg-profile-handler, parameters: {deciders: {prefill: late}}}";
    let decider = "{type: always-disagg-pd-decider, name: late}";
    for plugins in [[handler, decider], [decider, handler]] {
        let plan = real(&doc(&plugins, "", "schedulingProfiles: [{name: prefill}, {name: decode}]\n"));
        assert_eq!(plan.plugins[plan.handler].keys.refers_to, ["late"], "{plugins:?}");
    }
}

#[test]
fn experimental_plugins_load_when_they_are_let_in() {
    let text = doc(&["{type: session-affinity-scorer}"], "", "");
    assert!(load_real(&text, true).is_ok());
    let mistakes = load_real(&text, false).map(|_| ()).unwrap_err();
    assert!(mistakes[0].contains("has alpha stability"), "{mistakes:?}");
}

#[test]
fn scorers_of_clusters_do_not_load_without_their_extractor() {
    for (scorer, key) in [
        ("multicluster-queue-scorer", "llm-d.ai/multicluster-queue-size/"),
        ("multicluster-kv-cache-utilization-scorer", "llm-d.ai/multicluster-kv-cache-utilization/"),
    ] {
        let mistakes = load_real(&doc(&[&format!("{{type: {scorer}}}")], "", ""), true).map(|_| ()).unwrap_err();
        let why = format!("no default producer found for missing data key {key}, consumed by plugin {scorer:?}");
        assert!(mistakes[0].contains(&why), "{mistakes:?}");
    }
}

#[test]
fn a_producer_that_is_made_keeps_the_rules_of_a_listed_one() {
    for (scorer, why) in [
        ("trial-scorer", "plugin \"trial-producer\" (type trial-producer) has alpha stability"),
        ("picky-scorer", "expected a whim, found nothing"),
    ] {
        let mistakes: Vec<String> = match loaded(&doc(&[&format!("{{type: {scorer}}}")], "", "")) {
            Ok(_) => panic!("{scorer} is accepted"),
            Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
        };
        assert!(mistakes.len() == 1 && mistakes[0].contains(why), "{mistakes:?}");
    }
}

#[test]
fn the_precise_scorer_reads_the_producer_beside_it_or_keeps_an_index() {
    let (producer, scorer) = ("{type: precise-prefix-cache-producer}", "{type: precise-prefix-cache-scorer}");
    let kept = |plugins: &[&str]| {
        let plan = real(&doc(plugins, "", ""));
        let scorer = plan.plugins.iter().find(|p| p.name == "precise-prefix-cache-scorer").expect("it is listed");
        scorer.instance.producer.is_some()
    };
    assert!(kept(&[scorer]));
    assert!(!kept(&[scorer, producer]) && !kept(&[producer, scorer]), "the order is of no account");
    let odd = "{type: precise-prefix-cache-scorer, parameters: {colour: red}}";
    assert!(!kept(&[odd, producer]), "its own parameters do not count then");
    let other = "{type: precise-prefix-cache-producer, name: other}";
    let refused = load_real(&doc(&[scorer, producer, other], "", ""), false).unwrap_err();
    assert!(refused[0].contains("found precise-prefix-cache-producer and other"), "{refused:?}");
}
