//! Shows that a cycle allocates only what it hands out, however many endpoints there are. A binary of its own, since it
//! counts by means of the global allocator.

#[path = "../benches/wall/stand.rs"]
mod stand;

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use arc_swap::ArcSwap;
use epp::flow::control::Control;
use futures_util::FutureExt;

use stand::board::{Shared, board, request};
use stand::{SIX_SCORERS, Stand};

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

/// Requests wait behind a pool that has no room for any.
const FULL: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: static-usage-limit-policy, parameters: {threshold: 0.000001}}
- type: concurrency-detector
- type: random-picker
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {maxRequests: 100k}
";
/// Bytes.
const MOST_OF_ONE_THAT_WAITS: usize = 1024;

#[test]
fn a_request_that_waits_takes_a_kilobyte_at_most_beside_itself() {
    const N: usize = 10_000;
    let shared = Shared::default();
    let generation = shared.generation(FULL, None);
    let snapshots = Arc::new(ArcSwap::from_pointee(board(4, &["decode"])));
    let control = Control::new(generation.flow.clone(), "pool", Duration::ZERO, snapshots, &shared.hub);
    let requests: Vec<_> = (0..100)
        .map(|i| {
            let mut request = request(&generation, "hello");
            request.fairness_id = format!("tenant {i}");
            request
        })
        .collect();
    let first = control.enter(&requests[0], None).now_or_never().expect("an idle pool");
    let _fills_it = first.expect("an idle pool has room");
    let mut waiting = Vec::with_capacity(N);
    let info = measure(|| {
        for i in 0..N {
            let mut waits = Box::pin(control.enter(&requests[i % requests.len()], None));
            assert!(waits.as_mut().now_or_never().is_none(), "the pool is full");
            waiting.push(waits);
        }
    });
    let each = usize::try_from(info.bytes_current).expect("memory was taken") / N;
    assert!(each <= MOST_OF_ONE_THAT_WAITS, "{each} bytes");
    let left = measure(|| waiting.clear());
    assert!(-left.bytes_current >= info.bytes_current / 2, "{left:?}");
}
