//! How long rooms 4 to 6 take on one request: two filters, six scorers and a picker over a thousand endpoints, and
//! beside them a hundred and ten.

mod stand;

use criterion::{Criterion, criterion_group, criterion_main};
use tikv_jemallocator::Jemalloc;

use stand::Stand;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn cycle(c: &mut Criterion) {
    for endpoints in [10, 100, 1000] {
        let stand = Stand::new(endpoints);
        c.bench_function(&format!("cycle/six_scorers_of_{endpoints}"), |b| b.iter(|| stand.run()));
    }
}

criterion_group!(benches, cycle);
criterion_main!(benches);
