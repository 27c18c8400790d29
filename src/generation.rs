//! One immutable set of profiles and plugin instances, and the holder that swaps it.

mod waiting;

use std::sync::Arc;

use arc_swap::ArcSwap;
use epp_plugin_api::MetricHub;

use crate::config::plan::Plan;
use crate::ext_proc::parser_table::ParserTable;
use crate::flow::settings::Settings;
use crate::sched::metrics::SchedMetrics;
use crate::sched::pipeline::Pipeline;

/// What requests are served with. Never changes; a reload puts another one in its place.
pub struct Generation {
    /// Counts from 1.
    pub number: u64,
    pub plan: Plan,
    pub pipeline: Pipeline,
    pub parsers: ParserTable,
    /// How requests wait; `None`: they do not.
    pub flow: Option<Settings>,
}

impl Generation {
    /// Builds the generation of a checked plan.
    pub fn new(number: u64, plan: Plan, metrics: &Arc<SchedMetrics>, hub: &MetricHub) -> Self {
        let pipeline = Pipeline::new(&plan, metrics.clone(), hub);
        let parsers = ParserTable::new(&plan, metrics);
        let flow = waiting::settings(&plan);
        Self { number, plan, pipeline, parsers, flow }
    }
}

/// The generation that new requests get. A request keeps the one that it began with.
pub type Generations = Arc<ArcSwap<Generation>>;
