//! A pipeline with a board of endpoints and a chat of 200 tokens.

#[path = "board.rs"]
pub mod board;

use std::sync::Arc;

use epp::generation::Generation;
use epp::sched::calls::NoCalls;
use epp::sched::cycle::Outcome;
use epp::sched::decisions::Decisions;
use epp::sched::inputs::Inputs;
use epp_plugin_api::{InferenceRequest, Ledger, Snapshot};
use futures_util::FutureExt;

use board::{board, request};

/// Two filters, six scorers and a picker.
pub const SIX_SCORERS: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: label-selector-filter
  parameters: {matchLabels: {tier: gold}}
- type: queue-scorer
- type: running-requests-size-scorer
- type: kv-cache-utilization-scorer
- type: load-aware-scorer
- type: active-request-scorer
- type: prefix-cache-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: decode-filter
  - pluginRef: label-selector-filter
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: running-requests-size-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: load-aware-scorer, weight: 1}
  - {pluginRef: active-request-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - pluginRef: max-score-picker
";

/// All that a cycle needs.
pub struct Stand {
    pub generation: Generation,
    snapshot: Arc<Snapshot>,
    request: InferenceRequest,
    ledger: Ledger,
    decisions: Decisions,
}

impl Stand {
    /// Makes a stand of this generation with so many endpoints, which have the roles in turns.
    pub fn new(generation: Generation, endpoints: u32, roles: &[&str]) -> Self {
        let (other, request) = (request(&generation, &"hi".repeat(160)), request(&generation, &"hello".repeat(160)));
        let mut stand = Self {
            generation,
            snapshot: board(endpoints, roles).into(),
            request: other,
            ledger: Ledger::default(),
            decisions: Decisions::default(),
        };
        // A prefix index gives back the memory of an endpoint's last chat, so there is another one.
        drop(stand.run());
        stand.request = request;
        stand
    }

    /// Runs one cycle.
    pub fn run(&self) -> Outcome {
        self.run_with(&self.generation, &self.request)
    }

    /// Runs one cycle of another generation or of another request.
    pub fn run_with(&self, generation: &Generation, request: &InferenceRequest) -> Outcome {
        let inputs = Inputs {
            board: &|| self.snapshot.clone(),
            request,
            subset: None,
            ledger: &self.ledger,
            now: request.received,
            with_scores: false,
            generation: generation.number,
            decisions: &self.decisions,
        };
        match generation.pipeline.run(inputs, &NoCalls).now_or_never() {
            Some(Ok((outcome, _))) => outcome,
            Some(Err(refusal)) => panic!("expected a pick, found {refusal:?}"),
            None => panic!("nothing is asked of others here"),
        }
    }
}
