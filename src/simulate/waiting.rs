//! Who waits for whom: requests that come only when others have, or are over.

use std::ops::Range;

use super::traffic::Traffic;

/// By request: how many it still waits for, and who waits for it.
pub(super) struct Waiting {
    pub n_left: Vec<u32>,
    begin: Vec<u32>,
    followers: Vec<u32>,
}

impl Waiting {
    /// What the traffic says.
    pub fn new(traffic: &Traffic) -> Self {
        let n = traffic.jobs.len();
        let mut begin = vec![0_u32; n + 1];
        let all =
            || traffic.jobs.iter().enumerate().flat_map(|(at, job)| traffic.after(job).iter().map(move |of| (at, *of)));
        all().for_each(|(_, of)| begin[of as usize + 1] += 1);
        (0..n).for_each(|at| begin[at + 1] += begin[at]);
        let mut next = begin.clone();
        let mut followers = vec![0; begin[n] as usize];
        for (at, of) in all() {
            followers[next[of as usize] as usize] = at as u32;
            next[of as usize] += 1;
        }
        let n_left = traffic.jobs.iter().map(|job| traffic.after(job).len() as u32).collect();
        Self { n_left, begin, followers }
    }

    /// Where those who wait for a request stand.
    pub fn range(&self, of: u32) -> Range<usize> {
        self.begin[of as usize] as usize..self.begin[of as usize + 1] as usize
    }

    /// Who stands there.
    pub fn follower(&self, at: usize) -> u32 {
        self.followers[at]
    }
}
