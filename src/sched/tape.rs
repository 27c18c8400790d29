//! What a cycle leaves for a recording: enough to make its choice again, and what its plugins looked at. Gathered on the
//! way, in memory that is kept from request to request, and handed on at the end; who writes it down is elsewhere.

use std::fmt;
use std::sync::Arc;

use epp_plugin_api::recorded::RecordedValue;
use epp_plugin_api::{Candidates, Columns, EndpointIdx, InferenceRequest, Snapshot};

use crate::sched::draft::Draft;
use crate::sched::record::DecisionRecord;
use crate::sched::scratch::LoadBuffers;

/// Takes cycles to be written down.
pub trait Tape: fmt::Debug + Send + Sync {
    /// Takes one, or drops it; never waits for a disk.
    fn take(&self, cycle: &Taped<'_>);
}

/// What holds for all cycles of one config.
#[derive(Debug)]
pub struct About {
    /// The config in force, with every default.
    pub config: String,
    /// What producers fill and recordings keep.
    pub values: Vec<RecordedValue>,
    /// The headers of requests that filters and scorers look at.
    pub headers: Vec<String>,
}

/// One cycle.
#[derive(Clone, Copy, Debug)]
pub struct Taped<'a> {
    pub record: &'a DecisionRecord,
    pub about: &'a Arc<About>,
    pub draft: &'a Draft,
    /// What its plugins looked at, beside the snapshot.
    pub seen: Seen<'a>,
}

/// What the plugins of a cycle looked at. All but the request means nothing if the cycle was refused before anyone was
/// scored.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub request: &'a InferenceRequest,
    /// Everybody who might have served it.
    pub candidates: &'a Candidates,
    pub columns: &'a Columns,
    /// The loads of stale rows are with what is in flight there.
    pub loads: &'a LoadBuffers,
}

impl Seen<'_> {
    /// How many requests were known to be in flight on a stale row, beside its load in the snapshot.
    pub fn in_flight(&self, snapshot: &Snapshot, idx: EndpointIdx) -> i64 {
        let running = self.loads.running.get(idx.row()).copied().unwrap_or_default();
        (running - snapshot.running()[idx.row()]).round() as i64
    }
}
