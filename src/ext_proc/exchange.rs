//! What a stream keeps of its request from the pick to the end; dropping it gives everything back.

use std::sync::Arc;

use epp_plugin_api::{Charge, Held, Served};
use tokio::time::Instant;

use crate::ext_proc::metrics::{RequestSeries, RunningGuard};
use crate::ext_proc::parser_table::ParserEntry;
use crate::flow::control::Slot;
use crate::sched::record::DecisionRecord;
use crate::sched::truth::Expected;

/// A request that was sent on.
pub struct Exchange {
    pub received: Instant,
    pub series: Arc<RequestSeries>,
    /// `None` for a request without a body, which no parser has seen.
    pub reader: Option<Reader>,
    /// The client asked for a stream.
    pub stream: bool,
    /// The client's name of the model and the engine's, where they differ.
    pub renamed: Option<Renamed>,
    /// The record of the decision as JSON, until the client has been told.
    pub explanation: Option<String>,
    /// What is held against the response, and where that is told.
    pub expected: Option<(Expected, Arc<DecisionRecord>)>,
    /// What is given back when the request ends.
    pub load: Option<InFlight>,
    pub _running: Option<RunningGuard>,
}

impl Exchange {
    /// Shows the response's headers to every plugin; collects what they add to them.
    pub fn response_headers(&mut self, served: &Served, set: &mut Vec<(String, String)>) {
        self.each(|held| held.response_headers(served, set));
    }

    /// Calls `told` for every plugin that still holds something.
    pub fn each(&mut self, told: impl FnMut(&mut Box<dyn Held>)) {
        self.load.iter_mut().flat_map(|load| &mut load.held).for_each(told);
    }
}

/// Who reads the response, and the path that was asked for.
pub struct Reader {
    pub parser: Arc<ParserEntry>,
    pub path: String,
}

/// A model that goes by another name on the way to the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub client: String,
    pub target: String,
}

/// A request's share of its endpoint's load.
pub struct InFlight {
    pub held: Vec<Box<dyn Held>>,
    pub _charge: Charge,
    /// Dropped last: it lets others go, who count what is given back before.
    pub slot: Slot,
}
