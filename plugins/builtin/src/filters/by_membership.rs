//! Remembers which endpoints match a rule over their entries, for as long as the membership stays the same.

use epp_plugin_api::{Candidates, EndpointMeta, Snapshot};
use parking_lot::RwLock;

/// The answer of one rule for one membership. Labels are compared once a membership, not once a request.
#[derive(Debug, Default)]
pub struct ByMembership(RwLock<Option<(u64, Candidates)>>);

impl ByMembership {
    /// Takes out of `keep` what does not match. Asks `matches` about every endpoint if the membership has changed.
    pub fn retain(&self, snapshot: &Snapshot, keep: &mut Candidates, matches: impl Fn(&EndpointMeta) -> bool) {
        if let Some((_, known)) = self.0.read().as_ref().filter(|(of, _)| *of == snapshot.membership()) {
            keep.intersect(known);
            return;
        }
        let mut all = Candidates::all(snapshot.rows());
        all.retain(|idx| matches(snapshot.meta(idx)));
        keep.intersect(&all);
        *self.0.write() = Some((snapshot.membership(), all));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::testing::{Row, snapshot};

    use super::*;

    #[test]
    fn asks_once_a_membership() {
        let (rule, asked) = (ByMembership::default(), Cell::new(0));
        let kept = |membership| {
            let board = snapshot(membership, ["a", "b", "a"].map(|v| Row::labelled(&[("t", v)])));
            let mut keep = Candidates::all(3);
            rule.retain(&board, &mut keep, |meta| {
                asked.set(asked.get() + 1);
                meta.label("t") == Some("a")
            });
            (keep.count(), asked.get())
        };
        assert_eq!(kept(1), (2, 3));
        assert_eq!(kept(1), (2, 3));
        assert_eq!(kept(2), (2, 6));
    }
}
