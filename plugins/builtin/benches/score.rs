//! What six scorers together take on one request over a thousand endpoints.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use epp_plugin_api::{
    BuildContext, Candidates, Columns, Cycle, EndpointId, EndpointMeta, EndpointName, InferenceRequest, Load,
    MetricHub, Observed, Parsed, Scorer, Slots, Snapshot, SnapshotRow,
};
use epp_plugins::attributes::{InFlight, PrefixMatch};
use epp_plugins::registry::find;
use tokio::time::Instant;

const ENDPOINTS: u32 = 1000;
const SCORERS: [&str; 6] = [
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "load-aware-scorer",
    "active-request-scorer",
    "prefix-cache-scorer",
];

fn board() -> Snapshot {
    let now = Instant::now();
    let rows = (0..ENDPOINTS).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let observed = Observed {
            waiting: Some(f64::from(i % 17)),
            running: Some(f64::from(i % 31)),
            kv_usage: Some(f64::from(i % 101) / 100.0),
            at: Some(now),
            ..Observed::default()
        };
        let meta = EndpointMeta::new(name, "10.0.0.1".into(), 8000, BTreeMap::new(), 0);
        SnapshotRow { id: EndpointId::new(i, 1), meta: Arc::new(meta), observed }
    });
    Snapshot::new(1, rows, now, Duration::from_secs(2))
}

fn request() -> InferenceRequest {
    epp_plugin_api::testing::request(b"", Parsed::default())
}

fn scorers(slots: &Slots, metrics: &MetricHub) -> Vec<Arc<dyn Scorer>> {
    let built = SCORERS.map(|name| {
        let mut cx = BuildContext::new(name, None, slots, metrics, Duration::from_secs(2));
        let kind = find(name).expect("every scorer of the list is in the registry");
        (kind.build)(&mut cx).ok().and_then(|instance| instance.scorer).expect("a scorer builds without parameters")
    });
    built.into()
}

fn columns(slots: &Slots) -> Columns {
    let mut columns = Columns::default();
    columns.reset(ENDPOINTS as usize);
    for (i, cell) in columns.write(slots.column::<InFlight>("inflight-load-producer")).iter_mut().enumerate() {
        cell.requests = (i % 7) as i64;
    }
    for (i, cell) in columns.write(slots.column::<PrefixMatch>("approx-prefix-cache-producer")).iter_mut().enumerate() {
        *cell = PrefixMatch {
            match_blocks: i as u32 % 100,
            total_blocks: 100,
            block_tokens: 64,
            cached_blocks: 0,
            host_blocks: None,
        };
    }
    columns
}

fn six_scorers(c: &mut Criterion) {
    let (slots, metrics) = (Slots::default(), MetricHub::default());
    let (board, request, scorers) = (board(), request(), scorers(&slots, &metrics));
    let columns = columns(&slots);
    let load = Load { waiting: board.waiting(), running: board.running(), kv_usage: board.kv_usage() };
    let cx = Cycle { snapshot: &board, request: &request, load, peer: None, now: request.received };
    let all = Candidates::all(ENDPOINTS as usize);
    let mut half = all.clone();
    half.retain(|idx| idx.0 % 2 == 0);
    let mut scores = vec![0.0; ENDPOINTS as usize];
    for (which, among) in [("all", &all), ("half", &half)] {
        c.bench_function(&format!("six_scorers/{which}_of_1000"), |b| {
            b.iter(|| {
                for scorer in &scorers {
                    scorer.score(black_box(&cx), &columns, among, black_box(&mut scores));
                }
            });
        });
    }
}

criterion_group!(benches, six_scorers);
criterion_main!(benches);
