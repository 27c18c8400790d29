//! What a cycle leaves for a recording: enough to make its choice again. Gathered on the way, in memory that is kept from
//! request to request, and handed on at the end; who writes it down is elsewhere.

use std::fmt;
use std::sync::Arc;

use epp_plugin_api::{EndpointIdx, ProfileRun, Snapshot};

use crate::sched::record::DecisionRecord;
use crate::sched::scratch::Work;

/// Takes cycles to be written down.
pub trait Tape: fmt::Debug + Send + Sync {
    /// Takes one, or drops it; never waits for a disk.
    fn take(&self, cycle: &Taped<'_>);
}

/// One cycle.
#[derive(Clone, Copy, Debug)]
pub struct Taped<'a> {
    pub record: &'a DecisionRecord,
    /// The config in force, with every default.
    pub config: &'a Arc<str>,
    pub draft: &'a Draft,
}

/// What a cycle has come to so far.
#[derive(Debug, Default)]
pub struct Draft {
    /// `None`: it was refused before anyone was scored.
    snapshot: Option<Arc<Snapshot>>,
    primary: Option<usize>,
    runs: Vec<TapedRun>,
    /// Of all runs, one after the other, as the other lists are.
    rows: Vec<EndpointIdx>,
    scores: Vec<f64>,
    kept: Vec<u32>,
}

/// One run of a profile, and how much of the lists is its own.
#[derive(Clone, Copy, Debug)]
struct TapedRun {
    profile: usize,
    seed: u64,
    n_left: usize,
    n_picked: usize,
    n_scorers: usize,
    n_filters: usize,
}

/// What one run of a profile left.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    /// The place of the profile in the config.
    pub profile: usize,
    /// What the picker's random choices began with.
    pub seed: u64,
    /// Who got past the filters, in the order of rows.
    pub left: &'a [EndpointIdx],
    /// Best first.
    pub picked: &'a [EndpointIdx],
    /// Of each scorer a score for each of `left`, before clamping and weighting; one scorer after the other.
    pub scores: &'a [f64],
    pub n_scorers: usize,
    /// How many each filter that ran has left.
    pub kept: &'a [u32],
}

impl Draft {
    /// Forgets the cycle, and keeps the memory.
    pub fn clear(&mut self) {
        (self.snapshot, self.primary) = (None, None);
        self.runs.clear();
        self.rows.clear();
        self.scores.clear();
        self.kept.clear();
    }

    /// A profile is about to be judged on this snapshot.
    pub fn judges(&mut self, snapshot: &Arc<Snapshot>) {
        self.snapshot = Some(snapshot.clone());
    }

    /// The profile at this place has just run on `work`; the picker began with this seed.
    pub fn ran(&mut self, profile: usize, seed: u64, run: &ProfileRun, work: &Work) {
        let Work { left, trail, .. } = work;
        let picked = run.targets().unwrap_or_default();
        let before = self.rows.len();
        self.rows.extend(left.iter());
        let n_left = self.rows.len() - before;
        for scores in trail.scores() {
            self.scores.extend(self.rows[before..].iter().map(|idx| scores[idx.row()]));
        }
        self.rows.extend_from_slice(picked);
        self.kept.extend(trail.left().iter().map(|left| left.count() as u32));
        let (n_scorers, n_filters) = (trail.scores().len(), trail.left().len());
        self.runs.push(TapedRun { profile, seed, n_left, n_picked: picked.len(), n_scorers, n_filters });
    }

    /// The request goes where the profile at this place says.
    pub fn decided(&mut self, primary: usize) {
        self.primary = Some(primary);
    }

    /// What the cycle was judged on, if it was.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// The place of the profile whose endpoints the request went to.
    pub fn primary(&self) -> Option<usize> {
        self.primary
    }

    /// The runs in their order.
    pub fn runs(&self) -> impl Iterator<Item = RunView<'_>> {
        let (mut rows, mut scores, mut kept) = (&self.rows[..], &self.scores[..], &self.kept[..]);
        self.runs.iter().map(move |run| RunView {
            profile: run.profile,
            seed: run.seed,
            left: first(&mut rows, run.n_left),
            picked: first(&mut rows, run.n_picked),
            scores: first(&mut scores, run.n_left * run.n_scorers),
            n_scorers: run.n_scorers,
            kept: first(&mut kept, run.n_filters),
        })
    }
}

fn first<'a, T>(of: &mut &'a [T], n: usize) -> &'a [T] {
    let (first, rest) = of.split_at(n);
    *of = rest;
    first
}
