//! What a cycle is run on.

use std::sync::Arc;

use epp_plugin_api::{InferenceRequest, Ledger, Load, Snapshot};
use tokio::time::Instant;

use crate::sched::decisions::Decisions;
use crate::sched::subset::Subset;

/// One request with all that it is judged by.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The newest snapshot; taken once, and again after a wait.
    pub board: &'a (dyn Fn() -> Arc<Snapshot> + Send + Sync),
    pub request: &'a InferenceRequest,
    /// Hosts that Envoy allows; `None` allows all.
    pub subset: Option<&'a Subset>,
    /// Requests in flight on every endpoint; raised by the cycle.
    pub ledger: &'a Ledger,
    pub now: Instant,
    /// Whether the scores of all candidates are asked for.
    pub with_scores: bool,
    /// The number of the config in force.
    pub generation: u64,
    /// Where the record of the decision is kept.
    pub decisions: &'a Decisions,
}

/// The loads of a snapshot as they are.
pub(super) fn load_of(snapshot: &Snapshot) -> Load<'_> {
    Load { waiting: snapshot.waiting(), running: snapshot.running(), kv_usage: snapshot.kv_usage() }
}
