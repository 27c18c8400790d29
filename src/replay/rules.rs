//! How the profiles of a recording are judged under another config: which plugins run anew, which are taken as recorded,
//! and what cannot be told from a recording.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use epp_plugin_api::recorded::RecordedValue;
use epp_plugin_api::{DataKey, Filter, MetricHub, PluginType, Slots};
use parking_lot::Mutex;

use super::recalled::{Recalled, Taken};
use crate::config::plan::{Plan, Planned, ProfilePlan};
use crate::config::{Environment, Mistake, load};
use crate::recording::line::ConfigLine;
use crate::sched::metrics::SchedMetrics;
use crate::sched::profile::{Names, Profile, Weighted};

/// Snapshots of a recording say themselves who is stale.
const STALENESS: Duration = Duration::from_secs(1);

/// A profile as it was and as it is judged.
pub struct Rule {
    /// As it is judged. Without inputs it has no filters, and begins with who was left.
    pub profile: Profile,
    /// The recorded scorers, in the order of their scores, and then those that were not there.
    pub scorers: Vec<Scorer>,
    /// The recorded filters; those that can be run anew.
    pub filters: Vec<(String, Option<Arc<dyn Filter>>)>,
    /// Whether filters are taken as recorded, so that it must be known whom they left.
    pub takes_filters: bool,
    /// Where plugins that are taken as recorded look.
    pub recalled: Arc<Mutex<Recalled>>,
}

/// A scorer as it was, and as it is judged.
pub struct Scorer {
    pub name: String,
    /// As recorded, and now; 0 where it does not count.
    pub weights: [f64; 2],
    /// Its place among the recorded ones.
    pub then: Option<usize>,
    /// Its place in the profile.
    pub now: Option<usize>,
    /// Whether it runs anew though it has not changed, so that its scores should be the recorded ones.
    pub is_same: bool,
}

/// A rule for each profile of the recorded config; `None`: the other config does not have it.
pub struct Rules {
    pub profiles: Vec<(String, Option<Rule>)>,
    /// What is filled from the recorded values, by their places.
    pub fills: Vec<(usize, RecordedValue)>,
    /// Whether plugins can run anew.
    pub has_inputs: bool,
    /// What a person should know of the difference between the two configs.
    pub notes: Vec<String>,
}

/// Both configs, and what their plugins are built with.
struct Both {
    then: Plan,
    now: Plan,
    slots: Slots,
    metrics: SchedMetrics,
    /// What plugins may look at; `None`: nothing of that is recorded.
    inputs: Option<Inputs>,
}

struct Inputs {
    values: Vec<String>,
    headers: Vec<String>,
}

/// What is said of all profiles.
#[derive(Default)]
struct Findings {
    unknown: Vec<String>,
    notes: Vec<String>,
}

impl Rules {
    /// Sets the recorded config beside the given one, or beside itself.
    ///
    /// # Errors
    /// If one of them is wrong, or the given one needs to know what was not recorded.
    pub fn new(recorded: &ConfigLine, given: Option<&str>, registry: &[&'static PluginType]) -> anyhow::Result<Self> {
        let both = Both::new(recorded, given, registry)?;
        let (then, now) = (&both.then, &both.now);
        let mut findings = Findings { notes: changed_producers(now), ..Findings::default() };
        if !now.plugins[now.handler].taken_over {
            findings.notes.push("the profile handler has changed; which profiles run is taken as recorded".into());
        }
        let mut profiles = Vec::new();
        for old in &then.profiles {
            let new = now.profiles.iter().find(|new| new.name == old.name);
            let rule = new.map(|new| both.rule(old, new, &mut findings));
            if rule.is_none() {
                findings.notes.push(format!("profile {} is not in the config; its runs are not judged", old.name));
            }
            profiles.push((old.name.clone(), rule));
        }
        for new in now.profiles.iter().filter(|new| then.profiles.iter().all(|old| old.name != new.name)) {
            findings.notes.push(format!("profile {} is not in the recording; it is not judged", new.name));
        }
        let Findings { unknown, notes } = findings;
        if !unknown.is_empty() {
            bail!("the recording does not say what this config needs to know: {}", unknown.join("; "));
        }
        Ok(Self { profiles, fills: both.fills(), has_inputs: both.inputs.is_some(), notes })
    }
}

impl Both {
    fn new(recorded: &ConfigLine, given: Option<&str>, registry: &[&'static PluginType]) -> anyhow::Result<Self> {
        let (slots, hub) = (Slots::default(), MetricHub::default());
        let plan = |what: &str, text: &str, previous: Option<&Plan>| {
            let env = Environment {
                registry,
                slots: &slots,
                metrics: &hub,
                staleness: STALENESS,
                allow_experimental: true,
                previous,
            };
            load(text, &env).map_err(|mistakes| {
                let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
                anyhow::anyhow!("{what}: {}", lines.join("; "))
            })
        };
        let then = plan("the recorded config", &recorded.text, None)?;
        // As it runs, so that defaults that one of the two spells out make no difference.
        let written = match given {
            None => then.effective.clone(),
            Some(given) => plan("the config", given, None)?.effective,
        };
        let now = plan("the config", &written, Some(&then))?;
        let inputs = recorded.values.clone().map(|values| Inputs { values, headers: recorded.headers.clone() });
        Ok(Self { then, now, metrics: SchedMetrics::new(&hub), slots, inputs })
    }

    /// The values that the producers of the config stand for.
    fn fills(&self) -> Vec<(usize, RecordedValue)> {
        let recorded = self.inputs.iter().flat_map(|inputs| inputs.values.iter().enumerate());
        let written = || self.now.plugins.iter().flat_map(|plugin| &plugin.keys.writes);
        let of =
            |name: &String| written().find(|key| key.to_string() == *name).and_then(|key| self.slots.recorded(key));
        recorded.filter_map(|(place, name)| Some((place, of(name)?))).collect()
    }

    fn rule(&self, old: &ProfilePlan, new: &ProfilePlan, findings: &mut Findings) -> Rule {
        let recalled = Arc::<Mutex<Recalled>>::default();
        let (then, now) = (&self.then, &self.now);
        let name = |at: usize| Arc::<str>::from(now.plugins[at].name.as_str());
        let mut scorers: Vec<Scorer> = old.scorers.iter().enumerate().map(|old| was(then, old)).collect();
        let mut weighted = Vec::new();
        for &(at, weight) in &new.scorers {
            let plugin = &now.plugins[at];
            let known = scorers.iter().position(|s| s.name == plugin.name && s.now.is_none() && s.then.is_some());
            let runs = self.runs_anew("scorer", plugin, known.is_some(), &new.name, findings);
            let place = known.unwrap_or_else(|| {
                let name = plugin.name.clone();
                scorers.push(Scorer { name, weights: [0.0; 2], then: None, now: None, is_same: false });
                scorers.len() - 1
            });
            let scorer = &mut scorers[place];
            (scorer.weights[1], scorer.now) = (weight, Some(weighted.len()));
            scorer.is_same = runs && known.is_some() && plugin.taken_over;
            let taken = || Arc::new(Taken { name: name(at), place, recalled: recalled.clone() });
            let scorer = plugin.instance.scorer.clone().filter(|_| runs).unwrap_or_else(|| taken());
            weighted.push(Weighted { scorer, weight, timer: self.metrics.timer("Scorer", plugin.kind.reported, "") });
        }
        let mut filters = Vec::new();
        let mut takes_filters = false;
        for &at in &new.filters {
            let plugin = &now.plugins[at];
            let known = old.filters.iter().position(|&at| then.plugins[at].name == plugin.name);
            let runs = self.runs_anew("filter", plugin, known.is_some(), &new.name, findings);
            takes_filters |= !runs;
            let place = known.unwrap_or_default();
            let taken = || Arc::new(Taken { name: name(at), place, recalled: recalled.clone() });
            let filter = plugin.instance.filter.clone().filter(|_| runs).unwrap_or_else(|| taken());
            filters.push((filter, self.metrics.timer("Filter", plugin.kind.reported, "")));
        }
        if self.inputs.is_none() {
            // Who was left is who begins.
            filters.clear();
            self.note_gone(old, new, findings);
        }
        let picker = &now.plugins[new.picker];
        let names = Names {
            profile: new.name.as_str().into(),
            filters: new.filters.iter().map(|&at| name(at)).collect(),
            scorers: new.scorers.iter().map(|&(at, _)| name(at)).collect(),
            picker: name(new.picker),
        };
        let timer = self.metrics.timer("Picker", picker.kind.reported, "");
        let picker = picker.instance.picker.clone().expect("the plan is checked: its picker is one");
        let anew = |&at: &usize| {
            let plugin = &then.plugins[at];
            let runs = self.inputs.is_some() && self.lacks(plugin).is_none();
            (plugin.name.clone(), plugin.instance.filter.clone().filter(|_| runs))
        };
        Rule {
            profile: Profile { name: new.name.clone(), names, filters, scorers: weighted, picker: (picker, timer) },
            scorers,
            filters: old.filters.iter().map(anew).collect(),
            takes_filters,
            recalled,
        }
    }

    /// Whether a plugin runs anew; otherwise it is taken as recorded, or what is missing is said.
    fn runs_anew(&self, role: &str, plugin: &Planned, was_there: bool, of: &str, findings: &mut Findings) -> bool {
        let Planned { name, .. } = plugin;
        let lacks = self.lacks(plugin);
        match (lacks, was_there && plugin.taken_over) {
            (None, _) => return true,
            (Some(why), true) => {
                // Without inputs that goes for all of them, and is said once.
                if self.inputs.is_some() {
                    findings.notes.push(format!("{role} {name} of profile {of} is taken as recorded: {why}"));
                }
            }
            (Some(why), false) => {
                let how = if was_there { "has other parameters" } else { "was not there" };
                findings.unknown.push(format!("{role} {name} of profile {of} {how}, and {why}"));
            }
        }
        false
    }

    /// What a plugin goes by that is not recorded.
    fn lacks(&self, plugin: &Planned) -> Option<String> {
        let Some(inputs) = &self.inputs else { return Some("what plugins look at was not recorded".into()) };
        if !plugin.instance.goes_by_inputs() {
            return Some("it goes by more than what is recorded".into());
        }
        let is_there = |key: &&DataKey| !self.slots.knows(key) || inputs.values.contains(&key.to_string());
        let is_written = |key: &&DataKey| {
            let mut written = self.now.plugins.iter().flat_map(|plugin| &plugin.keys.writes);
            written.any(|written| written.data == key.data && written.producer == key.producer)
        };
        let optional = plugin.keys.optional_reads.iter().filter(is_written);
        if let Some(key) = plugin.keys.reads.iter().chain(optional).find(|key| !is_there(key)) {
            return Some(format!("it reads {key}, which was not recorded"));
        }
        let header = plugin.keys.headers.iter().find(|header| !inputs.headers.contains(header))?;
        Some(format!("it reads the header {header}, which was not recorded"))
    }

    fn note_gone(&self, old: &ProfilePlan, new: &ProfilePlan, findings: &mut Findings) {
        for &at in &old.filters {
            let gone = &self.then.plugins[at].name;
            if new.filters.iter().all(|&at| self.now.plugins[at].name != *gone) {
                findings.notes.push(format!(
                    "filter {gone} of profile {} is not in the config; nobody scored whom it dropped, so they stay dropped",
                    old.name
                ));
            }
        }
    }
}

fn was(then: &Plan, (place, &(at, weight)): (usize, &(usize, f64))) -> Scorer {
    let name = then.plugins[at].name.clone();
    Scorer { name, weights: [weight, 0.0], then: Some(place), now: None, is_same: false }
}

/// What filters and scorers say follows from what producers knew then.
fn changed_producers(now: &Plan) -> Vec<String> {
    let changed = now.producers.iter().map(|&at| &now.plugins[at]).filter(|plugin| !plugin.taken_over);
    let note = |plugin: &Planned| {
        let name = &plugin.name;
        format!("producer {name} is not as in the recording; what it filled is taken as recorded")
    };
    changed.map(note).collect()
}
