//! The sample configs in `config/` say what they seem to say.

use super::{Registry, comes_back, plan_with};

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
    insta::assert_snapshot!(name, plan.effective);
    comes_back(registry(), &text);
}

#[test]
fn demo() {
    golden("demo");
}

#[test]
fn load_balancing() {
    golden("load-balancing");
}

#[test]
fn prefix_affinity() {
    golden("prefix-affinity");
}

#[test]
fn rl_rollouts() {
    golden("rl-rollouts");
}

#[test]
fn rl_persistent() {
    golden("rl-persistent");
}

#[test]
fn rl_sglang() {
    golden("rl-sglang");
}

#[test]
fn every_sample_is_tested() {
    let directory = format!("{}/config", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(directory).expect("the samples are in the repository");
    let mut names: Vec<String> = files.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "demo.yaml",
            "load-balancing.yaml",
            "prefix-affinity.yaml",
            "rl-persistent.yaml",
            "rl-rollouts.yaml",
            "rl-sglang.yaml"
        ]
    );
}
