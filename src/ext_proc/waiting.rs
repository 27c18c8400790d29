//! Between rooms 2 and 3: a request waits to be let in, and is counted if its client leaves meanwhile.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::InferenceRequest;
use tokio::time::Instant;

use crate::ext_proc::context::Context;
use crate::flow::control::Departure;
use crate::flow::refusal::Refusal;
use crate::generation::Generation;
use crate::sched::metrics::Stage;
use crate::sched::record::DecisionRecord;

/// Waits until the request may go. What is returned is to be dropped once the request is counted where it went.
///
/// # Errors
/// If it may not go; the refusal is on record.
pub async fn wait(
    cx: &Context,
    generation: &Generation,
    request: &mut InferenceRequest,
    deadline: Option<Instant>,
) -> Result<Option<Departure>, Refusal> {
    let began = Instant::now();
    let patience = deadline.map(|at| at.saturating_duration_since(began)).filter(|left| *left > Duration::ZERO);
    let mut client = Client { cx, request, is_there: true };
    let entered = cx.flow.enter(client.request, patience).await;
    client.is_there = false;
    drop(client);
    match entered {
        Ok(None) => Ok(None),
        Ok(Some(departure)) => {
            request.waited = departure.waited().unwrap_or_default();
            cx.stages.observe(Stage::Queue, began.elapsed());
            Ok(Some(departure))
        }
        Err(refusal) => {
            cx.stages.observe(Stage::Queue, began.elapsed());
            let mut record = DecisionRecord::new(request, generation.number, 0);
            record.refused(&refusal);
            cx.decisions.push(Arc::new(record));
            Err(refusal)
        }
    }
}

/// The client of a request that waits.
struct Client<'a> {
    cx: &'a Context,
    request: &'a InferenceRequest,
    is_there: bool,
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        if self.is_there {
            let InferenceRequest { model, target_model, fairness_id, .. } = self.request;
            self.cx.metrics.series(model, target_model, fairness_id, 0).error(Refusal::ClientLeft.code());
        }
    }
}
