//! How long rooms 4 to 6 take on one request, and how long a reload takes.
//!
//! - Two filters, six scorers and a picker over a thousand endpoints, and beside them a hundred and ten.
//! - The sample of prefill and decode over 256 endpoints, half of them of each role. Target: under 50 µs. A prompt that is
//!   new runs both profiles; one that the decode engine has cached runs one.
//! - A reload beside a board of a thousand endpoints, up to the end of its first cycle, in which plugins read every label.
//!   Target: under 100 ms. A config that has not changed keeps its plugins; without one in force all are built.

mod stand;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use epp_plugin_api::InferenceRequest;
use tikv_jemallocator::Jemalloc;

use stand::board::{Shared, request};
use stand::{SIX_SCORERS, Stand};

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PREFILL_DECODE: &str = include_str!("../../config/prefill-decode.yaml");

fn six_scorers(c: &mut Criterion) {
    for endpoints in [10, 100, 1000] {
        let stand = Stand::new(Shared::default().generation(SIX_SCORERS, None), endpoints, &["decode"]);
        c.bench_function(&format!("cycle/six_scorers_of_{endpoints}"), |b| b.iter(|| stand.run()));
    }
}

fn prefill_decode(c: &mut Criterion) {
    let generation = Shared::default().generation(PREFILL_DECODE, None);
    let stand = Stand::new(generation, 256, &["prefill", "decode"]);
    let mut seed = 0;
    // 1,000 tokens, of which the sample wants 512 to be new.
    let mut new_prompt = || {
        seed += 1;
        request(&stand.generation, &format!("{seed:08}").repeat(500))
    };
    let cached = new_prompt();
    let run = |request: &InferenceRequest| stand.run_with(&stand.generation, request);
    assert!(!run(&cached).headers.set.is_empty(), "expected a prefill engine for a new prompt");
    assert!(run(&cached).headers.set.is_empty(), "expected no prefill engine for a cached prompt");
    c.bench_function("cycle/prefill_decode_of_256, cached", |b| b.iter(|| run(&cached)));
    c.bench_function("cycle/prefill_decode_of_256, new", |b| {
        b.iter_batched_ref(&mut new_prompt, |request| run(request), BatchSize::SmallInput);
    });
}

fn reload(c: &mut Criterion) {
    let (shared, roles) = (Shared::default(), ["prefill", "decode"]);
    for (name, config) in [("six_scorers", SIX_SCORERS), ("prefill_decode", PREFILL_DECODE)] {
        let stand = Stand::new(shared.generation(config, None), 1000, &roles);
        let chat = request(&stand.generation, "Call me Ishmael.");
        for (which, in_force) in [("unchanged", Some(&stand.generation)), ("anew", None)] {
            c.bench_function(&format!("reload/{name}_of_1000, {which}"), |b| {
                b.iter(|| {
                    let generation = shared.generation(config, in_force);
                    drop(stand.run_with(&generation, &chat));
                    generation
                });
            });
        }
    }
}

criterion_group!(benches, six_scorers, prefill_decode, reload);
criterion_main!(benches);
