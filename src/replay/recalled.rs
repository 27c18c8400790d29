//! Plugins whose words are taken as recorded, in the place of those that cannot be run anew.

use std::sync::Arc;

use epp_plugin_api::{Candidates, Columns, Cycle, Filter, Scorer};
use parking_lot::Mutex;

/// What the plugins of one recorded run said.
#[derive(Debug, Default)]
pub struct Recalled {
    /// Who got past the filters.
    pub left: Candidates,
    /// Of each recorded scorer, by row.
    pub scores: Vec<Vec<f64>>,
    /// Who came to each recorded filter, and whom it left; `None` if that cannot be told any more.
    pub filters: Vec<Option<[Candidates; 2]>>,
    /// A plugin that was asked of an endpoint that it said nothing of.
    pub unknown: Option<String>,
}

/// A recorded plugin, by its place.
pub struct Taken {
    pub name: Arc<str>,
    pub place: usize,
    pub recalled: Arc<Mutex<Recalled>>,
}

impl Scorer for Taken {
    fn score(&self, _cx: &Cycle<'_>, _columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let recalled = &mut *self.recalled.lock();
        let Some(told) =
            recalled.scores.get(self.place).filter(|_| among.iter().all(|idx| recalled.left.contains(idx)))
        else {
            recalled.unknown = Some(format!("scorer {}", self.name));
            return;
        };
        for idx in among.iter() {
            scores[idx.row()] = told.get(idx.row()).copied().unwrap_or_default();
        }
    }
}

impl Filter for Taken {
    fn filter(&self, _cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        let recalled = &mut *self.recalled.lock();
        match recalled.filters.get(self.place) {
            Some(Some([came, left])) if keep.iter().all(|idx| came.contains(idx)) => keep.intersect(left),
            Some(_) | None => recalled.unknown = Some(format!("filter {}", self.name)),
        }
    }
}
