//! Feeds any bytes to the reader of metrics text: it must not fail, and must give only numbers that make sense.
#![no_main]

use epp::board::reading::{CompiledMapping, read_page};
use epp_plugin_api::{EngineMapping, Observed, Selector};
use libfuzzer_sys::fuzz_target;
use tokio::time::Instant;

fn selector(family: &str, labels: &[(&str, &str)]) -> Option<Selector> {
    let labels = labels.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
    Some(Selector { family: family.to_owned(), labels })
}

fuzz_target!(|page: &[u8]| {
    // Short names, so that random bytes hit them.
    let mapping = EngineMapping {
        queued: selector("q", &[]),
        running: selector("r", &[("a", "b")]),
        kv_usage: selector("u", &[]),
        lora: selector("l", &[]),
        cache_info: selector("i", &[]),
        cache_block_size_label: "b".to_owned(),
        cache_num_blocks_label: "n".to_owned(),
        ..EngineMapping::default()
    };
    let compiled = CompiledMapping::new(&mapping);
    let o = read_page(page, &compiled, &Observed::default(), Instant::now()).observed;
    assert!(o.waiting.is_none_or(|v| v >= 0.0 && v.is_finite()));
    assert!(o.running.is_none_or(|v| v >= 0.0 && v.is_finite()));
    assert!(o.kv_usage.is_none_or(|v| (0.0..=1.0).contains(&v)));
});
