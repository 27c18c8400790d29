//! Any text is either a config, whose written-out form is one, too, or refused with at least one mistake.
#![no_main]

use std::time::Duration;

use epp::config::{Environment, load};
use epp_plugin_api::{MetricHub, Slots};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (slots, metrics) = (Slots::default(), MetricHub::default());
    let env = Environment {
        registry: epp_plugins::registry::REGISTRY,
        slots: &slots,
        metrics: &metrics,
        staleness: Duration::from_secs(5),
        allow_experimental: true,
        previous: None,
    };
    match load(text, &env) {
        Ok(plan) => {
            let again = load(&plan.effective, &env).expect("a written-out config is a config");
            assert_eq!(plan.plugins.len(), again.plugins.len());
        }
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
});
