//! Shows that a cycle allocates only what it hands out, however many endpoints there are. A binary of its own, since it
//! counts by means of the global allocator.

#[path = "../benches/wall/stand.rs"]
mod stand;

use allocation_counter::{AllocationInfo, measure};

use stand::{SIX_SCORERS, Shared, Stand};

/// The destination, the list of what is held, in it the in-flight load with its list of charges; and the record of the
/// decision with its lists, which tells of at most eight endpoints; and what the endpoint is believed to have cached.
const HANDED_OUT: u64 = 26;
/// More cycles than records are kept.
const WARM: usize = 300;

fn warm_cycle(endpoints: u32) -> AllocationInfo {
    let stand = Stand::new(Shared::default().generation(SIX_SCORERS, None), endpoints, &["decode"]);
    for _ in 0..WARM {
        stand.run();
    }
    measure(|| drop(stand.run()))
}

#[test]
fn a_warm_cycle_allocates_only_what_it_hands_out() {
    for endpoints in [10, 1000] {
        let info = warm_cycle(endpoints);
        assert_eq!(info.count_total, HANDED_OUT, "with {endpoints} endpoints: {info:?}");
    }
}

#[test]
fn a_warm_cycle_keeps_nothing() {
    let info = warm_cycle(1000);
    assert_eq!((info.count_current, info.bytes_current), (0, 0), "{info:?}");
}
