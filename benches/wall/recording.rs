//! What a recording adds to a cycle: the lines of one decision among 8 and among 100 endpoints, with three scorers, as
//! requests come and go and engines are heard in between. Target: under 1 µs for 8.
//!
//! `cycle` is the cycle without a recording, `recorded` the same cycle with its lines put together. What the writer does
//! with them afterwards is not in it: `epp bench` measures the CPU of the whole process.

#[path = "board.rs"]
mod board;

use std::cell::RefCell;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use epp::generation::Generation;
use epp::recording::write::Lines;
use epp::sched::calls::NoCalls;
use epp::sched::decisions::Decisions;
use epp::sched::inputs::Inputs;
use epp::sched::tape::{Tape, Taped};
use epp_plugin_api::{Charge, Held, InferenceRequest, Ledger, Snapshot};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tikv_jemallocator::Jemalloc;

use board::{Shared, board as snapshot, request};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const THREE_SCORERS: &str = "
plugins:
- {type: active-request-scorer}
- {type: prefix-cache-scorer}
- {type: queue-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: active-request-scorer}, {pluginRef: prefix-cache-scorer, weight: 2}, {pluginRef: queue-scorer}]
";

/// So many requests are in flight.
const IN_FLIGHT: usize = 24;
/// Engines are heard anew after so many requests.
const HEARD_EVERY: usize = 50;

/// Puts lines together and forgets them.
#[derive(Debug, Default)]
struct Forgets(Mutex<Lines>);

impl Tape for Forgets {
    fn take(&self, cycle: &Taped<'_>) {
        let mut lines = self.0.lock();
        lines.push(cycle);
        if lines.text.len() > 1 << 20 {
            lines.text.clear();
        }
    }
}

/// What stays in flight of a request.
type InFlight = (Charge, Vec<Box<dyn Held>>);

struct Stand {
    generation: Generation,
    decisions: Decisions,
    ledger: Ledger,
    boards: Vec<Arc<Snapshot>>,
    requests: Vec<InferenceRequest>,
    n_runs: RefCell<usize>,
    in_flight: RefCell<Vec<InFlight>>,
}

impl Stand {
    fn new(endpoints: u32, decisions: Decisions) -> Self {
        let generation = Shared::default().generation(THREE_SCORERS, None);
        // Short prompts, of which some begin alike.
        let text = |i: usize| format!("{} {i}", ["one", "two", "three", "four"][i % 4].repeat(40));
        let requests = (0..64).map(|i| request(&generation, &text(i))).collect();
        let boards = (0..2).map(|_| snapshot(endpoints, &["decode"]).into()).collect();
        let (n_runs, in_flight) = (RefCell::new(0), RefCell::default());
        Self { generation, decisions, ledger: Ledger::default(), boards, requests, n_runs, in_flight }
    }

    fn run(&self) {
        let n = self.n_runs.replace_with(|n| *n + 1);
        let request = &self.requests[n % self.requests.len()];
        let board = &self.boards[n / HEARD_EVERY % self.boards.len()];
        let inputs = Inputs {
            board: &|| board.clone(),
            request,
            subset: None,
            ledger: &self.ledger,
            now: request.received,
            with_scores: false,
            generation: 1,
            decisions: &self.decisions,
        };
        let Some(Ok((outcome, _))) = self.generation.pipeline.run(inputs, &NoCalls).now_or_never() else {
            panic!("expected a pick at once");
        };
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.push((outcome.charge, outcome.held));
        if in_flight.len() > IN_FLIGHT {
            in_flight.swap_remove(n % IN_FLIGHT);
        }
    }
}

fn recording(c: &mut Criterion) {
    for endpoints in [8, 100] {
        let plain = Stand::new(endpoints, Decisions::default());
        let taped = Stand::new(endpoints, Decisions::taped(Arc::new(Forgets::default())));
        c.bench_function(&format!("recording/cycle_of_{endpoints}"), |b| b.iter(|| plain.run()));
        c.bench_function(&format!("recording/recorded_of_{endpoints}"), |b| b.iter(|| taped.run()));
    }
}

criterion_group!(benches, recording);
criterion_main!(benches);
