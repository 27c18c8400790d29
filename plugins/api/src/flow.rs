//! The roles that a plugin can play in room 3: whose turn it is among those that wait, and how much of the pool a
//! priority may use.
//!
//! All of it is called under one lock, so it must be quick.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// What is known of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When its first message came.
    pub received: Instant,
    /// When it began to wait.
    pub since: Instant,
    /// Until when it may wait while there are endpoints; `None`: for ever.
    pub deadline: Option<Instant>,
    /// Within what time of `received` its client wants the first token; `None`: the client does not say.
    pub ttft_objective: Option<Duration>,
}

/// When the turn of a waiting request is: of two, the lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// `None` goes after every time.
    pub at: Option<Instant>,
    /// Decides between equals.
    pub then: Instant,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |rank: &Self| (rank.at.is_none(), rank.at, rank.then);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Says in which order the requests of a band go.
pub trait OrderingPolicy: Send + Sync {
    /// The request's rank, which may not change while it waits. Of equal ranks the one that came first goes first.
    fn rank(&self, request: &Waiting) -> Rank;
}

/// The name of a flow: the fairness id of its requests.
pub type FlowId = Arc<str>;

/// The flows of a band that have somebody waiting. There is always one.
pub trait WaitingFlows {
    /// The flow whose first request goes before that of every other, by the order of the band.
    fn first(&self) -> FlowId;

    /// The flow that comes next after this name, in the order of names; after the last comes the first.
    fn after(&self, name: &str) -> FlowId;

    /// Shows every flow with the request that is first in it, in the order of names.
    fn each(&self, seen: &mut dyn FnMut(&FlowId, &Waiting));
}

/// Says how the flows of a band take turns.
pub trait FairnessPolicy: Send + Sync {
    /// Makes the state of one band.
    fn turns(&self) -> Box<dyn Turns>;
}

/// Whose turn it is in one band.
pub trait Turns: Send {
    /// The flow whose first request goes now.
    fn next(&mut self, flows: &dyn WaitingFlows, now: Instant) -> FlowId;

    /// Nobody waits in the band any more.
    fn emptied(&mut self) {}
}

/// Says how much of the pool the requests of a priority may use.
pub trait UsageLimitPolicy: Send + Sync {
    /// Writes the ceiling of each priority, of which the highest comes first: its requests go while `saturation` is below
    /// it. Returns after what time to ask again though nothing has changed; `None`: only once something has.
    fn ceilings(&self, saturation: f64, priorities: &[i32], ceilings: &mut [f64]) -> Option<Duration>;
}

/// Requests that were let go and are not yet counted where they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Departing {
    pub requests: u64,
    /// The size of their bodies.
    pub bytes: u64,
}

impl Departing {
    /// How many tokens their prompts may have, at four bytes each.
    pub fn tokens(self) -> u64 {
        self.bytes / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_without_a_time_goes_last_and_equals_go_by_the_second_time() {
        let t = |s| Instant::now() + Duration::from_secs(s);
        let base = t(0);
        let rank = |at: Option<u64>, then| Rank {
            at: at.map(|s| base + Duration::from_secs(s)),
            then: base + Duration::from_secs(then),
        };
        let mut ranks = [rank(None, 0), rank(Some(2), 0), rank(Some(1), 5), rank(Some(1), 4), rank(None, 9)];
        ranks.sort();
        assert_eq!(ranks, [rank(Some(1), 4), rank(Some(1), 5), rank(Some(2), 0), rank(None, 0), rank(None, 9)]);
    }
}
