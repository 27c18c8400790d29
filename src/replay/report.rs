//! What a replay came to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::telemetry::utc::Utc;

/// How many cycles were decided differently, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Cycles of the recording.
    pub cycles: u64,
    /// Those that were judged again; the others were refused before anyone was scored, or cannot be judged.
    pub judged: u64,
    /// Those that cannot be judged, because a plugin that is taken as recorded said nothing of an endpoint that it would be
    /// asked of now.
    pub unknown: u64,
    /// Those of the judged in which any profile picks others, or in another order.
    pub differ: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Utc>,
    /// Runs that differ, by profile.
    pub differ_by_profile: BTreeMap<String, u64>,
    /// How many requests each endpoint got and would get.
    pub picks: BTreeMap<String, Picks>,
    /// What a person should know of how the configs differ.
    pub notes: Vec<String>,
    /// The first differences.
    pub differences: Vec<Difference>,
    #[serde(skip)]
    n_shown: usize,
    /// How often each scorer that has not changed scored otherwise.
    #[serde(skip)]
    otherwise: BTreeMap<String, u64>,
    /// How often each plugin said nothing of an endpoint.
    #[serde(skip)]
    silent: BTreeMap<String, u64>,
}

/// Requests of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Picks {
    pub recorded: u64,
    pub now: u64,
}

/// A run that picks another endpoint: the first place where the two choices part.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    pub at: Utc,
    pub request: String,
    pub model: String,
    pub profile: String,
    /// `None`: nobody.
    pub recorded: Option<String>,
    pub now: Option<String>,
    pub scorers: Vec<ScorerShare>,
    /// Where one of the two was dropped by a filter under the other config.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// An endpoint that a filter dropped.
#[derive(Clone, Debug, Serialize)]
pub struct Dropped {
    pub endpoint: Option<String>,
    /// `None`: it cannot be told which.
    pub filter: Option<String>,
    /// Whether it is dropped now; otherwise it was then.
    pub is_now: bool,
}

/// What a scorer gave the two endpoints, from 0 to 1: as recorded, and now. `None`: nothing, because it was not there, or a
/// filter had dropped the endpoint.
#[derive(Clone, Debug, Serialize)]
pub struct ScorerShare {
    pub scorer: String,
    /// As recorded, and now; 0 if it does not count.
    pub weights: [f64; 2],
    /// Of the endpoint that was picked.
    pub recorded: [Option<f64>; 2],
    /// Of the endpoint that is picked now.
    pub now: [Option<f64>; 2],
}

impl Difference {
    /// The weighted totals: of the endpoint that was picked and of the one that is picked now, each as recorded and now.
    pub fn totals(&self) -> [[f64; 2]; 2] {
        let total = |of: fn(&ScorerShare) -> [Option<f64>; 2], when: usize| {
            self.scorers.iter().map(|s| of(s)[when].unwrap_or_default() * s.weights[when]).sum()
        };
        [[total(|s| s.recorded, 0), total(|s| s.recorded, 1)], [total(|s| s.now, 0), total(|s| s.now, 1)]]
    }
}

impl Report {
    /// Nothing yet; will tell of so many differences in full.
    pub fn new(n_shown: usize) -> Self {
        Self {
            cycles: 0,
            judged: 0,
            unknown: 0,
            differ: 0,
            first: None,
            last: None,
            differ_by_profile: BTreeMap::new(),
            picks: BTreeMap::new(),
            notes: Vec::new(),
            differences: Vec::new(),
            n_shown,
            otherwise: BTreeMap::new(),
            silent: BTreeMap::new(),
        }
    }

    /// One more cycle.
    pub(super) fn cycle(&mut self, at: Utc, is_judged: bool, differs: bool) {
        self.cycles += 1;
        self.judged += u64::from(is_judged);
        self.differ += u64::from(differs);
        self.first.get_or_insert(at);
        self.last = Some(at);
    }

    /// Where a request went, and where it would go.
    pub(super) fn picked(&mut self, recorded: Option<String>, now: Option<String>) {
        if let Some(endpoint) = recorded {
            self.picks.entry(endpoint).or_default().recorded += 1;
        }
        if let Some(endpoint) = now {
            self.picks.entry(endpoint).or_default().now += 1;
        }
    }

    /// A run picks others.
    pub(super) fn differs(&mut self, profile: &str, difference: impl FnOnce() -> Difference) {
        *self.differ_by_profile.entry(profile.to_owned()).or_default() += 1;
        if self.differences.len() < self.n_shown {
            self.differences.push(difference());
        }
    }

    /// A scorer that has not changed scores otherwise than recorded.
    pub(super) fn otherwise(&mut self, scorer: &str) {
        *self.otherwise.entry(scorer.to_owned()).or_default() += 1;
    }

    /// A cycle cannot be judged, because this plugin said nothing of an endpoint.
    pub(super) fn unknown(&mut self, plugin: String) {
        self.unknown += 1;
        *self.silent.entry(plugin).or_default() += 1;
    }

    /// There are no more cycles.
    pub(super) fn conclude(&mut self, notes: Vec<String>) {
        self.notes = notes;
        for (scorer, n) in std::mem::take(&mut self.otherwise) {
            let note = format!(
                "scorer {scorer} has not changed and scores otherwise than recorded in {n} runs: the recording was made by another version, or it looks at what is not recorded"
            );
            self.notes.push(note);
        }
        for (plugin, n) in std::mem::take(&mut self.silent) {
            let note = format!(
                "{n} decisions cannot be judged: {plugin} is taken as recorded, and said nothing of endpoints that another filter had dropped"
            );
            self.notes.push(note);
        }
    }
}
