//! Judges one recorded cycle: runs its profiles on what its plugins looked at, and compares.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use epp_plugin_api::{
    Candidates, Cycle as Seen, EndpointIdx, InferenceRequest, Load, Parsed, PluginType, ProfileRun, Snapshot,
};
use tokio::time::Instant;

use super::report::{Difference, Dropped, Report, ScorerShare};
use super::rules::{Rule, Rules, Scorer};
use crate::recording::line::ConfigLine;
use crate::recording::read::{Cycle, Run, Value};
use crate::sched::laps::Laps;
use crate::sched::profile::add;
use crate::sched::scratch::{LoadBuffers, Work};
use crate::telemetry::utc::Utc;

/// The judges of all configs that were in force while the recording was made. There are few.
pub struct Judges<'a> {
    given: Option<&'a str>,
    registry: &'a [&'static PluginType],
    known: Vec<(Arc<ConfigLine>, Judge)>,
    notes: Vec<String>,
}

/// Judges what was decided under one config.
pub struct Judge {
    rules: Rules,
    work: Work,
    loads: LoadBuffers,
}

/// What the plugins of one cycle look at.
struct Inputs<'a> {
    snapshot: &'a Snapshot,
    request: &'a InferenceRequest,
    load: Load<'a>,
    now: Instant,
}

impl<'a> Judges<'a> {
    /// Judges by the given config, or by the one that was in force.
    pub fn new(given: Option<&'a str>, registry: &'a [&'static PluginType]) -> Self {
        Self { given, registry, known: Vec::new(), notes: Vec::new() }
    }

    /// The judge of what was decided under this config.
    ///
    /// # Errors
    /// If one of the configs is wrong, or the recording cannot tell what the given one would do.
    pub fn of(&mut self, config: &Arc<ConfigLine>) -> anyhow::Result<&mut Judge> {
        let is_this = |known: &ConfigLine| {
            (&known.text, &known.values, &known.headers) == (&config.text, &config.values, &config.headers)
        };
        let known = self.known.iter().position(|(known, _)| Arc::ptr_eq(known, config) || is_this(known));
        let at = match known {
            Some(at) => at,
            None => {
                let rules = Rules::new(config, self.given, self.registry)?;
                for note in &rules.notes {
                    if !self.notes.contains(note) {
                        self.notes.push(note.clone());
                    }
                }
                let judge = Judge { rules, work: Work::default(), loads: LoadBuffers::default() };
                self.known.push((config.clone(), judge));
                self.known.len() - 1
            }
        };
        Ok(&mut self.known[at].1)
    }

    /// What a person should know.
    pub fn into_notes(self) -> Vec<String> {
        self.notes
    }
}

impl Judge {
    /// Judges a cycle, and tells the report.
    ///
    /// # Errors
    /// If the cycle does not fit the config that it was recorded under.
    pub fn judge(&mut self, cycle: &Cycle, report: &mut Report) -> anyhow::Result<()> {
        let Self { rules, work, loads } = self;
        let request = request_of(cycle);
        look(rules, cycle, work)?;
        let (snapshot, load) = (&*cycle.snapshot, load_of(cycle, loads)?);
        let inputs = Inputs { snapshot, request: &request, load, now: cycle.now };
        let (mut differs, mut is_judged, mut unknown) = (false, false, None);
        // Where another stage went then, and where it goes now.
        let mut moved: Vec<[Option<u32>; 2]> = Vec::new();
        for run in &cycle.runs {
            let n_profiles = rules.profiles.len();
            let (name, rule) = rules
                .profiles
                .get(run.profile)
                .with_context(|| format!("expected a profile of {n_profiles}, found number {}", run.profile))?;
            let Some(rule) = rule else { continue };
            let n_scorers = rule.scorers.iter().filter(|scorer| scorer.then.is_some()).count();
            if run.n_scorers() != n_scorers && run.n_scorers() != 0 {
                bail!("expected scores of {n_scorers} scorers in profile {name}, found {}", run.n_scorers());
            }
            is_judged = true;
            let peer = run.peer.map(|peer| moved.iter().find(|m| m[0] == Some(peer)).map_or(Some(peer), |m| m[1]));
            let picked = again(rule, rules.has_inputs, run, peer.flatten(), &inputs, work);
            unknown = unknown.or(rule.recalled.lock().unknown.take());
            moved.push([run.picked.first(), picked.first()].map(Option::<&u32>::copied));
            if cycle.line.primary == Some(run.profile) && unknown.is_none() {
                let at = |picked: &[u32]| picked.first().map(|row| cycle.endpoints.endpoints[*row as usize].clone());
                report.picked(at(&run.picked), at(&picked));
            }
            tell_otherwise(rule, run, work, report);
            if picked != run.picked && unknown.is_none() {
                differs = true;
                report.differs(&rule.profile.name, || difference(rule, run, cycle, &inputs, &picked, work));
            }
        }
        if let Some(plugin) = unknown {
            report.unknown(plugin);
            (is_judged, differs) = (false, false);
        }
        report.cycle(moment(cycle), is_judged, differs);
        Ok(())
    }
}

fn moment(cycle: &Cycle) -> Utc {
    Utc(Duration::from_micros(cycle.line.cycle))
}

/// The request as far as it is recorded.
fn request_of(cycle: &Cycle) -> InferenceRequest {
    let line = &cycle.line;
    let mut headers = epp_plugin_api::Headers::default();
    for (name, value) in cycle.config.headers.iter().zip(&line.headers) {
        if let Some(value) = value {
            headers.set(name.as_str(), value.clone());
        }
    }
    InferenceRequest {
        id: line.id.clone(),
        headers,
        path: String::new(),
        model: line.model.clone(),
        target_model: line.target.as_ref().unwrap_or(&line.model).clone(),
        fairness_id: line.flow.clone().unwrap_or_default(),
        priority: line.priority,
        body: Default::default(),
        parsed: Parsed::default(),
        received: cycle.now,
        waited: Duration::ZERO,
    }
}

/// Fills in who the candidates were and what producers wrote.
fn look(rules: &Rules, cycle: &Cycle, work: &mut Work) -> anyhow::Result<()> {
    let rows = cycle.snapshot.rows();
    work.reset(rows, rules.profiles.iter().map(|(name, _)| name.as_str()));
    if let Some(among) = &cycle.line.among {
        work.candidates.empty(rows);
        among.iter().for_each(|row| work.candidates.insert(EndpointIdx(*row)));
    }
    let values = cycle.values.as_deref().unwrap_or_default();
    for (place, fill) in &rules.fills {
        if let Some(Value::Of { text, words }) = values.get(*place)
            && !fill.read(&mut work.columns, text, words)
        {
            bail!("expected a value of {} for each endpoint, found one that cannot be read", fill.name());
        }
    }
    Ok(())
}

/// The loads of the snapshot, those of stale rows with what was in flight there.
fn load_of<'a>(cycle: &'a Cycle, loads: &'a mut LoadBuffers) -> anyhow::Result<Load<'a>> {
    let (snapshot, in_flight) = (&cycle.snapshot, &cycle.line.stale);
    loads.waiting.clear();
    loads.waiting.extend_from_slice(snapshot.waiting());
    loads.running.clear();
    loads.running.extend_from_slice(snapshot.running());
    if !in_flight.is_empty() && in_flight.len() != snapshot.stale().len() {
        bail!("expected requests in flight of {} stale rows, found {}", snapshot.stale().len(), in_flight.len());
    }
    for (idx, requests) in snapshot.stale().iter().zip(in_flight) {
        loads.waiting[idx.row()] += *requests as f64;
        loads.running[idx.row()] += *requests as f64;
    }
    Ok(Load { waiting: &loads.waiting, running: &loads.running, kv_usage: snapshot.kv_usage() })
}

/// Whom the picker chooses now. Leaves in `work` what its profile's run left.
fn again(
    rule: &Rule,
    has_inputs: bool,
    run: &Run,
    peer: Option<u32>,
    inputs: &Inputs<'_>,
    work: &mut Work,
) -> Vec<u32> {
    let Inputs { snapshot, request, load, now } = *inputs;
    let cx = Seen { snapshot, request, load, peer: peer.map(EndpointIdx), now };
    let rows = snapshot.rows();
    let left = left_of(run, rows);
    let scores = (0..run.n_scorers()).map(|place| run.scores(place, rows)).collect();
    let filters = if rule.takes_filters { passed(rule, run, &cx, work) } else { Vec::new() };
    if !has_inputs {
        work.candidates.copy_from(&left);
    }
    {
        let recalled = &mut *rule.recalled.lock();
        (recalled.left, recalled.scores, recalled.filters, recalled.unknown) = (left, scores, filters, None);
    }
    work.rng = fastrand::Rng::with_seed(run.seed);
    match rule.profile.run(&cx, work, &mut Laps::start()) {
        ProfileRun::Chose(targets) => {
            let picked = targets.iter().map(|idx| idx.0).collect();
            work.give_back(targets);
            picked
        }
        ProfileRun::NotRun | ProfileRun::Skipped | ProfileRun::Exhausted => Vec::new(),
    }
}

fn left_of(run: &Run, rows: usize) -> Candidates {
    let mut left = Candidates::none(rows);
    run.left(rows).for_each(|row| left.insert(EndpointIdx(row)));
    left
}

/// Who came to each recorded filter and whom it left, as far as that follows from their numbers, or the filter can be run.
fn passed(rule: &Rule, run: &Run, cx: &Seen<'_>, work: &Work) -> Vec<Option<[Candidates; 2]>> {
    let left = left_of(run, cx.snapshot.rows());
    let mut came = Some(work.candidates.clone());
    let passes = rule.filters.iter().zip(&run.kept).map(|((_, filter), kept)| {
        let before = came.take()?;
        let kept = *kept as usize;
        let after = match filter {
            _ if kept == before.count() => before.clone(),
            _ if kept == left.count() => left.clone(),
            Some(filter) => {
                let mut after = before.clone();
                filter.filter(cx, &work.columns, &mut after);
                after
            }
            None => return None,
        };
        came = Some(after.clone());
        Some([before, after])
    });
    passes.collect()
}

/// Says of scorers that have not changed if they score otherwise than recorded.
fn tell_otherwise(rule: &Rule, run: &Run, work: &Work, report: &mut Report) {
    let recalled = rule.recalled.lock();
    if work.left != recalled.left || run.n_scorers() == 0 {
        return;
    }
    for scorer in rule.scorers.iter().filter(|scorer| scorer.is_same) {
        let (Some(then), Some(now)) = (scorer.then, scorer.now) else { continue };
        let (then, now) = (&recalled.scores[then], &work.trail.scores()[now]);
        if work.left.iter().any(|idx| then[idx.row()].to_bits() != now[idx.row()].to_bits()) {
            report.otherwise(&scorer.name);
        }
    }
}

fn difference(rule: &Rule, run: &Run, cycle: &Cycle, inputs: &Inputs<'_>, picked: &[u32], work: &Work) -> Difference {
    // The first place where the two choices part.
    let parted = run.picked.iter().zip(picked).position(|(then, now)| then != now);
    let place = parted.unwrap_or(run.picked.len().min(picked.len()));
    let (then, now) = (run.picked.get(place).copied(), picked.get(place).copied());
    let named = |row: Option<u32>| row.map(|row| cycle.endpoints.endpoints[row as usize].clone());
    let recalled = rule.recalled.lock();
    let scores = |scorer: &Scorer, row: Option<u32>| {
        let idx = EndpointIdx(row?);
        let of = |scores: Option<&Vec<f64>>, left: &Candidates| {
            scores.filter(|_| left.contains(idx)).map(|scores| clamped(scores[idx.row()]))
        };
        let then = scorer.then.and_then(|place| recalled.scores.get(place));
        let now = scorer.now.and_then(|place| work.trail.scores().get(place));
        Some([of(then, &recalled.left), of(now, &work.left)])
    };
    let share = |scorer: &Scorer| ScorerShare {
        scorer: scorer.name.clone(),
        weights: scorer.weights,
        recorded: scores(scorer, then).unwrap_or_default(),
        now: scores(scorer, now).unwrap_or_default(),
    };
    let mut dropped = Vec::new();
    if let Some(row) = then.filter(|row| !work.left.contains(EndpointIdx(*row))) {
        let trail = work.trail.left().iter().position(|left| !left.contains(EndpointIdx(row)));
        let filter = trail.map(|place| rule.profile.names.filters[place].to_string());
        dropped.push(Dropped { endpoint: named(Some(row)), filter, is_now: true });
    }
    if let Some(row) = now.filter(|row| !recalled.left.contains(EndpointIdx(*row))) {
        let Inputs { snapshot, request, load, now } = *inputs;
        let cx = Seen { snapshot, request, load, peer: run.peer.map(EndpointIdx), now };
        let passed = passed(rule, run, &cx, work);
        let is_dropped = |passed: &Option<[Candidates; 2]>| {
            passed.as_ref().is_some_and(|[_, after]| !after.contains(EndpointIdx(row)))
        };
        let filter = passed.iter().position(is_dropped).map(|place| rule.filters[place].0.clone());
        dropped.push(Dropped { endpoint: named(Some(row)), filter, is_now: false });
    }
    Difference {
        at: moment(cycle),
        request: cycle.line.id.clone(),
        model: cycle.line.model.clone(),
        profile: rule.profile.name.clone(),
        recorded: named(then),
        now: named(now),
        scorers: rule.scorers.iter().map(share).collect(),
        dropped,
    }
}

/// As scores are taken before they are weighted.
fn clamped(score: f64) -> f64 {
    let mut total = [0.0];
    add(&mut total, &[score], 1.0);
    total[0]
}
