//! What one call of every plugin that sees endpoints takes, over a thousand of them.
//!
//! Walks the registry, so a new plugin is measured without a line here, unless it needs parameters. What a producer asks
//! of a service is not measured.
//!
//! A call takes less than 10 µs. The one that takes longest is `mm-embeddings-cache-producer`, 9.9 µs: every endpoint has
//! the request's image, and each counts a hit. `lora-affinity-scorer` takes 4.6 µs.

mod stand;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use epp_plugin_api::{EndpointIdx, Instance, Kind, PluginType};
use epp_plugins::registry::REGISTRY;
use serde_json::{Value, json};

use stand::{ENDPOINTS, Stand};

/// What sees endpoints. The others are called once a request, or not at all while one is served.
const KINDS: [Kind; 7] =
    [Kind::Filter, Kind::Scorer, Kind::Picker, Kind::Decider, Kind::Admitter, Kind::Screener, Kind::Producer];

/// The parameters of those that need some, or do little without.
fn parameters(plugin: &str) -> Value {
    match plugin {
        "by-label" => json!({"label": "tier", "validValues": ["gold", "silver"]}),
        "by-label-selector" | "label-selector-filter" => {
            json!({"matchLabels": {"tier": "gold"}, "matchExpressions": [{"key": "drained", "operator": "DoesNotExist"}]})
        }
        "context-length-aware" => json!({"enableFiltering": true}),
        "disaggregatedset-rollout-screener" => json!({
            "scope": {"labelSelector": "app=x"},
            "revisionGating": {"mode": "max-role", "requireRoles": {"values": ["prefill", "decode"]}},
        }),
        "endpoint-attribute-filter" => json!({
            "attribute": "temperature",
            "algorithm": {"type": "threshold", "threshold": {"operator": "LessThan", "value": 80}},
        }),
        "endpoint-attribute-scorer" => {
            json!({"attributeKey": "temperature", "algorithm": {"type": "linear_lower_is_better"}})
        }
        "header-label-affinity-scorer" => json!({"headerName": "x-slice", "labelKey": "slice"}),
        "prefix-based-pd-decider" => json!({"nonCachedTokens": 512}),
        "session-id-producer" => json!({"headerName": "x-session-id"}),
        "topology-affinity-filter" => json!({"minAffinity": "zone"}),
        "utilization-filter" => json!({"conditions": [
            {"metric": "waiting-queue", "maxValue": 10},
            {"metric": "kv-cache-utilization", "maxValue": 0.9},
        ]}),
        _ => Value::Null,
    }
}

/// Every plugin that plays this role.
fn playing<T>(stand: &Stand, role: impl Fn(Instance) -> Option<T>) -> Vec<(&'static str, T)> {
    let sees_endpoints = |kind: &&PluginType| kind.kinds.iter().any(|kind| KINDS.contains(kind));
    let kinds = REGISTRY.iter().copied().filter(sees_endpoints);
    kinds.filter_map(|kind| Some((kind.name, role(stand.rig.build(kind, parameters(kind.name)))?))).collect()
}

fn filters(c: &mut Criterion) {
    let stand = Stand::new();
    let (cx, mut keep, mut group) = (stand.cycle(), stand.all.clone(), c.benchmark_group("filter"));
    for (name, filter) in playing(&stand, |instance| instance.filter) {
        group.bench_function(name, |b| {
            b.iter(|| {
                keep.copy_from(&stand.all);
                filter.filter(black_box(&cx), &stand.columns, black_box(&mut keep));
            });
        });
    }
}

fn scorers(c: &mut Criterion) {
    let stand = Stand::new();
    let (cx, mut scores, mut group) = (stand.cycle(), vec![0.0; ENDPOINTS as usize], c.benchmark_group("scorer"));
    for (name, scorer) in playing(&stand, |instance| instance.scorer) {
        group.bench_function(name, |b| {
            b.iter(|| {
                scores.fill(0.0);
                scorer.score(black_box(&cx), &stand.columns, &stand.all, black_box(&mut scores));
            });
        });
    }
}

fn pickers(c: &mut Criterion) {
    let stand = Stand::new();
    let totals: Vec<f64> = (0..ENDPOINTS).map(|i| f64::from(i * 7 % ENDPOINTS)).collect();
    let (mut rng, mut picked) = (fastrand::Rng::with_seed(7), Vec::<EndpointIdx>::new());
    let mut group = c.benchmark_group("picker");
    for (name, picker) in playing(&stand, |instance| instance.picker) {
        group.bench_function(name, |b| {
            b.iter(|| {
                picked.clear();
                picker.pick(&stand.all, black_box(&totals), &mut rng, black_box(&mut picked));
            });
        });
    }
}

fn deciders(c: &mut Criterion) {
    let stand = Stand::new();
    let (cx, chosen, mut group) = (stand.cycle(), Some(EndpointIdx(7)), c.benchmark_group("decider"));
    for (name, decider) in playing(&stand, |instance| instance.decider) {
        group.bench_function(name, |b| b.iter(|| decider.wanted(black_box(&cx), &stand.columns, chosen)));
    }
}

fn admitters(c: &mut Criterion) {
    let stand = Stand::new();
    let (cx, mut rng, mut group) = (stand.cycle(), fastrand::Rng::with_seed(7), c.benchmark_group("admitter"));
    for (name, admitter) in playing(&stand, |instance| instance.admitter) {
        group.bench_function(name, |b| {
            b.iter(|| admitter.admit(black_box(&cx), &stand.columns, &stand.all, &mut rng));
        });
    }
}

fn screeners(c: &mut Criterion) {
    let stand = Stand::new();
    let (cx, mut keep, mut group) = (stand.cycle(), stand.all.clone(), c.benchmark_group("screener"));
    for (name, screener) in playing(&stand, |instance| instance.screener) {
        group.bench_function(name, |b| {
            b.iter(|| {
                keep.copy_from(&stand.all);
                screener.screen(black_box(&cx), black_box(&mut keep));
            });
        });
    }
}

/// Every endpoint has served the request before, and has one in flight.
fn producers(c: &mut Criterion) {
    let (mut stand, mut group) = (Stand::new(), c.benchmark_group("producer"));
    for (name, producer) in playing(&stand, |instance| instance.producer) {
        let held = stand.teach(&*producer);
        let mut columns = std::mem::take(&mut stand.columns);
        let cx = stand.cycle();
        group.bench_function(name, |b| b.iter(|| producer.produce(black_box(&cx), black_box(&mut columns))));
        stand.columns = columns;
        drop(held);
    }
}

criterion_group!(benches, filters, scorers, pickers, deciders, admitters, screeners, producers);
criterion_main!(benches);
