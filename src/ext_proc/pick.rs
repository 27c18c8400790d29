//! From the door to the pick: the wait in room 3, then rooms 4 to 6 on the newest snapshot.

use std::sync::Arc;

use epp_plugin_api::InferenceRequest;
use tokio::time::Instant;

use crate::ext_proc::context::Context;
use crate::ext_proc::waiting::wait;
use crate::flow::control::Slot;
use crate::flow::refusal::Refusal;
use crate::generation::Generation;
use crate::sched::cycle::Outcome;
use crate::sched::inputs::Inputs;
use crate::sched::record::DecisionRecord;
use crate::sched::subset::Subset;

/// How the client opened the stream.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    pub at: Instant,
    /// Until when the client waits for the whole stream, if it says so.
    pub deadline: Option<Instant>,
}

/// A request that has an endpoint.
pub struct Pick {
    pub outcome: Outcome,
    pub record: Arc<DecisionRecord>,
    pub slot: Slot,
}

/// Waits until the request may go, then chooses among the endpoints that there are.
///
/// # Errors
/// If nobody may or can serve it.
pub async fn pick(
    cx: &Context,
    generation: &Generation,
    request: &mut InferenceRequest,
    subset: Option<&Subset>,
    opened: &Opened,
) -> Result<Pick, Refusal> {
    generation.pipeline.read(request);
    let departure = wait(cx, generation, request, opened.deadline).await?;
    let now = Instant::now();
    // Streams side by side are picked for in any order, but were opened in one.
    let since = if departure.as_ref().is_some_and(|d| d.waited().is_some()) { now } else { opened.at };
    let inputs = Inputs {
        board: &|| cx.snapshots.load_full(),
        request,
        subset,
        ledger: &cx.ledger,
        now,
        with_scores: cx.options.emit_scores,
        generation: generation.number,
        decisions: &cx.decisions,
    };
    let (outcome, record) = generation.pipeline.run(inputs, &*cx.calls).await?;
    let slot = cx.flow.begin(request.priority, since);
    // From here on the request is seen where it went.
    drop(departure);
    Ok(Pick { outcome, record, slot })
}
