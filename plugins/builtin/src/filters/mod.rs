//! Filters: one file a question. Each takes endpoints out that do not qualify.

pub mod by_label;
mod by_membership;
pub mod endpoint_attribute;
pub mod header_testing;
pub mod label_selector;
pub mod prefix_affinity;
pub mod role;
pub mod session_affinity;
pub mod slo_headroom_tier;
pub mod topology_affinity;
pub mod utilization;

use epp_plugin_api::{Candidates, EndpointIdx};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

/// Keeps who qualifies; keeps all if nobody does and `falls_back` is set.
fn retain_or_all(keep: &mut Candidates, falls_back: bool, mut qualifies: impl FnMut(EndpointIdx) -> bool) {
    if falls_back && !keep.iter().any(&mut qualifies) {
        return;
    }
    keep.retain(qualifies);
}

/// Says now and then that a filter should not do what it usually does. Its draws follow from the instance's name.
struct Chance {
    probability: f64,
    rng: Mutex<fastrand::Rng>,
}

impl Chance {
    fn new(probability: f64, instance: &str) -> Self {
        Self { probability, rng: Mutex::new(fastrand::Rng::with_seed(xxh3_64(instance.as_bytes()))) }
    }

    fn comes_up(&self) -> bool {
        self.probability > 0.0 && self.rng.lock().f64() < self.probability
    }
}
