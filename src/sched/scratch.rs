//! The memory of one cycle, kept from request to request so that a cycle allocates nothing once warm.

use std::ops::{Deref, DerefMut};

use epp_plugin_api::{Candidates, Columns, EndpointIdx, ProfileRun, Runs, Targets};
use parking_lot::Mutex;

use crate::sched::draft::Draft;
use crate::sched::trail::Trail;

/// Buffers for one request in rooms 4 to 6.
#[derive(Debug, Default)]
pub struct Scratch {
    pub loads: LoadBuffers,
    pub work: Work,
}

/// Loads by row where they differ from the snapshot's.
#[derive(Debug, Default)]
pub struct LoadBuffers {
    pub waiting: Vec<f64>,
    pub running: Vec<f64>,
}

/// What the profiles work on.
#[derive(Debug, Default)]
pub struct Work {
    pub columns: Columns,
    /// Everybody who may serve the request.
    pub candidates: Candidates,
    /// Who is left in the profile that runs.
    pub left: Candidates,
    /// Who has passed the screeners so far.
    pub screened: Candidates,
    /// Totals by row of the profile that ran last.
    pub totals: Vec<f64>,
    pub runs: Runs,
    /// Who was left, with their totals, in each profile that ran; by the place of the profile.
    pub scored: Vec<Vec<(EndpointIdx, f64)>>,
    pub rng: fastrand::Rng,
    pub trail: Trail,
    /// What is gathered for a recording, if there is one.
    pub draft: Option<Draft>,
    spare: Vec<Targets>,
}

impl Work {
    /// Forgets the last request and makes ready for one on a snapshot of `rows` rows.
    pub fn reset<'a>(&mut self, rows: usize, profiles: impl ExactSizeIterator<Item = &'a str> + Clone) {
        self.columns.reset(rows);
        self.candidates.fill(rows);
        for run in &mut self.runs.runs {
            if let ProfileRun::Chose(targets) = std::mem::take(run) {
                self.spare.push(targets);
            }
        }
        self.runs.peer = None;
        let n = profiles.len();
        if !self.runs.names.iter().map(String::as_str).eq(profiles.clone()) {
            self.runs.names = profiles.map(str::to_owned).collect();
        }
        self.runs.runs.resize(n, ProfileRun::NotRun);
        self.scored.resize_with(n, Vec::new);
        self.scored.iter_mut().for_each(Vec::clear);
    }

    /// An empty list of targets, with the memory of an earlier one if there is any.
    pub fn spare_targets(&mut self) -> Targets {
        let mut targets = self.spare.pop().unwrap_or_default();
        targets.clear();
        targets
    }

    /// Takes a list back.
    pub fn give_back(&mut self, targets: Targets) {
        self.spare.push(targets);
    }
}

/// So many scratches are kept; more than that exist only while more requests are in rooms 4 to 6 at once.
const MOST_KEPT: usize = 256;

/// Hands out scratches.
#[derive(Debug, Default)]
pub struct ScratchPool(Mutex<Vec<Scratch>>);

impl ScratchPool {
    /// Lends a scratch until the lease is dropped.
    pub fn lease(&self) -> Lease<'_> {
        Lease { scratch: self.0.lock().pop().unwrap_or_default(), pool: self }
    }
}

/// A scratch that goes back to its pool.
#[derive(Debug)]
pub struct Lease<'a> {
    scratch: Scratch,
    pool: &'a ScratchPool,
}

impl Deref for Lease<'_> {
    type Target = Scratch;

    fn deref(&self) -> &Scratch {
        &self.scratch
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut kept = self.pool.0.lock();
        if kept.len() < MOST_KEPT {
            kept.push(std::mem::take(&mut self.scratch));
        }
    }
}
