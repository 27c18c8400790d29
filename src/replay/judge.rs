//! Judges one recorded cycle: weighs what was scored, lets the picker choose, and compares.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use epp_plugin_api::{Candidates, EndpointIdx, PluginType};

use super::report::{Difference, Report, ScorerShare};
use super::rules::{Rule, Rules};
use crate::recording::line::ConfigLine;
use crate::recording::read::{Cycle, Run};
use crate::sched::profile::add;
use crate::telemetry::utc::Utc;

/// The judges of all configs that were in force while the recording was made. There are few.
pub struct Judges<'a> {
    given: Option<&'a str>,
    registry: &'a [&'static PluginType],
    known: Vec<(Arc<ConfigLine>, Judge)>,
    notes: Vec<String>,
}

/// Judges what was decided under one config.
pub struct Judge(Rules);

impl<'a> Judges<'a> {
    /// Judges by the given config, or by the one that was in force.
    pub fn new(given: Option<&'a str>, registry: &'a [&'static PluginType]) -> Self {
        Self { given, registry, known: Vec::new(), notes: Vec::new() }
    }

    /// The judge of what was decided under this config.
    ///
    /// # Errors
    /// If one of the configs is wrong, or the recording cannot tell what the given one would do.
    pub fn of(&mut self, config: &Arc<ConfigLine>) -> anyhow::Result<&Judge> {
        let known = self.known.iter().position(|(known, _)| Arc::ptr_eq(known, config) || known.text == config.text);
        let at = match known {
            Some(at) => at,
            None => {
                let rules = Rules::new(&config.text, self.given, self.registry)?;
                for note in &rules.notes {
                    if !self.notes.contains(note) {
                        self.notes.push(note.clone());
                    }
                }
                self.known.push((config.clone(), Judge(rules)));
                self.known.len() - 1
            }
        };
        Ok(&self.known[at].1)
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
    pub fn judge(&self, cycle: &Cycle, report: &mut Report) -> anyhow::Result<()> {
        let mut differs = false;
        let mut is_judged = false;
        for run in &cycle.runs {
            let (name, rule) = self.0.profiles.get(run.profile).with_context(|| {
                format!("expected a profile of {}, found number {}", self.0.profiles.len(), run.profile)
            })?;
            let Some(rule) = rule else { continue };
            if run.n_scorers() != rule.scorers.len() && run.n_scorers() != 0 {
                bail!("expected scores of {} scorers in profile {name}, found {}", rule.scorers.len(), run.n_scorers());
            }
            is_judged = true;
            let rows = cycle.endpoints.endpoints.len();
            let picked = again(rule, run, rows);
            if cycle.line.primary == Some(run.profile) {
                let at = |picked: &[u32]| picked.first().map(|row| cycle.endpoints.endpoints[*row as usize].clone());
                report.picked(at(&run.picked), at(&picked));
            }
            if picked != run.picked {
                differs = true;
                report.differs(&rule.profile, || difference(rule, run, cycle, &picked));
            }
        }
        report.cycle(Utc(std::time::Duration::from_micros(cycle.line.cycle)), is_judged, differs);
        Ok(())
    }
}

/// Whom the picker chooses now.
fn again(rule: &Rule, run: &Run, rows: usize) -> Vec<u32> {
    let mut left = Candidates::none(rows);
    run.left(rows).for_each(|row| left.insert(EndpointIdx(row)));
    if left.is_empty() {
        return Vec::new();
    }
    let (mut totals, mut scores) = (vec![0.0; rows], vec![0.0; rows]);
    if run.n_scorers() > 0 {
        for &place in &rule.order {
            scores.fill(0.0);
            run.write_scores(place, &mut scores);
            add(&mut totals, &scores, rule.scorers[place].now.unwrap_or_default());
        }
    }
    let (mut rng, mut picked) = (fastrand::Rng::with_seed(run.seed), Vec::new());
    rule.picker.pick(&left, &totals, &mut rng, &mut picked);
    picked.iter().map(|idx| idx.0).collect()
}

fn difference(rule: &Rule, run: &Run, cycle: &Cycle, picked: &[u32]) -> Difference {
    let rows = cycle.endpoints.endpoints.len();
    // The first place where the two choices part.
    let parted = run.picked.iter().zip(picked).position(|(then, now)| then != now);
    let place = parted.unwrap_or(run.picked.len().min(picked.len()));
    let (then, now) = (run.picked.get(place).copied(), picked.get(place).copied());
    let named = |row: Option<u32>| row.map(|row| cycle.endpoints.endpoints[row as usize].clone());
    let mut scorers = Vec::new();
    for (at, scorer) in rule.scorers.iter().enumerate().take(run.n_scorers()) {
        let mut scores = vec![0.0; rows];
        run.write_scores(at, &mut scores);
        let of = |row: Option<u32>| row.map(|row| clamped(scores[row as usize]));
        let weights = [scorer.before, scorer.now.unwrap_or_default()];
        scorers.push(ScorerShare { scorer: scorer.name.clone(), weights, recorded: of(then), now: of(now) });
    }
    Difference {
        at: Utc(std::time::Duration::from_micros(cycle.line.cycle)),
        request: cycle.line.id.clone(),
        model: cycle.line.model.clone(),
        profile: rule.profile.clone(),
        recorded: named(then),
        now: named(now),
        scorers,
    }
}

/// As scores are taken before they are weighted.
fn clamped(score: f64) -> f64 {
    let mut total = [0.0];
    add(&mut total, &[score], 1.0);
    total[0]
}
