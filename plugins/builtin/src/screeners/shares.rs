//! How traffic is shared between the revisions of a set that is rolled out, by the endpoints that each revision has.

use std::collections::BTreeMap;

/// How the endpoints of a revision become its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All endpoints of the required roles count.
    Sum,
    /// Only those of the role that has the most endpoints count.
    MaxRole,
}

/// Endpoints by revision and role.
pub type Counts<'a> = BTreeMap<(&'a str, &'a str), usize>;

/// The share of every revision, sorted by name; 0 for one that lacks a required role. Sums up to 1 unless all are 0.
pub fn of(counts: &Counts<'_>, roles: &[String], mode: Mode) -> BTreeMap<String, f64> {
    let count = |revision: &str, role: &str| counts.get(&(revision, role)).copied().unwrap_or(0);
    let covered = |revision: &str| roles.iter().all(|role| count(revision, role) > 0);
    let revisions: BTreeMap<&str, bool> = counts.keys().map(|(revision, _)| (*revision, covered(revision))).collect();
    let all = || revisions.iter().filter(|(_, covered)| **covered).map(|(revision, _)| *revision);
    let total = |role: &str| all().map(|revision| count(revision, role)).sum::<usize>();
    let decisive: Vec<&String> = match mode {
        Mode::Sum => roles.iter().collect(),
        // Of equal roles the first in the order of the config decides.
        Mode::MaxRole => roles.iter().reduce(|a, b| if total(b) > total(a) { b } else { a }).into_iter().collect(),
    };
    let weight = |revision: &str| decisive.iter().map(|role| count(revision, role)).sum::<usize>() as f64;
    let sum: f64 = all().map(weight).sum();
    let share = |(revision, covered): (&&str, &bool)| {
        ((*revision).to_owned(), if *covered { weight(revision) / sum } else { 0.0 })
    };
    revisions.iter().map(share).collect()
}

/// The revision that a draw from 0 to 1 falls on, among those with a share.
pub fn draw<T: Copy>(among: &[(T, f64)], draw: f64) -> Option<T> {
    let at = draw * among.iter().map(|(_, share)| share).sum::<f64>();
    let mut reached = 0.0;
    let hit = among.iter().find(|(_, share)| {
        reached += share;
        reached > at
    });
    hit.or(among.last()).map(|(revision, _)| *revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::close;

    #[track_caller]
    fn check(mode: Mode, counts: &[(&str, usize, usize)], expected: &[f64]) {
        let roles = ["prefill".to_owned(), "decode".to_owned()];
        let mut known = Counts::new();
        for &(revision, prefill, decode) in counts {
            known.extend([("prefill", prefill), ("decode", decode)].map(|(role, n)| ((revision, role), n)));
        }
        close(&of(&known, &roles, mode).into_values().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_required_role_counts() {
        check(Mode::Sum, &[("v1", 2, 8), ("v2", 1, 2)], &[10.0 / 13.0, 3.0 / 13.0]);
        check(Mode::Sum, &[("v1", 2, 8), ("v2", 1, 0)], &[1.0, 0.0]);
    }

    #[test]
    fn the_largest_role_alone_counts() {
        check(Mode::MaxRole, &[("v1", 2, 8), ("v2", 1, 2)], &[0.8, 0.2]);
        check(Mode::MaxRole, &[("v1", 8, 1), ("v2", 2, 4)], &[0.8, 0.2]);
        check(Mode::MaxRole, &[("v1", 8, 1), ("v2", 2, 4), ("v3", 100, 0)], &[0.8, 0.2, 0.0]);
        check(Mode::MaxRole, &[("v1", 3, 1), ("v2", 1, 3)], &[0.75, 0.25]);
    }

    #[test]
    fn a_draw_falls_on_a_revision_by_its_share() {
        let shares = [("v1", 0.75), ("v2", 0.25)];
        for (at, expected) in [(0.0, Some("v1")), (0.74, Some("v1")), (0.9, Some("v2")), (1.0, Some("v2"))] {
            assert_eq!(draw(&shares, at), expected);
        }
        assert_eq!(draw::<&str>(&[], 0.5), None);
    }
}
