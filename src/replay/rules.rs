//! How the profiles of a recording are judged under another config: which recorded scores count how much, and what cannot
//! be told from a recording.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use epp_plugin_api::{MetricHub, Picker, PluginType, Slots};

use crate::config::plan::{Plan, Planned, ProfilePlan};
use crate::config::{Environment, Mistake, load};

/// Engines' words are not read here, so how long they count changes nothing.
const STALENESS: Duration = Duration::from_secs(1);

/// A profile as it was and as it is judged.
pub struct Rule {
    pub profile: String,
    /// The recorded scorers, in the order of their scores.
    pub scorers: Vec<Scorer>,
    /// Places in `scorers`, in the order in which their scores are added.
    pub order: Vec<usize>,
    pub picker: Arc<dyn Picker>,
}

/// One recorded scorer.
pub struct Scorer {
    pub name: String,
    pub before: f64,
    /// `None`: it does not count any more.
    pub now: Option<f64>,
}

/// A rule for each profile of the recorded config; `None`: the other config does not have it.
pub struct Rules {
    pub profiles: Vec<(String, Option<Rule>)>,
    /// What a person should know of the difference between the two configs.
    pub notes: Vec<String>,
}

/// Reads a config and builds its plugins. Those that are as in `previous` are taken over.
///
/// # Errors
/// With every mistake.
fn plan(what: &str, text: &str, previous: Option<&Plan>, registry: &[&'static PluginType]) -> anyhow::Result<Plan> {
    let env = Environment {
        registry,
        slots: &Slots::default(),
        metrics: &MetricHub::default(),
        staleness: STALENESS,
        allow_experimental: true,
        previous,
    };
    load(text, &env).map_err(|mistakes| {
        let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
        anyhow::anyhow!("{what}: {}", lines.join("; "))
    })
}

impl Rules {
    /// Sets the recorded config beside the given one, or beside itself.
    ///
    /// # Errors
    /// If one of them is wrong, or the given one needs to know what was not recorded.
    pub fn new(recorded: &str, given: Option<&str>, registry: &[&'static PluginType]) -> anyhow::Result<Self> {
        let then = plan("the recorded config", recorded, None, registry)?;
        let Some(given) = given else {
            let profiles = then.profiles.iter().map(|p| (p.name.clone(), Some(same(&then, p)))).collect();
            return Ok(Self { profiles, notes: Vec::new() });
        };
        // Once more as it runs, so that defaults that one of the two spells out make no difference.
        let written = plan("the config", given, None, registry)?.effective;
        let now = plan("the config", &written, Some(&then), registry)?;
        let mut unknown = Vec::new();
        let mut notes = changed_producers(&now);
        if !now.plugins[now.handler].taken_over {
            notes.push("the profile handler has changed; which profiles run is taken as recorded".into());
        }
        let mut profiles = Vec::new();
        for old in &then.profiles {
            let new = now.profiles.iter().find(|new| new.name == old.name);
            let rule = new.map(|new| changed((&then, old), (&now, new), &mut unknown, &mut notes));
            if rule.is_none() {
                notes.push(format!("profile {} is not in the config; its runs are not judged", old.name));
            }
            profiles.push((old.name.clone(), rule));
        }
        for new in now.profiles.iter().filter(|new| then.profiles.iter().all(|old| old.name != new.name)) {
            notes.push(format!("profile {} is not in the recording; it is not judged", new.name));
        }
        if !unknown.is_empty() {
            bail!("the recording does not say what this config needs to know: {}", unknown.join("; "));
        }
        Ok(Self { profiles, notes })
    }
}

/// A profile as it was.
fn same(plan: &Plan, profile: &ProfilePlan) -> Rule {
    let scorer = |&(at, weight): &(usize, f64)| Scorer {
        name: plan.plugins[at].name.clone(),
        before: weight,
        now: Some(weight),
    };
    Rule {
        profile: profile.name.clone(),
        scorers: profile.scorers.iter().map(scorer).collect(),
        order: (0..profile.scorers.len()).collect(),
        picker: picker(plan, profile),
    }
}

/// A profile that has changed. Pushes onto `unknown` what would have to be recorded to judge it.
fn changed(
    (then, old): (&Plan, &ProfilePlan),
    (now, new): (&Plan, &ProfilePlan),
    unknown: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Rule {
    let mut rule = same(then, old);
    rule.scorers.iter_mut().for_each(|scorer| scorer.now = None);
    rule.order.clear();
    rule.picker = picker(now, new);
    let profile = &new.name;
    for &(at, weight) in &new.scorers {
        let plugin = &now.plugins[at];
        let known = rule.scorers.iter().position(|scorer| scorer.name == plugin.name && scorer.now.is_none());
        match known {
            Some(place) if plugin.taken_over => {
                rule.scorers[place].now = Some(weight);
                rule.order.push(place);
            }
            Some(_) => unknown.push(format!("scorer {} of profile {profile} has other parameters", plugin.name)),
            None => unknown.push(format!("scorer {} of profile {profile} was not there", plugin.name)),
        }
    }
    let name = |plan: &Plan, at: usize| plan.plugins[at].name.clone();
    for &at in &new.filters {
        let plugin = &now.plugins[at];
        let was_there = old.filters.iter().any(|&at| name(then, at) == plugin.name);
        match (was_there, plugin.taken_over) {
            (true, true) => {}
            (true, false) => unknown.push(format!("filter {} of profile {profile} has other parameters", plugin.name)),
            (false, _) => unknown.push(format!("filter {} of profile {profile} was not there", plugin.name)),
        }
    }
    for &at in &old.filters {
        let gone = name(then, at);
        if new.filters.iter().all(|&at| name(now, at) != gone) {
            notes.push(format!(
                "filter {gone} of profile {profile} is not in the config; nobody scored whom it dropped, so they stay dropped"
            ));
        }
    }
    rule
}

/// What scorers gave follows from what producers knew then.
fn changed_producers(now: &Plan) -> Vec<String> {
    let changed = now.producers.iter().map(|&at| &now.plugins[at]).filter(|plugin| !plugin.taken_over);
    let note = |plugin: &Planned| {
        format!(
            "producer {} is not as in the recording; the scores that follow from it are the recorded ones",
            plugin.name
        )
    };
    changed.map(note).collect()
}

fn picker(plan: &Plan, profile: &ProfilePlan) -> Arc<dyn Picker> {
    let picker = plan.plugins[profile.picker].instance.picker.clone();
    picker.expect("the plan is checked: its picker is one")
}
