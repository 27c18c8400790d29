//! Holds the engine's KV blocks: which are in use, which are kept for a later prompt, which one goes first.

use super::cache::CacheChange;
use super::runs::{RunId, Runs};

/// What a sequence holds: named blocks from the first on, then blocks that are not full yet or not computed yet.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// The run that the named ones end with. Those before are its parents.
    tail: Option<RunId>,
    named: usize,
    loose: usize,
}

impl Holding {
    /// How many blocks are held.
    pub(super) fn blocks(&self) -> usize {
        self.named + self.loose
    }
}

/// A bounded set of blocks. Full blocks are named by their hash, are shared, and stay after their last holder left
/// until the room is needed; then the leaf that was released longest ago goes first.
#[derive(Debug)]
pub(super) struct BlockPool {
    capacity: usize,
    runs: Runs,
    named: usize,
    held: usize,
    loose: usize,
    /// What changed, if somebody wants to know.
    changes: Option<Vec<CacheChange>>,
}

impl BlockPool {
    /// Makes an empty pool.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, runs: Runs::default(), named: 0, held: 0, loose: 0, changes: None }
    }

    /// How many blocks some sequence holds.
    pub(super) fn used(&self) -> usize {
        self.held + self.loose
    }

    /// How many named blocks are there, held or not.
    pub(super) fn named(&self) -> usize {
        self.named
    }

    /// How many blocks at the beginning of `hashes` are known.
    pub(super) fn known(&self, hashes: &[u64]) -> usize {
        let mut known = 0;
        while let Some((_, alike)) = self.runs.find(&hashes[known..]) {
            known += alike;
        }
        known
    }

    /// Holds the longest known prefix of `hashes`.
    pub(super) fn hold_prefix(&mut self, hashes: &[u64]) -> Holding {
        let mut holding = Holding::default();
        self.hold_known(&mut holding, hashes);
        holding
    }

    /// Adds `more` unnamed blocks to a holding, evicting as needed; takes none and says no if there is no room for all.
    #[must_use]
    pub(super) fn grow(&mut self, holding: &mut Holding, more: usize) -> bool {
        if self.used() + more > self.capacity {
            return false;
        }
        while self.named + self.loose + more > self.capacity {
            self.evict();
        }
        self.loose += more;
        holding.loose += more;
        true
    }

    /// Names the blocks of a holding that are full now; `hashes` are the names of all its full blocks from the first.
    /// Returns how many of them were known; all after these were not.
    pub(super) fn name_full(&mut self, holding: &mut Holding, hashes: &[u64]) -> usize {
        let full = hashes.len().saturating_sub(holding.named);
        holding.loose = holding.loose.checked_sub(full).expect("a full block is held before it is named");
        self.loose -= full;
        self.hold_known(holding, hashes);
        let known = holding.named.min(hashes.len());
        let new = &hashes[known..];
        if !new.is_empty() {
            holding.tail = Some(self.runs.add(holding.tail, new));
            holding.named = hashes.len();
            self.named += new.len();
            self.held += new.len();
        }
        known
    }

    /// Gives all blocks of a holding back; the named ones stay known.
    pub(super) fn release(&mut self, holding: &mut Holding) {
        let Holding { tail, loose, .. } = std::mem::take(holding);
        self.loose -= loose;
        let mut next = tail;
        while let Some(run) = next {
            next = self.runs.parent(run);
            self.held -= self.runs.let_go(run);
        }
    }

    /// Forgets every named block, unless some block is held.
    pub(super) fn clear(&mut self) -> bool {
        if self.used() > 0 {
            return false;
        }
        self.runs = Runs::default();
        self.named = 0;
        self.tell(CacheChange::Cleared);
        true
    }

    /// Remembers from now on what changes.
    pub(super) fn remember_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Whether it does.
    pub(super) fn remembers_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// What has changed since this was asked before.
    pub(super) fn take_changes(&mut self) -> Vec<CacheChange> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Remembers a change, if changes are.
    pub(super) fn tell(&mut self, change: CacheChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change);
        }
    }

    /// How many blocks can be taken without evicting one.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.named - self.loose
    }

    /// Holds those of `hashes` that are known, after those that the holding has.
    fn hold_known(&mut self, holding: &mut Holding, hashes: &[u64]) {
        while let Some((run, alike)) = self.runs.find(hashes.get(holding.named..).unwrap_or_default()) {
            let run = self.runs.cut(run, alike);
            self.held += self.runs.hold(run);
            holding.tail = Some(run);
            holding.named += alike;
        }
    }

    fn evict(&mut self) {
        let block = self.runs.pop_oldest().expect("blocks that nobody holds are idle");
        self.named -= 1;
        let Some(changes) = &mut self.changes else { return };
        match changes.last_mut() {
            Some(CacheChange::Removed { blocks }) => blocks.push(block),
            _ => changes.push(CacheChange::Removed { blocks: vec![block] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pool: &mut BlockPool, hashes: &[u64]) -> Holding {
        let mut holding = pool.hold_prefix(hashes);
        let more = hashes.len() - holding.blocks();
        assert!(pool.grow(&mut holding, more));
        pool.name_full(&mut holding, hashes);
        holding
    }

    fn known(pool: &mut BlockPool, hashes: &[u64]) -> usize {
        let mut holding = pool.hold_prefix(hashes);
        let n = holding.blocks();
        pool.release(&mut holding);
        n
    }

    #[test]
    fn named_blocks_outlive_their_holder() {
        let mut pool = BlockPool::new(8);
        let mut a = put(&mut pool, &[1, 2, 3]);
        assert_eq!(pool.used(), 3);
        pool.release(&mut a);
        assert_eq!((pool.used(), pool.named()), (0, 3));
        assert_eq!(known(&mut pool, &[1, 2, 9]), 2);
    }

    #[test]
    fn a_shared_block_is_counted_once() {
        let mut pool = BlockPool::new(8);
        let mut a = put(&mut pool, &[1, 2]);
        let mut b = put(&mut pool, &[1, 3]);
        assert_eq!(pool.used(), 3);
        pool.release(&mut a);
        assert_eq!(pool.used(), 2);
        pool.release(&mut b);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn the_leaf_released_longest_ago_goes_first() {
        let mut pool = BlockPool::new(4);
        let mut a = put(&mut pool, &[1, 2]);
        let mut b = put(&mut pool, &[3, 4]);
        pool.release(&mut a);
        pool.release(&mut b);
        let mut c = Holding::default();
        assert!(pool.grow(&mut c, 1));
        assert_eq!((known(&mut pool, &[1, 2]), known(&mut pool, &[3, 4])), (1, 2));
    }

    #[test]
    fn a_held_block_is_never_evicted() {
        let mut pool = BlockPool::new(3);
        let mut a = put(&mut pool, &[1, 2]);
        let mut b = Holding::default();
        assert!(!pool.grow(&mut b, 2));
        assert_eq!(b.blocks(), 0);
        assert!(pool.grow(&mut b, 1));
        pool.release(&mut a);
        assert!(pool.grow(&mut b, 2));
        assert_eq!((pool.used(), pool.named()), (3, 0));
    }

    #[test]
    fn a_block_computed_twice_is_kept_once() {
        let mut pool = BlockPool::new(8);
        let (mut a, mut b) = (Holding::default(), Holding::default());
        assert!(pool.grow(&mut a, 1) && pool.grow(&mut b, 1));
        pool.name_full(&mut a, &[7]);
        pool.name_full(&mut b, &[7]);
        assert_eq!((pool.used(), pool.named()), (1, 1));
    }

    #[test]
    fn clearing_waits_for_the_last_holder() {
        let mut pool = BlockPool::new(8);
        let mut a = put(&mut pool, &[1]);
        assert!(!pool.clear());
        pool.release(&mut a);
        assert!(pool.clear());
        assert_eq!(known(&mut pool, &[1]), 0);
    }
}
