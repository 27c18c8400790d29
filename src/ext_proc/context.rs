//! What every stream shares.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use epp_plugin_api::{Ledger, Snapshot};

use crate::ext_proc::bodies::{Bodies, BodyLimits};
use crate::ext_proc::metrics::{RequestMetrics, StreamMetrics};
use crate::flow::control::Control;
use crate::generation::Generations;
use crate::sched::calls::Calls;
use crate::sched::decisions::Decisions;
use crate::sched::metrics::StageMetrics;

/// The parts of the picker that a stream uses.
pub struct Context {
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    pub ledger: Arc<Ledger>,
    pub generations: Generations,
    /// Where requests wait to be let in.
    pub flow: Arc<Control>,
    pub calls: Arc<dyn Calls>,
    pub metrics: RequestMetrics,
    pub stages: Arc<StageMetrics>,
    /// `None` unless asked for.
    pub streams: Option<Arc<StreamMetrics>>,
    pub options: Options,
    pub bodies: Arc<Bodies>,
    pub decisions: Arc<Decisions>,
    /// Whether the warning about picks from headers alone has been given.
    pub warned_of_headers_only: AtomicBool,
}

/// What the command line says about streams.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the subset hint of Envoy is followed.
    pub subset_hint: bool,
    /// Whether the scores of all candidates are told in the dynamic metadata.
    pub emit_scores: bool,
    /// Whether a client that asks is told why its request went where it went.
    pub explain: bool,
    pub bodies: BodyLimits,
}
