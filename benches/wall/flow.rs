//! How long room 3 takes.
//!
//! - A request that finds room: from coming to being let go, and with its end. Target: under 5 µs.
//! - A pool of 256 endpoints that is full, with 10,000 requests of 100 flows that wait: one ends, the next is chosen and
//!   woken, and another comes. Target: under 20 µs.

mod board;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use criterion::{Criterion, criterion_group, criterion_main};
use epp::flow::control::{Control, Departure, Slot};
use epp::flow::refusal::Refusal;
use epp_plugin_api::{Charge, InferenceRequest, Ledger, Snapshot};
use futures_util::FutureExt;
use tikv_jemallocator::Jemalloc;
use tokio::time::Instant;

use board::{Shared, board, request};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const ENDPOINTS: u32 = 256;
const WAIT: usize = 10_000;
const FLOWS: usize = 100;

fn config(fairness: &str, detector: &str) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins:\n\
         - {{type: {fairness}}}\n- {{type: concurrency-detector, parameters: {{maxConcurrency: 1}}}}\n\
         - {{type: random-picker}}\nschedulingProfiles: [{{name: default, plugins: [{{pluginRef: random-picker}}]}}]\n\
         flowControl:\n  maxRequests: 1000000\n  saturationDetector: {{pluginRef: {detector}}}\n\
         \x20 defaultPriorityBand: {{maxRequests: 1000000, fairnessPolicyRef: {fairness}}}\n"
    )
}

type Waits = Pin<Box<dyn Future<Output = Result<Option<Departure>, Refusal>>>>;

/// A control before a board, and what is counted in flight there.
struct Queue {
    control: Arc<Control>,
    snapshot: Arc<Snapshot>,
    ledger: Arc<Ledger>,
    /// One of each flow.
    requests: Vec<&'static InferenceRequest>,
    came: usize,
    began: Instant,
}

impl Queue {
    fn new(fairness: &str, detector: &str) -> Self {
        let shared = Shared::default();
        let generation = shared.generation(&config(fairness, detector), None);
        let snapshot = Arc::new(board(ENDPOINTS, &["decode"]));
        let snapshots = Arc::new(ArcSwap::new(snapshot.clone()));
        let lag = Duration::from_millis(10);
        let control = Control::new(generation.flow.clone(), "pool", lag, snapshots, &shared.hub);
        let of_flow = |i| {
            let mut request = request(&generation, "Call me Ishmael.");
            request.fairness_id = format!("flow-{i:03}");
            &*Box::leak(Box::new(request))
        };
        let requests = (0..FLOWS).map(of_flow).collect();
        Self {
            control,
            snapshot,
            ledger: shared.slots.ledger("inflight-load-producer"),
            requests,
            came: 0,
            began: Instant::now(),
        }
    }

    /// The next request comes; `Ok` if it goes at once.
    fn come(&mut self) -> Result<Departure, Waits> {
        let request = self.requests[self.came % FLOWS];
        self.came += 1;
        let control = self.control.clone();
        let mut waits: Waits = Box::pin(async move { control.enter(request, None).await });
        match waits.as_mut().now_or_never() {
            Some(Ok(Some(departure))) => Ok(departure),
            Some(other) => panic!("expected to wait or to go, found {other:?}"),
            None => Err(waits),
        }
    }

    /// The request is counted on an endpoint.
    fn run(&self, departure: Departure, endpoint: usize) -> (Charge, Slot) {
        let charge = self.ledger.charge(self.snapshot.ids()[endpoint % ENDPOINTS as usize], 0);
        let slot = self.control.begin(0, self.began);
        drop(departure);
        (charge, slot)
    }
}

fn uncontended(c: &mut Criterion) {
    for detector in ["utilization-detector", "concurrency-detector"] {
        let mut queue = Queue::new("global-strict-fairness-policy", detector);
        c.bench_function(&format!("flow/uncontended, {detector} of {ENDPOINTS}"), |b| {
            b.iter(|| {
                let departure = queue.come().unwrap_or_else(|_| panic!("the pool has room"));
                queue.run(departure, 0)
            });
        });
    }
}

fn backlog(c: &mut Criterion) {
    for fairness in ["global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness"] {
        let mut queue = Queue::new(fairness, "concurrency-detector");
        let mut running: VecDeque<_> = VecDeque::new();
        let mut waiting: VecDeque<Waits> = VecDeque::new();
        while waiting.len() < WAIT {
            match queue.come() {
                Ok(departure) => running.push_back(queue.run(departure, running.len())),
                Err(waits) => waiting.push_back(waits),
            }
        }
        assert_eq!(running.len(), ENDPOINTS as usize);
        let mut ended = 0;
        c.bench_function(&format!("flow/one of {WAIT} of {FLOWS} flows, {fairness}"), |b| {
            b.iter(|| {
                drop(running.pop_front());
                // Flows came in turns, so whoever has waited longest is the next by every policy, or soon after it.
                let gone = (0..waiting.len()).find_map(|at| Some((at, waiting[at].as_mut().now_or_never()?)));
                let Some((at, Ok(Some(departure)))) = gone else { panic!("expected one to go") };
                waiting.remove(at);
                running.push_back(queue.run(departure, ended));
                ended += 1;
                waiting.push_back(queue.come().expect_err("the pool is full"));
            });
        });
    }
}

criterion_group!(benches, uncontended, backlog);
criterion_main!(benches);
