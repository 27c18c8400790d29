//! Room 3 without queues: everybody goes in, but a request of negative priority is shed while the pool is full.

use epp_plugin_api::{Candidates, InferenceRequest, Saturation, Snapshot};
use tokio::time::Instant;

use crate::flow::refusal::Refusal;

/// Lets a request in or turns it away.
///
/// # Errors
/// [`Refusal::Shed`] if the priority is below zero and `saturation` says that `among` is full. An empty set is full.
pub fn admit(
    saturation: &dyn Saturation,
    request: &InferenceRequest,
    snapshot: &Snapshot,
    among: &Candidates,
    now: Instant,
) -> Result<(), Refusal> {
    if request.priority < 0 && saturation.saturation(snapshot, among, now) >= 1.0 {
        return Err(Refusal::Shed);
    }
    Ok(())
}
