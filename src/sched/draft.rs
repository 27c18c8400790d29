//! What a cycle has come to so far, for a recording; in memory that is kept from request to request.

use std::sync::Arc;

use epp_plugin_api::{Candidates, EndpointIdx, ProfileRun, Snapshot};

use crate::sched::trail::Trail;

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

    /// Profiles were judged on this snapshot.
    pub fn judged(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = Some(snapshot);
    }

    /// The profile at this place has just run, and its picker began with this seed; `peer` is whom another stage was given
    /// to. Takes the scores out of the trail.
    pub fn ran(
        &mut self,
        (profile, seed): (usize, u64),
        run: &ProfileRun,
        peer: Option<EndpointIdx>,
        left: &Candidates,
        trail: &mut Trail,
    ) {
        if self.runs.len() == self.n_runs {
            self.runs.push(TapedRun::default());
        }
        let taped = &mut self.runs[self.n_runs];
        self.n_runs += 1;
        (taped.profile, taped.seed, taped.peer) = (profile, seed, peer);
        taped.left.copy_from(left);
        taped.picked.clear();
        taped.picked.extend_from_slice(run.targets().unwrap_or_default());
        taped.kept.clear();
        taped.kept.extend(trail.left().iter().map(|left| left.count() as u32));
        let scores = trail.scores_mut();
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
