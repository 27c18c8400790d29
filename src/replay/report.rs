//! What a replay came to.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::telemetry::utc::Utc;

/// How many cycles were decided differently, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Cycles of the recording.
    pub cycles: u64,
    /// Those that were judged again; the others were refused before anyone was scored.
    pub judged: u64,
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
}

/// What a scorer gave the two endpoints, from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct ScorerShare {
    pub scorer: String,
    /// As recorded, and now; 0 if it does not count any more.
    pub weights: [f64; 2],
    /// The score of the endpoint that was picked.
    pub recorded: Option<f64>,
    /// The score of the endpoint that is picked now.
    pub now: Option<f64>,
}

impl Difference {
    /// The weighted totals: of the endpoint that was picked and of the one that is picked now, each under the recorded
    /// weights and the present ones.
    pub fn totals(&self) -> [[f64; 2]; 2] {
        let total = |score: fn(&ScorerShare) -> Option<f64>, weight: usize| {
            self.scorers.iter().map(|s| score(s).unwrap_or_default() * s.weights[weight]).sum()
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
            differ: 0,
            first: None,
            last: None,
            differ_by_profile: BTreeMap::new(),
            picks: BTreeMap::new(),
            notes: Vec::new(),
            differences: Vec::new(),
            n_shown,
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

    /// There are no more cycles.
    pub(super) fn conclude(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }
}
