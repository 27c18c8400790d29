//! One request's way through rooms 4 to 6: candidates, screeners, producers, admitters, profiles, pick.

use std::sync::Arc;

use epp_plugin_api::{
    Answers, Charge, Columns, Cycle, Denial, EndpointId, EndpointIdx, EndpointMeta, HeaderEdits, Held,
    InferenceRequest, Ledger, Load, Next, Picked, ProfileRun, Snapshot, host_port,
};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::flow::admission::admit;
use crate::flow::refusal::Refusal;
use crate::sched::calls::Calls;
use crate::sched::gather::{Company, Produced, View};
use crate::sched::inputs::{Inputs, load_of};
use crate::sched::laps::Laps;
use crate::sched::metrics::Stage;
use crate::sched::pipeline::Pipeline;
use crate::sched::profile::remember_scores;
use crate::sched::record::DecisionRecord;
use crate::sched::scratch::{LoadBuffers, Scratch, Work};
use crate::sched::tape::{Seen, Taped};
use crate::sched::truth::Expected;

/// What the cycle came to.
pub struct Outcome {
    /// The chosen endpoints, best first, joined by commas: the value of the destination header.
    pub destination: String,
    /// The endpoint that the request goes to.
    pub id: EndpointId,
    pub target: Arc<EndpointMeta>,
    /// Who computes the prompt, if the pick names one for that.
    pub prefill: Option<EndpointId>,
    /// Everyone who got past the filters, with their totals; empty unless asked for.
    pub scores: Vec<(Arc<EndpointMeta>, f64)>,
    /// What the profile handler changes about the request's headers.
    pub headers: HeaderEdits,
    /// What producers hold until the stream ends.
    pub held: Vec<Box<dyn Held>>,
    /// The request's place in the ledger.
    pub charge: Charge,
    /// What producers believe that the endpoint has cached.
    pub expected: Expected,
}

impl Pipeline {
    /// Lets every plugin that asks to see the request first set what follows from its headers.
    pub fn read(&self, request: &mut InferenceRequest) {
        if self.read_hooks.is_empty() {
            return;
        }
        let mut laps = Laps::start();
        for (hooks, timer) in &self.read_hooks {
            hooks.read(request);
            timer.observe(laps.lap());
        }
    }

    /// Chooses endpoints for the request and counts it as in flight there. Waits for nothing but the services that
    /// plugins ask, through `calls`, and for what plugins gather.
    ///
    /// # Errors
    /// If nobody may or can serve it.
    pub async fn run(&self, inputs: Inputs<'_>, calls: &dyn Calls) -> Result<(Outcome, Arc<DecisionRecord>), Refusal> {
        let mut lease = self.scratches.lease();
        let seed = lease.work.rng.u64(..);
        // Random choices follow from the seed, so that they can be made again.
        let mut rng = std::mem::replace(&mut lease.work.rng, fastrand::Rng::with_seed(seed));
        let mut record = DecisionRecord::new(inputs.request, inputs.generation, seed);
        if inputs.decisions.tape().is_some() {
            lease.work.draft.get_or_insert_default().clear();
        }
        let result = self.run_on(inputs, calls, &mut lease, &mut record).await;
        std::mem::swap(&mut lease.work.rng, &mut rng);
        if let Err(refusal) = &result {
            record.refused(refusal);
        }
        let record = Arc::new(record);
        if let Some(tape) = inputs.decisions.tape() {
            let Scratch { loads, work: Work { columns, candidates, draft, .. } } = &mut *lease;
            let (draft, seen) =
                (draft.get_or_insert_default(), Seen { request: inputs.request, candidates, columns, loads });
            tape.take(&Taped { record: &record, about: &self.about, draft, seen });
            draft.clear();
        }
        inputs.decisions.push(record.clone());
        result.map(|outcome| (outcome, record))
    }

    async fn run_on(
        &self,
        inputs: Inputs<'_>,
        calls: &dyn Calls,
        scratch: &mut Scratch,
        record: &mut DecisionRecord,
    ) -> Result<Outcome, Refusal> {
        let mut laps = Laps::start();
        let began = laps;
        let Scratch { loads, work } = scratch;
        let mut view = View { snapshot: (inputs.board)(), now: inputs.now };
        let mut company = Company::default();
        loop {
            self.screen(&inputs, &view, work, record, &mut laps)?;
            match self.produce(&inputs, &mut view, work, calls, &mut company, &mut laps).await {
                Produced::All => break,
                // Who has waited so long that the endpoints have changed begins again, but waits no more.
                Produced::OutOfDate => {}
            }
        }
        self.stages.observe(Stage::Produce, laps.since(began).saturating_sub(company.waited));
        if !company.is_empty() {
            self.stages.observe(Stage::Gather, company.waited);
            record.gathered_seconds = Some(company.waited.as_secs_f64());
        }
        self.admit(&view.cycle(inputs.request), work, &mut laps)?;

        let scheduling = laps;
        let judged = self.judge(inputs, &view, loads, company, work, record, &mut laps);
        laps.lap();
        let took = laps.since(scheduling);
        self.stages.observe(Stage::Judge, took);
        self.metrics.scheduled(took);
        if let Some(draft) = &mut work.draft {
            draft.judged(view.snapshot);
        }
        match &judged {
            Ok(outcome) => self.metrics.succeeded(&inputs.request.target_model, outcome.id, &outcome.target),
            Err(_) => self.metrics.failed(&inputs.request.target_model),
        }
        judged
    }

    /// Begins with every endpoint that the client allows. Each screener sees all of them; who is left passes all of the
    /// screeners.
    fn screen(
        &self,
        inputs: &Inputs<'_>,
        view: &View,
        work: &mut Work,
        record: &mut DecisionRecord,
        laps: &mut Laps,
    ) -> Result<(), Refusal> {
        let View { snapshot, now } = view;
        work.reset(snapshot.rows(), self.profiles.iter().map(|p| p.name.as_str()));
        if let Some(subset) = inputs.subset {
            subset.restrict(snapshot, &mut work.candidates);
        }
        if let Some(saturation) = &self.saturation {
            admit(&**saturation, inputs.request, snapshot, &work.candidates, *now)?;
        }
        (record.endpoints, record.candidates) = (snapshot.rows(), work.candidates.count());
        if work.candidates.is_empty() {
            return Err(Refusal::NoCandidates);
        }
        laps.lap();
        if self.screeners.is_empty() {
            return Ok(());
        }
        work.screened.copy_from(&work.candidates);
        for (screener, timer) in &self.screeners {
            work.left.copy_from(&work.candidates);
            screener.screen(&view.cycle(inputs.request), &mut work.left);
            work.screened.intersect(&work.left);
            timer.observe(laps.lap());
        }
        work.candidates.copy_from(&work.screened);
        if work.candidates.is_empty() { Err(Refusal::ScreenedOut) } else { Ok(()) }
    }

    async fn produce(
        &self,
        inputs: &Inputs<'_>,
        view: &mut View,
        work: &mut Work,
        calls: &dyn Calls,
        company: &mut Company,
        laps: &mut Laps,
    ) -> Produced {
        for (at, p) in self.producers.iter().enumerate() {
            let cx = view.cycle(inputs.request);
            let mut result = match &p.producer {
                Some(producer) => producer.produce(&cx, &mut work.columns),
                None => Ok(()),
            };
            if let Some(remote) = &p.remote {
                let asked = remote.ask(&cx, &work.columns, &work.candidates);
                if !asked.is_empty() {
                    let began = Instant::now();
                    let answered = join_all(asked.into_iter().map(|question| calls.ask(question))).await;
                    let took = began.elapsed();
                    let bodies: Vec<_> = answered.iter().map(|a| a.as_deref().map_err(Clone::clone)).collect();
                    let answers = Answers { bodies: &bodies, took };
                    result = result.and(remote.answered(&cx, &mut work.columns, &work.candidates, answers));
                }
            }
            if let Some(gather) = &p.gather {
                match company.join(at, &**gather, (inputs, calls), view, work, laps).await {
                    Ok(Produced::All) => {}
                    Ok(Produced::OutOfDate) => return Produced::OutOfDate,
                    Err(why) => result = result.and(Err(why)),
                }
            }
            if let Err(why) = result {
                p.failures.inc();
                tracing::debug!(producer = &*p.name, why, "producer failed, its data reads as missing");
            }
            p.produce.observe(laps.lap());
        }
        Produced::All
    }

    fn admit(&self, cx: &Cycle<'_>, work: &mut Work, laps: &mut Laps) -> Result<(), Refusal> {
        for (admitter, timer) in &self.admitters {
            let Work { columns, candidates, rng, .. } = &mut *work;
            let admitted = admitter.admit(cx, columns, candidates, rng);
            timer.observe(laps.lap());
            admitted.map_err(|Denial { status, message }| Refusal::Denied { status, message })?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of the one request that is judged")]
    fn judge(
        &self,
        inputs: Inputs<'_>,
        view: &View,
        loads: &mut LoadBuffers,
        company: Company,
        work: &mut Work,
        record: &mut DecisionRecord,
        laps: &mut Laps,
    ) -> Result<Outcome, Refusal> {
        let Inputs { request, ledger, with_scores, .. } = inputs;
        let View { snapshot, now } = view;
        let judging = self.judging.lock();
        let load = add_in_flight(snapshot, ledger, loads);
        let cx = Cycle { snapshot, request, load, peer: None, now: *now };
        for producer in self.producers.iter().filter_map(|p| p.producer.as_ref()) {
            producer.refresh(&cx, &mut work.columns);
        }
        laps.lap();
        self.run_profiles(&cx, work, with_scores, record, laps)?;

        let decision = self.handler.decide(&cx, &work.columns, &work.runs);
        self.handler_decide.observe(laps.lap());
        let decision = decision.map_err(|why| {
            let exhausted = work.runs.runs.contains(&ProfileRun::Exhausted);
            if exhausted { Refusal::Exhausted } else { Refusal::NoDecision(why.0) }
        })?;
        if let Some(draft) = &mut work.draft {
            draft.decided(decision.primary);
        }
        let picked = Picked { runs: &work.runs, primary: decision.primary };
        let Some(target) = picked.target() else {
            return Err(Refusal::Exhausted);
        };
        // With a port of its own the request goes to no endpoint that a producer knows anything of.
        if wants_cached(request) && (decision.port.is_some() || !self.is_cached(&work.columns, target)) {
            return Err(Refusal::NotCached);
        }
        let charge = ledger.charge(snapshot.id(target), 0);
        let mut headers = decision.headers;
        let mut held = company.picked(&cx, &picked);
        for p in &self.producers {
            let Some(producer) = &p.producer else { continue };
            held.extend(producer.picked(&cx, &work.columns, &picked));
            p.picked.observe(laps.lap());
        }
        for (hooks, timer) in &self.pick_hooks {
            held.extend(hooks.picked(&cx, &work.columns, &picked, &mut headers));
            timer.observe(laps.lap());
        }
        drop(judging);

        for producer in self.producers.iter().filter_map(|p| p.producer.as_ref()) {
            producer.learn(&cx, &work.columns, &picked);
        }
        let expected = match decision.port {
            None => self.expected(snapshot, &work.columns, &picked, target),
            Some(_) => Expected::default(),
        };
        let targets = work.runs.runs[decision.primary].targets().unwrap_or_default();
        let destination = destination(snapshot, targets, decision.port);
        record.picked = destination.split(',').map(str::to_owned).collect();
        // Scores belong to endpoints, and with a port of its own none of them is sent to.
        let scored = if decision.port.is_some() { &[][..] } else { &work.scored[decision.primary][..] };
        Ok(Outcome {
            destination,
            id: snapshot.id(target),
            target: snapshot.meta(target).clone(),
            prefill: picked.prefill().map(|idx| snapshot.id(idx)),
            scores: scored.iter().map(|(idx, total)| (snapshot.meta(*idx).clone(), *total)).collect(),
            headers,
            held,
            charge,
            expected,
        })
    }

    /// What each producer believes that the target has of the prompt. Where several endpoints work on it, or none that is
    /// known, the engine's word means something else.
    fn expected(&self, snapshot: &Snapshot, columns: &Columns, picked: &Picked<'_>, target: EndpointIdx) -> Expected {
        if picked.firsts().nth(1).is_some() {
            return Expected::default();
        }
        let producers = self.producers.iter().filter_map(|p| Some((&p.name, p.producer.as_ref()?)));
        let predictions = producers.filter_map(|(name, producer)| {
            let tokens = producer.cached_tokens(columns, target)?;
            Some(self.truth.predict(name, snapshot.id(target), snapshot.meta(target), tokens))
        });
        Expected(predictions.collect())
    }

    fn is_cached(&self, columns: &Columns, target: EndpointIdx) -> bool {
        let mut producers = self.producers.iter().filter_map(|p| p.producer.as_ref());
        producers.any(|p| p.has_cached(columns, target) == Some(true))
    }

    fn run_profiles(
        &self,
        cx: &Cycle<'_>,
        work: &mut Work,
        with_scores: bool,
        record: &mut DecisionRecord,
        laps: &mut Laps,
    ) -> Result<(), Refusal> {
        // Every step runs or skips a profile, so a handler that asks for more steps than that is going in circles.
        for _ in 0..=self.profiles.len() * 2 {
            let next = self.handler.next(cx, &work.columns, &mut work.runs);
            self.handler_next.observe(laps.lap());
            match next {
                Next::Done => return Ok(()),
                Next::Run(at) => {
                    let Some(profile) = self.profiles.get(at) else { break };
                    let cx = Cycle { peer: work.runs.peer, ..*cx };
                    let seed = work.rng.get_seed();
                    let run = profile.run(&cx, work, laps);
                    record.ran(profile, &run, cx.snapshot, work);
                    if let Some(draft) = &mut work.draft {
                        draft.ran((at, seed), &run, work.runs.peer, &work.left, &mut work.trail);
                    }
                    work.runs.runs[at] = run;
                    if with_scores {
                        remember_scores(work, at);
                    }
                    // What remembering took is no plugin's time.
                    laps.lap();
                }
            }
        }
        Err(Refusal::NoDecision("the profile handler does not come to an end".into()))
    }
}

/// The chosen endpoints as Envoy takes them.
fn destination(snapshot: &Snapshot, targets: &[EndpointIdx], port: Option<u16>) -> String {
    let mut destination = String::with_capacity(24 * targets.len());
    for idx in targets {
        if !destination.is_empty() {
            destination.push(',');
        }
        let meta = snapshot.meta(*idx);
        match port {
            None => destination.push_str(&meta.host_port),
            Some(port) => destination.push_str(&host_port(&meta.host, port)),
        }
    }
    destination
}

/// Whether the client wants the request served only where its prompt is cached.
fn wants_cached(request: &InferenceRequest) -> bool {
    let tokens = request.headers.find("prefer").unwrap_or_default().split(',');
    tokens.into_iter().any(|t| t.split(';').next().is_some_and(|t| t.trim().eq_ignore_ascii_case("if-available")))
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
