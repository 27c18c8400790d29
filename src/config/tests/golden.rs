//! The sample configs in `config/` say what they seem to say.

use super::{Registry, comes_back, load_with, plan_with};

/// The plugin types that the samples are read with.
fn registry() -> Registry {
    crate::app::registry()
}

fn golden(name: &str) {
    let path = format!("{}/config/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("a sample is in the repository");
    let plan = plan_with(registry(), &text);
    assert_eq!(plan.notices, []);
    assert!(plan.required_discovery().is_ok());
    let needs_the_flag = load_with(registry(), &text, None).is_err();
    assert_eq!(
        text.contains("# Needs --allow-experimental-plugins."),
        needs_the_flag,
        "the head of {name} must say so"
    );
    insta::assert_snapshot!(name, plan.effective);
    comes_back(registry(), &text);
}

#[test]
fn context_length() {
    golden("context-length");
}

#[test]
fn data_parallel() {
    golden("data-parallel");
}

#[test]
fn default() {
    golden("default");
}

#[test]
fn demo() {
    golden("demo");
}

#[test]
fn flow_control() {
    golden("flow-control");
}

#[test]
fn load_balancing() {
    golden("load-balancing");
}

#[test]
fn lora_affinity() {
    golden("lora-affinity");
}

#[test]
fn p2p_source() {
    golden("p2p-source");
}

#[test]
fn precise_prefix() {
    golden("precise-prefix");
}

#[test]
fn predicted_latency() {
    golden("predicted-latency");
}

#[test]
fn prefill_decode() {
    golden("prefill-decode");
}

#[test]
fn prefill_decode_topology() {
    golden("prefill-decode-topology");
}

#[test]
fn prefix_affinity() {
    golden("prefix-affinity");
}

#[test]
fn prefix_affinity_rendered() {
    golden("prefix-affinity-rendered");
}

#[test]
fn rl_burst() {
    golden("rl-burst");
}

#[test]
fn rl_persistent() {
    golden("rl-persistent");
}

#[test]
fn rl_rollouts() {
    golden("rl-rollouts");
}

#[test]
fn rl_sglang() {
    golden("rl-sglang");
}

#[test]
fn rl_token_load() {
    golden("rl-token-load");
}

#[test]
fn rl_token_budget() {
    golden("rl-token-budget");
}

#[test]
fn session_affinity() {
    golden("session-affinity");
}

#[test]
fn every_sample_is_tested() {
    let directory = format!("{}/config", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&directory).expect("the samples are in the repository");
    let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "context-length.yaml",
            "data-parallel.yaml",
            "default.yaml",
            "demo.yaml",
            "flow-control.yaml",
            "load-balancing.yaml",
            "lora-affinity.yaml",
            "p2p-source.yaml",
            "precise-prefix.yaml",
            "predicted-latency.yaml",
            "prefill-decode-topology.yaml",
            "prefill-decode.yaml",
            "prefix-affinity-rendered.yaml",
            "prefix-affinity.yaml",
            "rl-burst.yaml",
            "rl-persistent.yaml",
            "rl-rollouts.yaml",
            "rl-sglang.yaml",
            "rl-token-budget.yaml",
            "rl-token-load.yaml",
            "session-affinity.yaml"
        ]
    );
    let page = std::fs::read_to_string(format!("{directory}/README.md")).expect("a page names the samples");
    for name in names {
        assert!(page.contains(&format!("]({name})")), "config/README.md does not name {name}");
    }
}
