//! What a cycle leaves for a recording: enough to make its choice again. Gathered on the way and handed on at the end; who
//! writes it down is elsewhere, and nobody waits for it.

use std::sync::Arc;

use epp_plugin_api::{EndpointIdx, ProfileRun, Snapshot};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use crate::sched::record::DecisionRecord;
use crate::sched::scratch::Work;

/// One cycle.
#[derive(Clone, Debug)]
pub struct Taped {
    pub record: Arc<DecisionRecord>,
    /// The config in force, with every default.
    pub config: Arc<str>,
    /// `None`: it was refused before anyone was scored.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The place of the profile whose endpoints the request went to.
    pub primary: Option<usize>,
    pub runs: Vec<TapedRun>,
    /// Of all runs, one after the other.
    rows: Vec<EndpointIdx>,
    scores: Vec<f64>,
    kept: Vec<u32>,
}

/// One run of a profile. What it says of rows stands in lists that all runs share.
#[derive(Clone, Copy, Debug)]
pub struct TapedRun {
    /// The place of the profile in the config.
    pub profile: usize,
    /// What the picker's random choices began with.
    pub seed: u64,
    n_left: usize,
    n_picked: usize,
    n_scorers: usize,
    n_filters: usize,
}

/// What one run of a profile left.
#[derive(Clone, Copy, Debug)]
pub struct RunView<'a> {
    pub profile: usize,
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

impl Taped {
    /// The runs in their order.
    pub fn views(&self) -> impl Iterator<Item = RunView<'_>> {
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

/// A cycle that is under way.
#[derive(Debug, Default)]
pub struct Draft {
    snapshot: Option<Arc<Snapshot>>,
    primary: Option<usize>,
    runs: Vec<TapedRun>,
    rows: Vec<EndpointIdx>,
    scores: Vec<f64>,
    kept: Vec<u32>,
}

impl Draft {
    /// A profile is about to be judged on this snapshot.
    pub fn judges(&mut self, snapshot: &Arc<Snapshot>) {
        self.snapshot = Some(snapshot.clone());
    }

    /// The profile at this place has just run on `work`; the picker began with this seed.
    pub fn ran(&mut self, profile: usize, seed: u64, run: &ProfileRun, work: &Work) {
        let Work { left, trail, .. } = work;
        let (n_left, picked) = (left.count(), run.targets().unwrap_or_default());
        let n_scorers = trail.scores().len();
        self.rows.reserve(n_left + picked.len());
        self.rows.extend(left.iter());
        self.rows.extend_from_slice(picked);
        self.scores.reserve(n_left * n_scorers);
        for scores in trail.scores() {
            self.scores.extend(left.iter().map(|idx| scores[idx.row()]));
        }
        self.kept.extend(trail.left().iter().map(|left| left.count() as u32));
        let (n_picked, n_filters) = (picked.len(), trail.left().len());
        self.runs.push(TapedRun { profile, seed, n_left, n_picked, n_scorers, n_filters });
    }

    /// The request goes where the profile at this place says.
    pub fn decided(&mut self, primary: usize) {
        self.primary = Some(primary);
    }

    fn finish(self, record: Arc<DecisionRecord>, config: Arc<str>) -> Taped {
        let Self { snapshot, primary, runs, rows, scores, kept } = self;
        Taped { record, config, snapshot, primary, runs, rows, scores, kept }
    }
}

/// Where cycles go to be written down. When whoever writes cannot keep up, what is too much is dropped and counted.
#[derive(Clone, Debug)]
pub struct Tape {
    to: mpsc::Sender<Taped>,
    dropped: Counter,
}

impl Tape {
    /// A tape whose other end takes cycles, and the counter of those that it did not take.
    pub fn new(to: mpsc::Sender<Taped>, dropped: Counter) -> Self {
        Self { to, dropped }
    }

    /// Hands a cycle on.
    pub fn take(&self, draft: Draft, record: Arc<DecisionRecord>, config: Arc<str>) {
        if self.to.try_send(draft.finish(record, config)).is_err() {
            self.dropped.inc();
        }
    }
}
