//! The board at one moment: every endpoint with what its engine last said, as parallel slices by row.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Adapters, EndpointId, EndpointIdx, EndpointMeta};

/// What an engine last said of itself. `None`: it never said so, or said something that is no number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Requests that wait for a place in the engine's batch.
    pub waiting: Option<f64>,
    /// Requests in the engine's batch.
    pub running: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Tokens a KV block holds.
    pub block_tokens: Option<u32>,
    /// KV blocks that the engine has.
    pub blocks: Option<u32>,
    pub adapters: Option<Arc<Adapters>>,
    /// Values of the custom metrics of the engine's mapping, by attribute key.
    pub custom: Arc<[(String, f64)]>,
    /// When the last page was read that said anything.
    pub at: Option<Instant>,
}

/// One endpoint as it goes into a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotRow {
    pub id: EndpointId,
    pub meta: Arc<EndpointMeta>,
    pub observed: Observed,
}

/// All endpoints at one moment. Immutable; the rooms after the board see one and the same.
///
/// A load that is unknown or stale counts as the mean of the fresh endpoints' loads, so that an endpoint whose engine
/// cannot be read looks neither idle nor full. With no fresh endpoint at all every load is 0, and all are equal.
#[derive(Debug, Default)]
pub struct Snapshot {
    membership: u64,
    ids: Vec<EndpointId>,
    meta: Vec<Arc<EndpointMeta>>,
    observed: Vec<Observed>,
    waiting: Vec<f64>,
    running: Vec<f64>,
    kv_usage: Vec<f64>,
    unknown: Vec<EndpointIdx>,
    fresh: Vec<bool>,
}

impl Snapshot {
    /// Puts a snapshot together as of `now`. `membership` changes whenever an endpoint comes, goes, or changes its
    /// entry. What was observed longer than `staleness` ago is stale.
    pub fn new(
        membership: u64,
        rows: impl IntoIterator<Item = SnapshotRow>,
        now: Instant,
        staleness: Duration,
    ) -> Self {
        let mut s = Self { membership, ..Self::default() };
        for row in rows {
            let fresh = row.observed.at.is_some_and(|at| now.saturating_duration_since(at) <= staleness);
            s.ids.push(row.id);
            s.meta.push(row.meta);
            s.observed.push(row.observed);
            s.fresh.push(fresh);
        }
        s.waiting = s.known_or_mean(|o| o.waiting);
        s.running = s.known_or_mean(|o| o.running);
        s.kv_usage = s.known_or_mean(|o| o.kv_usage);
        s.unknown = (0..s.ids.len() as u32).map(EndpointIdx).filter(|i| !s.fresh[i.row()]).collect();
        s
    }

    fn known_or_mean(&self, of: impl Fn(&Observed) -> Option<f64>) -> Vec<f64> {
        let known = |row: usize| of(&self.observed[row]).filter(|_| self.fresh[row]);
        let (sum, n) = (0..self.ids.len()).filter_map(known).fold((0.0, 0usize), |(sum, n), v| (sum + v, n + 1));
        let mean = if n == 0 { 0.0 } else { sum / n as f64 };
        (0..self.ids.len()).map(|row| known(row).unwrap_or(mean)).collect()
    }

    /// Which set of endpoints this is; equal numbers mean equal rows, names and labels.
    pub fn membership(&self) -> u64 {
        self.membership
    }

    /// How many endpoints there are.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Every row, lowest first.
    pub fn indices(&self) -> impl Iterator<Item = EndpointIdx> + use<> {
        (0..self.ids.len() as u32).map(EndpointIdx)
    }

    /// Identities by row.
    pub fn ids(&self) -> &[EndpointId] {
        &self.ids
    }

    /// The identity of a row.
    pub fn id(&self, idx: EndpointIdx) -> EndpointId {
        self.ids[idx.row()]
    }

    /// The entry of a row.
    pub fn meta(&self, idx: EndpointIdx) -> &Arc<EndpointMeta> {
        &self.meta[idx.row()]
    }

    /// The row of an identity, if it is still there. Walks all rows.
    pub fn find(&self, id: EndpointId) -> Option<EndpointIdx> {
        self.ids.iter().position(|&i| i == id).map(|row| EndpointIdx(row as u32))
    }

    /// What the engine of a row last said, however long ago.
    pub fn observed(&self, idx: EndpointIdx) -> &Observed {
        &self.observed[idx.row()]
    }

    /// Whether the engine of a row was heard within the staleness threshold.
    pub fn is_fresh(&self, idx: EndpointIdx) -> bool {
        self.fresh[idx.row()]
    }

    /// Rows that are not fresh.
    pub fn stale(&self) -> &[EndpointIdx] {
        &self.unknown
    }

    /// Requests that wait, by row.
    pub fn waiting(&self) -> &[f64] {
        &self.waiting
    }

    /// Requests in the batch, by row.
    pub fn running(&self) -> &[f64] {
        &self.running
    }

    /// Share of the KV cache in use, by row.
    pub fn kv_usage(&self) -> &[f64] {
        &self.kv_usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EndpointName;

    fn row(slot: u32, waiting: Option<f64>, age: Option<u64>, now: Instant) -> SnapshotRow {
        let name = EndpointName { namespace: "default".into(), name: format!("e{slot}") };
        let meta = Arc::new(EndpointMeta::new(name, "127.0.0.1".into(), 1, Default::default(), 0));
        let at = age.map(|ms| now - Duration::from_millis(ms));
        SnapshotRow {
            id: EndpointId::new(slot, slot + 1),
            meta,
            observed: Observed { waiting, at, ..Observed::default() },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_load_counts_as_the_mean_of_the_fresh() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let now = Instant::now();
        let rows = [
            row(0, Some(2.0), Some(10), now),
            row(1, None, None, now),
            row(2, Some(10.0), Some(10), now),
            row(3, Some(1000.0), Some(5000), now),
            row(4, None, Some(10), now),
        ];
        let s = Snapshot::new(1, rows, now, Duration::from_secs(2));
        assert_eq!(s.waiting(), [2.0, 6.0, 10.0, 6.0, 6.0]);
        assert_eq!(s.stale(), [EndpointIdx(1), EndpointIdx(3)]);
        assert_eq!(s.running(), [0.0; 5]);
    }
}
