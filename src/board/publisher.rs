//! Board, publisher: makes the next snapshot of what is known, and tells whether it differs from the last.

use std::time::Duration;

use epp_plugin_api::{EndpointIdx, Observed, Snapshot, SnapshotRow};
use tokio::time::Instant;

use super::membership::Membership;
use super::staleness::{Lines, News};

/// Whether what was observed counts now.
pub fn is_fresh(observed: &Observed, now: Instant, staleness: Duration) -> bool {
    observed.at.is_some_and(|at| now.saturating_duration_since(at) <= staleness)
}

/// Makes the snapshot of all members under the number `membership`.
pub fn snapshot(members: &Membership, membership: u64, now: Instant, staleness: Duration) -> Snapshot {
    let row =
        |m: &super::membership::Member| SnapshotRow { id: m.id, meta: m.meta.clone(), observed: m.watched.observed() };
    Snapshot::new(membership, members.members().iter().map(row), now, staleness)
}

/// Makes the next snapshot of the members of `last`, unless it would be the same.
pub fn next(last: &Snapshot, members: &Membership, now: Instant, staleness: Duration) -> Option<Snapshot> {
    let differs = |(row, member): (usize, &super::membership::Member)| {
        let (idx, observed) = (EndpointIdx(row as u32), member.watched.observed());
        observed != *last.observed(idx) || is_fresh(&observed, now, staleness) != last.is_fresh(idx)
    };
    let any = members.members().iter().enumerate().any(differs);
    any.then(|| snapshot(members, last.membership(), now, staleness))
}

/// Says which members fell silent or were heard again by `snapshot`, which is theirs.
pub fn tell(snapshot: &Snapshot, members: &mut Membership, now: Instant, staleness: Duration, lines: &mut Lines) {
    for (idx, member) in snapshot.indices().zip(members.members_mut()) {
        match member.freshness.note(snapshot.is_fresh(idx), staleness, now, lines) {
            Some(News::Stale) => {
                let error = member.watched.health().last_error.unwrap_or_default();
                let endpoint = &member.meta.name;
                tracing::warn!(%endpoint, error, "endpoint is stale: nothing was heard of its engine lately");
            }
            Some(News::Back) => tracing::info!(endpoint = %member.meta.name, "endpoint is fresh again"),
            None => {}
        }
    }
}
