//! Why a request went where it went: one record a decision.

use std::sync::{Arc, OnceLock};

use epp_plugin_api::{Candidates, EndpointIdx, EndpointMeta, InferenceRequest, ProfileRun, Snapshot};
use serde::{Serialize, Serializer};

use crate::flow::refusal::Refusal;
use crate::sched::profile::Profile;
use crate::sched::scratch::Work;
use crate::telemetry::utc::Utc;

/// Endpoints of a profile that a record tells of: the best ones, whom the pick was among.
const MOST_ENDPOINTS: usize = 8;
/// Names of endpoints that a filter dropped.
const MOST_DROPPED: usize = 8;

/// What led to one decision. Holds nothing of the request's body but the name of its model.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionRecord {
    /// When.
    pub at: Utc,
    /// The value of `x-request-id`.
    pub request: String,
    pub model: String,
    pub target_model: String,
    pub priority: i32,
    /// The config that decided.
    pub generation: u64,
    /// What the random choices of this decision began with.
    pub seed: u64,
    /// Endpoints that there were, and those that might have served the request.
    pub endpoints: usize,
    pub candidates: usize,
    /// How long it was kept back so that those that belong together could be placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gathered_seconds: Option<f64>,
    pub profiles: Vec<ProfileRecord>,
    /// The destination, best first; empty if the request was refused.
    pub picked: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalRecord>,
    /// What the engine says of the prompt once its response is complete.
    #[serde(skip_serializing_if = "unknown", serialize_with = "known")]
    pub served: OnceLock<Served>,
}

/// One profile that ran.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileRecord {
    pub name: Arc<str>,
    pub filters: Vec<FilterRecord>,
    pub scorers: Vec<ScorerRecord>,
    pub picker: Arc<str>,
    /// The best endpoints, best first.
    pub endpoints: Vec<EndpointRecord>,
    #[serde(serialize_with = "addresses")]
    pub picked: Vec<Arc<EndpointMeta>>,
}

/// What a filter did.
#[derive(Clone, Debug, Serialize)]
pub struct FilterRecord {
    pub plugin: Arc<str>,
    pub kept: usize,
    pub dropped: usize,
    /// Some of the dropped.
    #[serde(serialize_with = "names")]
    pub names: Vec<Arc<EndpointMeta>>,
}

/// A scorer, in the order of the scores of [`EndpointRecord`].
#[derive(Clone, Debug, Serialize)]
pub struct ScorerRecord {
    pub plugin: Arc<str>,
    pub weight: f64,
}

/// An endpoint's scores: before clamping and weighting, one a scorer, and the total of all.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointRecord {
    #[serde(serialize_with = "address")]
    pub endpoint: Arc<EndpointMeta>,
    pub total: f64,
    pub scores: Vec<f64>,
}

/// Why nobody was picked.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalRecord {
    pub status: u16,
    pub code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    pub message: String,
}

/// What came of one prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Served {
    pub prompt_tokens: u64,
    /// As the engine reports.
    pub cached_tokens: u64,
    /// As was believed at the pick; `None` if no producer said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_cached_tokens: Option<u64>,
}

fn unknown(of: &OnceLock<Served>) -> bool {
    of.get().is_none()
}

fn known<S: Serializer>(of: &OnceLock<Served>, to: S) -> Result<S::Ok, S::Error> {
    of.get().serialize(to)
}

fn address<S: Serializer>(of: &EndpointMeta, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&of.host_port)
}

fn addresses<S: Serializer>(of: &[Arc<EndpointMeta>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(of.iter().map(|meta| &meta.host_port))
}

fn names<S: Serializer>(of: &[Arc<EndpointMeta>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(of.iter().map(|meta| meta.name.to_string()))
}

impl DecisionRecord {
    /// Begins the record of a request.
    pub fn new(request: &InferenceRequest, generation: u64, seed: u64) -> Self {
        Self {
            at: Utc::now(),
            request: request.id.clone(),
            model: request.model.clone(),
            target_model: request.target_model.clone(),
            priority: request.priority,
            generation,
            seed,
            endpoints: 0,
            candidates: 0,
            gathered_seconds: None,
            profiles: Vec::new(),
            picked: Vec::new(),
            refused: None,
            served: OnceLock::new(),
        }
    }

    /// The response is complete; only the first word counts.
    pub fn served(&self, served: Served) {
        let _ = self.served.set(served);
    }

    /// Adds a profile that has just run.
    pub fn ran(&mut self, profile: &Profile, run: &ProfileRun, snapshot: &Snapshot, work: &Work) {
        let Work { candidates, left, totals, trail, .. } = work;
        let mut before = candidates;
        let mut filters = Vec::with_capacity(trail.left().len());
        for (plugin, after) in profile.names.filters.iter().zip(trail.left()) {
            let (kept, all) = (after.count(), before.count());
            let dropped = all - kept;
            let gone = before.iter().filter(|idx| !after.contains(*idx)).take(MOST_DROPPED.min(dropped));
            let names = gone.map(|idx| snapshot.meta(idx).clone()).collect();
            filters.push(FilterRecord { plugin: plugin.clone(), kept, dropped, names });
            before = after;
        }
        let scorers = profile.names.scorers.iter().zip(&profile.scorers);
        self.profiles.push(ProfileRecord {
            name: profile.names.profile.clone(),
            filters,
            scorers: scorers.map(|(p, s)| ScorerRecord { plugin: p.clone(), weight: s.weight }).collect(),
            picker: profile.names.picker.clone(),
            endpoints: best(left, totals, run.targets().unwrap_or_default())
                .map(|idx| EndpointRecord {
                    endpoint: snapshot.meta(idx).clone(),
                    total: totals[idx.row()],
                    scores: trail.scores().iter().map(|scores| scores[idx.row()]).collect(),
                })
                .collect(),
            picked: run.targets().unwrap_or_default().iter().map(|i| snapshot.meta(*i).clone()).collect(),
        });
    }

    /// Ends the record of a request that was refused.
    pub fn refused(&mut self, refusal: &Refusal) {
        self.refused = Some(RefusalRecord {
            status: refusal.status(),
            code: refusal.code(),
            reason: refusal.reason(),
            message: refusal.message(),
        });
    }
}

/// The picked ones first, then those with the highest totals.
fn best(left: &Candidates, totals: &[f64], picked: &[EndpointIdx]) -> impl Iterator<Item = EndpointIdx> {
    let mut best: Vec<EndpointIdx> = Vec::with_capacity(MOST_ENDPOINTS + 1);
    for idx in left.iter().filter(|idx| !picked.contains(idx)) {
        let total = totals[idx.row()];
        // Nearly all of many endpoints stop here.
        if best.get(MOST_ENDPOINTS - 1).is_some_and(|last| totals[last.row()] >= total) {
            continue;
        }
        let at = best.partition_point(|b| totals[b.row()] >= total);
        best.truncate(MOST_ENDPOINTS - 1);
        best.insert(at, idx);
    }
    let picked: Vec<EndpointIdx> = picked.iter().copied().take(MOST_ENDPOINTS).collect();
    picked.into_iter().chain(best).take(MOST_ENDPOINTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picked_come_first_and_then_the_highest() {
        let totals: Vec<f64> = (0..20).map(f64::from).collect();
        let got: Vec<u32> = best(&Candidates::all(20), &totals, &[EndpointIdx(3)]).map(|i| i.0).collect();
        assert_eq!(got, [3, 19, 18, 17, 16, 15, 14, 13]);
        assert_eq!(best(&Candidates::none(20), &totals, &[]).count(), 0);
    }
}
