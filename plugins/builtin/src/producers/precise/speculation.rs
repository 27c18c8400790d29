//! What was sent to endpoints lately and so is believed to be there before they say so.

use std::collections::VecDeque;
use std::time::Duration;

use epp_prefix_index::Owner;
use parking_lot::Mutex;
use tokio::time::Instant;

/// So many keys are believed at a time; the oldest beliefs go before their time is up when there are more.
const MOST_KEYS: usize = 4 << 20;

/// Beliefs by when they end.
#[derive(Debug)]
pub struct Speculation {
    ttl: Duration,
    beliefs: Mutex<Beliefs>,
}

#[derive(Debug, Default)]
struct Beliefs {
    queue: VecDeque<Belief>,
    n_keys: usize,
}

/// Blocks that a place is believed to hold.
#[derive(Debug)]
pub struct Belief {
    ends: Instant,
    pub owner: Owner,
    pub keys: Vec<u64>,
}

impl Speculation {
    /// A belief lasts so long.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, beliefs: Mutex::default() }
    }

    /// Notes that the place is believed to hold these blocks from now on.
    pub fn believe(&self, now: Instant, owner: Owner, keys: &[u64]) {
        let mut beliefs = self.beliefs.lock();
        beliefs.n_keys += keys.len();
        beliefs.queue.push_back(Belief { ends: now + self.ttl, owner, keys: keys.to_vec() });
    }

    /// A belief whose time is up, the oldest first.
    pub fn ended(&self, now: Instant) -> Option<Belief> {
        let mut beliefs = self.beliefs.lock();
        let full = beliefs.n_keys > MOST_KEYS;
        let belief = beliefs.queue.pop_front_if(|oldest| full || oldest.ends <= now)?;
        beliefs.n_keys -= belief.keys.len();
        Some(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(slot: u32) -> Owner {
        Owner { slot, serial: 1 }
    }

    #[test]
    fn a_belief_ends_when_its_time_is_up() {
        let (it, now) = (Speculation::new(Duration::from_secs(2)), Instant::now());
        it.believe(now, owner(0), &[1, 2]);
        it.believe(now + Duration::from_secs(1), owner(1), &[1]);
        assert!(it.ended(now + Duration::from_millis(1999)).is_none());
        let later = now + Duration::from_secs(2);
        let belief = it.ended(later).unwrap();
        assert_eq!((belief.owner, belief.keys.as_slice()), (owner(0), &[1, 2][..]));
        assert!(it.ended(later).is_none());
        assert!(it.ended(later + Duration::from_secs(1)).is_some());
    }

    #[test]
    fn the_oldest_beliefs_go_when_there_are_too_many() {
        let (it, now) = (Speculation::new(Duration::from_secs(2)), Instant::now());
        let keys = vec![7; MOST_KEYS / 2];
        (0..4).for_each(|slot| it.believe(now, owner(slot), &keys));
        let gone: Vec<u32> = std::iter::from_fn(|| it.ended(now)).map(|belief| belief.owner.slot).collect();
        assert_eq!(gone, [0, 1]);
    }
}
