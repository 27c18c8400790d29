//! The pipeline of a config as it serves, on a clock and a board that the simulation sets.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::{
    Charge, EndpointId, EndpointName, Held, InferenceRequest, KvSubscription, Ledger, MetricHub, Parsed, Piece,
    PluginType, ResponseEnd, Served, Slots, Snapshot, Usage,
};

use super::clock::Clock;
use crate::config::{self, Environment, Mistake};
use crate::flow::refusal::Refusal;
use crate::flow::settings::Settings;
use crate::generation::Generation;
use crate::sched::decisions::Decisions;
use crate::sched::inputs::Inputs;
use crate::sched::metrics::SchedMetrics;

/// A generation and what it looks at.
pub(super) struct Picker {
    generation: Generation,
    pub clock: Clock,
    pub board: ArcSwap<Snapshot>,
    ledger: Ledger,
    decisions: Decisions,
    listeners: Vec<KvSubscription>,
}

/// What is sent to the picker.
pub(super) struct Asked {
    pub number: u32,
    pub session: Option<u32>,
    pub model: String,
    pub ids: Vec<u32>,
    /// How long it has waited already.
    pub waited: Duration,
}

/// A pick; what is held for it is given back when it is dropped.
pub(super) struct Pick {
    pub row: usize,
    /// Who computes the prompt for it.
    pub prefill: Option<usize>,
    pub ids: Vec<u32>,
    pub lasting: Lasting,
}

/// What lasts as long as a request.
#[derive(Default)]
pub(super) struct Lasting {
    held: Vec<Box<dyn Held>>,
    charge: Option<Charge>,
}

impl Picker {
    /// Builds the pipeline of a config.
    ///
    /// # Errors
    /// With every mistake of the config.
    pub fn new(text: &str, registry: &[&'static PluginType], staleness: Duration) -> Result<Self, Vec<Mistake>> {
        let (hub, slots) = (MetricHub::default(), Slots::default());
        let environment =
            Environment { registry, slots: &slots, metrics: &hub, staleness, allow_experimental: true, previous: None };
        let plan = config::load(text, &environment)?;
        let metrics = Arc::new(SchedMetrics::new(&hub));
        let listeners = plan.kv_subscriptions().map(|(_, subscription)| subscription).collect();
        Ok(Self {
            generation: Generation::new(1, plan, &metrics, &hub),
            clock: Clock::default(),
            board: ArcSwap::default(),
            ledger: Ledger::default(),
            decisions: Decisions::default(),
            listeners,
        })
    }

    /// Chooses an endpoint, or says why there is none. Waits for nothing but what plugins gather.
    pub async fn pick(&self, asked: Asked) -> Result<Pick, Refusal> {
        let mut request = self.request(&asked);
        self.generation.pipeline.read(&mut request);
        let inputs = Inputs {
            board: &|| self.board.load_full(),
            request: &request,
            subset: None,
            ledger: &self.ledger,
            now: request.received,
            with_scores: false,
            generation: self.generation.number,
            decisions: &self.decisions,
        };
        let (outcome, _) = self.generation.pipeline.run(inputs, &self.clock).await?;
        let lasting = Lasting { held: outcome.held, charge: Some(outcome.charge) };
        let (row, prefill) = (outcome.id.slot(), outcome.prefill.map(EndpointId::slot));
        Ok(Pick { row, prefill: prefill.filter(|prefill| *prefill != row), ids: asked.ids, lasting })
    }

    /// Whether some plugin wants to hear of caches.
    pub fn listens(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// An endpoint is there.
    pub fn came(&self, id: EndpointId, name: &EndpointName) {
        self.listeners.iter().for_each(|listener| listener.sink.begins(id, name));
    }

    /// An endpoint has left.
    pub fn left(&self, id: EndpointId) {
        self.generation.pipeline.forget(id);
    }

    /// An engine has said something of its cache.
    pub fn hear(&self, id: EndpointId, topic: &str, payload: &[u8]) {
        let listeners = self.listeners.iter().filter(|listener| topic.starts_with(&listener.topic));
        listeners.for_each(|listener| listener.sink.message(id, topic.as_bytes(), payload));
    }

    /// How requests wait; `None`: they do not.
    pub fn flow(&self) -> Option<Settings> {
        self.generation.flow.clone()
    }

    /// What of its config is not played.
    pub fn passed_over(&self) -> Vec<String> {
        let asks = self.generation.plan.plugins.iter().filter(|plugin| plugin.instance.remote.is_some());
        asks.map(|plugin| format!("{} asks a service, and there is none", plugin.name)).collect()
    }

    fn request(&self, asked: &Asked) -> InferenceRequest {
        let mut request = InferenceRequest {
            id: format!("r{}", asked.number),
            headers: Default::default(),
            path: "inference/v1/generate".into(),
            model: asked.model.clone(),
            target_model: asked.model.clone(),
            fairness_id: "default-flow".into(),
            priority: 0,
            body: Default::default(),
            parsed: Parsed {
                model: Some(asked.model.clone()),
                stream: true,
                pieces: vec![Piece::Ids { at: 0..asked.ids.len() }],
                ids: asked.ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
                ..Parsed::default()
            },
            received: self.clock.instant(self.clock.elapsed()),
            waited: asked.waited,
        };
        request.headers.set("x-request-id", request.id.clone());
        if let Some(session) = asked.session {
            request.headers.set("x-session-id", format!("s{session}"));
        }
        request
    }
}

impl Lasting {
    /// The first token has come.
    pub fn began(&mut self) {
        for held in &mut self.held {
            held.response_headers(&Served::NoMetadata, &mut Vec::new());
            held.response_began();
        }
    }

    /// The answer is complete.
    pub fn ended(mut self, usage: Usage, clock: &Clock) {
        let end = ResponseEnd { usage, streaming: true, now: clock.instant(clock.elapsed()) };
        for held in &mut self.held {
            held.response_ended(&end);
        }
        drop(self.charge);
    }
}
