//! What one run of a profile leaves behind: who passed each filter and what each scorer said.

use epp_plugin_api::Candidates;

/// What a profile's run leaves for its record; reused from request to request.
#[derive(Debug, Default)]
pub struct Trail {
    left: Vec<Candidates>,
    filtered: usize,
    scores: Vec<Vec<f64>>,
    scored: usize,
}

impl Trail {
    /// Forgets the last run.
    pub fn reset(&mut self) {
        (self.filtered, self.scored) = (0, 0);
    }

    /// One more filter has left these.
    pub fn filtered(&mut self, left: &Candidates) {
        if self.left.len() == self.filtered {
            self.left.push(Candidates::default());
        }
        self.left[self.filtered].copy_from(left);
        self.filtered += 1;
    }

    /// Zeros, one a row, for one more scorer to write its scores into.
    pub fn next_scores(&mut self, rows: usize) -> &mut [f64] {
        if self.scores.len() == self.scored {
            self.scores.push(Vec::new());
        }
        let scores = &mut self.scores[self.scored];
        self.scored += 1;
        scores.clear();
        scores.resize(rows, 0.0);
        scores
    }

    /// Who was left after each filter that ran.
    pub fn left(&self) -> &[Candidates] {
        &self.left[..self.filtered]
    }

    /// As [`Self::scores`], for whoever goes on with them.
    pub fn scores_mut(&mut self) -> &mut [Vec<f64>] {
        &mut self.scores[..self.scored]
    }

    /// The scores of each scorer that ran, by row.
    pub fn scores(&self) -> &[Vec<f64>] {
        &self.scores[..self.scored]
    }
}
