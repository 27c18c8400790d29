//! How long one page of a loaded engine takes to read: 53 KB, of which five families are wanted.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epp::board::reading::{CompiledMapping, read_page};
use epp_plugin_api::{EngineMapping, Observed, Selector};
use tokio::time::Instant;

const PAGE: &[u8] = include_bytes!("../../tests/data/vllm-0.32.0-loaded.prom");

fn mapping() -> CompiledMapping {
    let family = |name: &str| Some(Selector { family: format!("vllm:{name}"), labels: vec![] });
    CompiledMapping::new(&EngineMapping {
        queued: family("num_requests_waiting"),
        running: family("num_requests_running"),
        kv_usage: family("kv_cache_usage_perc"),
        kv_usage_fallback: family("gpu_cache_usage_perc"),
        lora: family("lora_requests_info"),
        cache_info: family("cache_config_info"),
        cache_block_size_label: "block_size".to_owned(),
        cache_num_blocks_label: "num_gpu_blocks".to_owned(),
        ..EngineMapping::default()
    })
}

fn read(c: &mut Criterion) {
    let (mapping, before, now) = (mapping(), Observed::default(), Instant::now());
    let mut group = c.benchmark_group("exposition");
    group.throughput(Throughput::Bytes(PAGE.len() as u64));
    group.bench_function("read a loaded page", |b| {
        b.iter(|| read_page(black_box(PAGE), &mapping, &before, now));
    });
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
