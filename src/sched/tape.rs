//! What a cycle leaves for a recording: enough to make its choice again, and what its plugins looked at. Gathered on the
//! way, in memory that is kept from request to request, and handed on at the end; who writes it down is elsewhere.

use std::fmt;
use std::sync::Arc;

use epp_plugin_api::recorded::RecordedValue;
use epp_plugin_api::{Candidates, Columns, EndpointIdx, InferenceRequest, ProfileRun, Snapshot};

use crate::sched::record::DecisionRecord;
use crate::sched::scratch::{LoadBuffers, Work};

/// Takes cycles to be written down.
pub trait Tape: fmt::Debug + Send + Sync {
    /// Takes one, or drops it; never waits for a disk.
    fn take(&self, cycle: &Taped<'_>);
}

/// What holds for all cycles of one config.
#[derive(Debug)]
pub struct About {
    /// The config in force, with every default.
    pub config: String,
    /// What producers fill and recordings keep.
    pub values: Vec<RecordedValue>,
    /// The headers of requests that filters and scorers look at.
    pub headers: Vec<String>,
}

/// One cycle.
#[derive(Clone, Copy, Debug)]
pub struct Taped<'a> {
    pub record: &'a DecisionRecord,
    pub about: &'a Arc<About>,
    pub draft: &'a Draft,
    /// What its plugins looked at, beside the snapshot.
    pub seen: Seen<'a>,
}

/// What the plugins of a cycle looked at. All but the request means nothing if the cycle was refused before anyone was
/// scored.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub request: &'a InferenceRequest,
    /// Everybody who might have served it.
    pub candidates: &'a Candidates,
    pub columns: &'a Columns,
    /// The loads of stale rows are with what is in flight there.
    pub loads: &'a LoadBuffers,
}

impl Seen<'_> {
    /// How many requests were known to be in flight on a stale row, beside its load in the snapshot.
    pub fn in_flight(&self, snapshot: &Snapshot, idx: EndpointIdx) -> i64 {
        let running = self.loads.running.get(idx.row()).copied().unwrap_or_default();
        (running - snapshot.running()[idx.row()]).round() as i64
    }
}

/// What a cycle has come to so far.
#[derive(Debug, Default)]
pub struct Draft {
    /// `None`: it was refused before anyone was scored.
    snapshot: Option<Arc<Snapshot>>,
    primary: Option<usize>,
    /// With the memory of more runs than there were.
    runs: Vec<TapedRun>,
    n_runs: usize,
}

/// What one run of a profile left.
#[derive(Debug, Default)]
pub struct TapedRun {
    /// The place of the profile in the config.
    pub profile: usize,
    /// What the picker's random choices began with.
    pub seed: u64,
    /// Whom another stage was given to.
    pub peer: Option<EndpointIdx>,
    /// Who got past the filters.
    pub left: Candidates,
    /// Best first.
    pub picked: Vec<EndpointIdx>,
    /// Of each scorer that ran a score for each row, before clamping and weighting; they mean something for who is left.
    scores: Vec<Vec<f64>>,
    n_scorers: usize,
    /// How many each filter that ran has left.
    pub kept: Vec<u32>,
}

impl TapedRun {
    /// The scores of each scorer that ran, by row.
    pub fn scores(&self) -> &[Vec<f64>] {
        &self.scores[..self.n_scorers]
    }
}

impl Draft {
    /// Forgets the cycle, and keeps the memory.
    pub fn clear(&mut self) {
        (self.snapshot, self.primary, self.n_runs) = (None, None, 0);
    }

    /// A profile is about to be judged on this snapshot.
    pub fn judges(&mut self, snapshot: &Arc<Snapshot>) {
        self.snapshot = Some(snapshot.clone());
    }

    /// The profile at this place has just run on `work`; the picker began with this seed. Takes the scores out of `work`.
    pub fn ran(&mut self, profile: usize, seed: u64, run: &ProfileRun, work: &mut Work) {
        if self.runs.len() == self.n_runs {
            self.runs.push(TapedRun::default());
        }
        let taped = &mut self.runs[self.n_runs];
        self.n_runs += 1;
        (taped.profile, taped.seed, taped.peer) = (profile, seed, work.runs.peer);
        taped.left.copy_from(&work.left);
        taped.picked.clear();
        taped.picked.extend_from_slice(run.targets().unwrap_or_default());
        taped.kept.clear();
        taped.kept.extend(work.trail.left().iter().map(|left| left.count() as u32));
        let scores = work.trail.scores_mut();
        taped.n_scorers = scores.len();
        if taped.scores.len() < scores.len() {
            taped.scores.resize_with(scores.len(), Vec::new);
        }
        for (taped, scores) in taped.scores.iter_mut().zip(scores) {
            std::mem::swap(taped, scores);
        }
    }

    /// The request goes where the profile at this place says.
    pub fn decided(&mut self, primary: usize) {
        self.primary = Some(primary);
    }

    /// What the cycle was judged on, if it was.
    pub fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.snapshot.as_ref()
    }

    /// The place of the profile whose endpoints the request went to.
    pub fn primary(&self) -> Option<usize> {
        self.primary
    }

    /// The runs in their order.
    pub fn runs(&self) -> &[TapedRun] {
        &self.runs[..self.n_runs]
    }
}
