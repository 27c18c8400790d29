//! One request's way through rooms 4 to 6: candidates, producers, profiles, pick.

use std::sync::Arc;

use epp_plugin_api::{
    Charge, Cycle, EndpointId, EndpointMeta, HeaderEdits, Held, InferenceRequest, Ledger, Load, Next, Picked,
    ProfileRun, Snapshot,
};
use tokio::time::Instant;

use crate::flow::admission::admit;
use crate::flow::refusal::Refusal;
use crate::sched::laps::Laps;
use crate::sched::metrics::Stage;
use crate::sched::pipeline::Pipeline;
use crate::sched::profile::remember_scores;
use crate::sched::scratch::{LoadBuffers, Scratch, Work};
use crate::sched::subset::Subset;

/// What a cycle is run on.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub snapshot: &'a Snapshot,
    pub request: &'a InferenceRequest,
    /// Hosts that Envoy allows; `None` allows all.
    pub subset: Option<&'a Subset>,
    /// Requests in flight on every endpoint; raised by the cycle.
    pub ledger: &'a Ledger,
    pub now: Instant,
    /// Whether the scores of all candidates are asked for.
    pub with_scores: bool,
}

/// What the cycle came to.
pub struct Outcome {
    /// The chosen endpoints, best first, joined by commas: the value of the destination header.
    pub destination: String,
    /// The endpoint that the request goes to.
    pub id: EndpointId,
    pub target: Arc<EndpointMeta>,
    /// Everyone who got past the filters, with their totals; empty unless asked for.
    pub scores: Vec<(Arc<EndpointMeta>, f64)>,
    /// What the profile handler changes about the request's headers.
    pub headers: HeaderEdits,
    /// What producers hold until the stream ends.
    pub held: Vec<Box<dyn Held>>,
    /// The request's place in the ledger.
    pub charge: Charge,
}

impl Pipeline {
    /// Chooses endpoints for the request and counts it as in flight there.
    ///
    /// # Errors
    /// If nobody may or can serve it.
    pub fn run(&self, inputs: Inputs<'_>) -> Result<Outcome, Refusal> {
        self.scratches.with(|scratch| self.run_in(inputs, scratch))
    }

    fn run_in(&self, inputs: Inputs<'_>, scratch: &mut Scratch) -> Result<Outcome, Refusal> {
        let mut laps = Laps::start();
        let began = laps;
        let Scratch { loads, work } = scratch;
        let Inputs { snapshot, request, now, .. } = inputs;
        work.reset(snapshot.rows(), self.profiles.iter().map(|p| p.name.as_str()));
        if let Some(subset) = inputs.subset {
            subset.restrict(snapshot, &mut work.candidates);
        }
        admit(&*self.saturation, request, snapshot, &work.candidates, now)?;
        if work.candidates.is_empty() {
            return Err(Refusal::NoCandidates);
        }
        laps.lap();
        self.produce(&Cycle { snapshot, request, load: load_of(snapshot), now }, work, &mut laps);
        self.stages.observe(Stage::Produce, laps.since(began));

        let scheduling = laps;
        let judged = self.judge(inputs, loads, work, &mut laps);
        laps.lap();
        let took = laps.since(scheduling);
        self.stages.observe(Stage::Judge, took);
        self.metrics.scheduled(took);
        match &judged {
            Ok(outcome) => self.metrics.succeeded(&request.target_model, outcome.id, &outcome.target),
            Err(_) => self.metrics.failed(&request.target_model),
        }
        judged
    }

    fn produce(&self, cx: &Cycle<'_>, work: &mut Work, laps: &mut Laps) {
        for p in &self.producers {
            if let Err(why) = p.producer.produce(cx, &mut work.columns) {
                p.failures.inc();
                tracing::debug!(producer = p.name, why, "producer failed, its data reads as missing");
            }
            p.produce.observe(laps.lap());
        }
    }

    fn judge(
        &self,
        inputs: Inputs<'_>,
        loads: &mut LoadBuffers,
        work: &mut Work,
        laps: &mut Laps,
    ) -> Result<Outcome, Refusal> {
        let Inputs { snapshot, request, ledger, now, with_scores, .. } = inputs;
        let judging = self.judging.lock();
        let load = add_in_flight(snapshot, ledger, loads);
        let cx = Cycle { snapshot, request, load, now };
        for p in &self.producers {
            p.producer.refresh(&cx, &mut work.columns);
        }
        laps.lap();
        self.run_profiles(&cx, work, with_scores, laps)?;

        let decision = self.handler.decide(&cx, &work.columns, &work.runs);
        self.handler_decide.observe(laps.lap());
        let decision = decision.map_err(|why| {
            let exhausted = work.runs.runs.contains(&ProfileRun::Exhausted);
            if exhausted { Refusal::Exhausted } else { Refusal::NoDecision(why.0) }
        })?;
        let picked = Picked { runs: &work.runs, primary: decision.primary };
        let Some(target) = picked.target() else {
            return Err(Refusal::Exhausted);
        };
        let charge = ledger.charge(snapshot.id(target), 0);
        let mut held = Vec::new();
        for p in &self.producers {
            held.extend(p.producer.picked(&cx, &work.columns, &picked));
            p.picked.observe(laps.lap());
        }
        drop(judging);

        for p in &self.producers {
            p.producer.learn(&cx, &work.columns, &picked);
        }
        let targets = work.runs.runs[decision.primary].targets().unwrap_or_default();
        let mut destination = String::with_capacity(24 * targets.len());
        for idx in targets {
            if !destination.is_empty() {
                destination.push(',');
            }
            destination.push_str(&snapshot.meta(*idx).host_port);
        }
        let scored = &work.scored[decision.primary];
        Ok(Outcome {
            destination,
            id: snapshot.id(target),
            target: snapshot.meta(target).clone(),
            scores: scored.iter().map(|(idx, total)| (snapshot.meta(*idx).clone(), *total)).collect(),
            headers: decision.headers,
            held,
            charge,
        })
    }

    fn run_profiles(&self, cx: &Cycle<'_>, work: &mut Work, with_scores: bool, laps: &mut Laps) -> Result<(), Refusal> {
        // Every step runs or skips a profile, so a handler that asks for more steps than that is going in circles.
        for _ in 0..=self.profiles.len() * 2 {
            let next = self.handler.next(cx, &work.columns, &mut work.runs);
            self.handler_next.observe(laps.lap());
            match next {
                Next::Done => return Ok(()),
                Next::Run(at) => {
                    let Some(profile) = self.profiles.get(at) else { break };
                    work.runs.runs[at] = profile.run(cx, work, laps);
                    if with_scores {
                        remember_scores(work, at);
                    }
                }
            }
        }
        Err(Refusal::NoDecision("the profile handler does not come to an end".into()))
    }
}

fn load_of(snapshot: &Snapshot) -> Load<'_> {
    Load { waiting: snapshot.waiting(), running: snapshot.running(), kv_usage: snapshot.kv_usage() }
}

/// The snapshot's loads; an endpoint that is stale also counts what is known to be in flight there, so that it does not
/// draw every request while nothing new is heard of it.
fn add_in_flight<'a>(snapshot: &'a Snapshot, ledger: &Ledger, loads: &'a mut LoadBuffers) -> Load<'a> {
    if snapshot.stale().is_empty() {
        return load_of(snapshot);
    }
    loads.waiting.clear();
    loads.waiting.extend_from_slice(snapshot.waiting());
    loads.running.clear();
    loads.running.extend_from_slice(snapshot.running());
    for &idx in snapshot.stale() {
        let (requests, _) = ledger.of(snapshot.id(idx));
        loads.waiting[idx.row()] += requests as f64;
        loads.running[idx.row()] += requests as f64;
    }
    Load { waiting: &loads.waiting, running: &loads.running, kv_usage: snapshot.kv_usage() }
}
