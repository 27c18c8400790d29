//! Configs and flags that are refused, and what is said of them.

use crate::harness::endpoints;
use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup, directory, refusal_to_start};
use crate::harness::talk::COMPLETIONS;

const NOBODY: &str = "endpoints: []";

/// Refused at the start, with all of these words.
async fn refused(setup: Setup, words: &[&str]) {
    let log = refusal_to_start(setup.spawn(Some(NOBODY))).await;
    for word in words {
        assert!(log.contains(word), "expected {word:?} in {log}");
    }
}

fn flags(flags: &[&str]) -> Picker {
    let directory = directory();
    Picker::launch(directory, &flags.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>())
}

#[tokio::test]
async fn an_unknown_parameter_is_named_with_its_plugin() {
    let producer = "{type: approx-prefix-cache-producer, parameters: {maxPrefixToknesToMatch: 100}}";
    let setup = Setup::scorers(&["queue-scorer"]).plugin("queue-scorer", producer);
    refused(setup, &["maxPrefixToknesToMatch", "approx-prefix-cache-producer"]).await;
}

#[tokio::test]
async fn a_picker_may_come_before_a_scorer_without_a_weight() {
    let engine = Engine::start().await;
    let setup = Setup::scorers(&["max-score-picker", "queue-scorer"]);
    let picker = setup.start(&endpoints(&[engine.port])).await;
    assert_eq!(picker.pick(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await, Ok(engine.address()));
}

#[tokio::test]
async fn two_profiles_need_more_than_the_single_profile_handler() {
    let second = "- name: second\n  plugins:\n  - {pluginRef: queue-scorer}\n";
    let without = Setup::scorers(&["queue-scorer"]).section(second);
    refused(without, &["schedulingProfiles", "profile handler", "2 profiles"]).await;
    let setup = Setup::scorers(&["queue-scorer", "single-profile-handler"]).section(second);
    refused(setup, &["schedulingProfiles", "single profile handler", "found 2"]).await;
}

#[tokio::test]
async fn weights_may_be_fractions_but_must_be_numbers() {
    let weighted = |weight: &str| {
        let name = format!("queue-scorer, weight: {weight}");
        Setup::scorers(&["kv-cache-utilization-scorer"]).plugin(&name, "{type: queue-scorer}")
    };
    let picker = weighted("0.5").start(NOBODY).await;
    assert!(picker.get("/debug/config").await.1.contains("weight: 0.5"));
    for bad in [".nan", ".inf", "heavy"] {
        refused(weighted(bad), &["weight"]).await;
    }
}

#[tokio::test]
async fn an_unknown_gate_is_named_and_a_gate_may_be_closed() {
    let gates = |gates: &str| Setup::scorers(&["queue-scorer"]).section(&format!("featureGates: [{gates}]\n"));
    gates("flowControl=false").start(NOBODY).await;
    refused(gates("prepareDataPlugins"), &["featureGates", "prepareDataPlugins"]).await;
}

#[tokio::test]
async fn plugins_may_be_declared_in_any_order() {
    let engine = Engine::start().await;
    let setup = Setup::scorers(&["single-profile-handler", "prefix-cache-scorer", "approx-prefix-cache-producer"]);
    let text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: single-profile-handler}, \
                {type: prefix-cache-scorer}, {type: approx-prefix-cache-producer}, {type: token-producer}, \
                {type: file-discovery, parameters: {path: PATH}}]\n\
                dataLayer: {discovery: {pluginRef: file-discovery}}\n\
                schedulingProfiles: [{name: d, plugins: [{pluginRef: prefix-cache-scorer}]}]\n";
    let picker = setup.text(text).start(&endpoints(&[engine.port])).await;
    assert_eq!(picker.pick(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await, Ok(engine.address()));
}

#[tokio::test]
async fn mistakes_about_the_config_name_the_flags() {
    for (given, words) in [
        (&["--config-file=a", "--config-text=b"][..], &["--config-file", "--config-text"][..]),
        (&[], &["--config-file", "--endpoints-file"]),
        (&["--config-file=/"], &["'/'"]),
        (&["--config-file=/nowhere/at/all"], &["/nowhere/at/all"]),
    ] {
        let log = refusal_to_start(flags(given)).await;
        assert!(words.iter().all(|w| log.contains(w)), "{given:?}: {log}");
    }
}

#[tokio::test]
async fn a_block_of_no_tokens_is_refused_or_has_its_least_size() {
    let setup = |parameters: &str| {
        let producer = format!("{{type: approx-prefix-cache-producer, parameters: {{{parameters}}}}}");
        Setup::scorers(&["prefix-cache-scorer"]).plugin("prefix-cache-scorer", &producer)
    };
    for size in ["0", "-16"] {
        refused(setup(&format!("autoTune: false, blockSizeTokens: {size}")), &["blockSizeTokens"]).await;
        // An engine that tells its block size is believed; the parameter counts where none does.
        let engine = Engine::start().await;
        let picker = setup(&format!("blockSizeTokens: {size}")).start(&endpoints(&[engine.port])).await;
        assert_eq!(picker.pick(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await, Ok(engine.address()), "{size}");
    }
}

#[tokio::test]
async fn of_a_parser_in_its_old_and_its_new_place_the_new_one_counts() {
    let both = "parser: {pluginRef: openai-parser}\nrequestHandler: {parsers: [{pluginRef: vllmhttp-parser}]}\n";
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["queue-scorer"]).section(both).start(&endpoints(&[engine.port])).await;
    let told = picker.log().lines().filter(|l| l.contains("parser") && l.contains("deprecated")).count();
    assert_eq!(told, 1, "{}", picker.log());
    assert!(picker.pick("/inference/v1/generate", r#"{"model":"m","token_ids":[1]}"#).await.is_ok());
}
