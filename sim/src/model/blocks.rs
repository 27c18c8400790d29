//! Holds the engine's KV blocks: which are in use, which are kept for a later prompt, which one goes first.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;

use super::cache::CacheChange;

/// A place in the pool's list of named blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u32);

#[derive(Debug)]
struct Node {
    hash: u64,
    parent: Option<BlockId>,
    children: u32,
    holders: u32,
    released: u64,
}

/// What a sequence holds: named blocks from the first on, then blocks that are not full yet or not computed yet.
#[derive(Debug, Default)]
pub(super) struct Holding {
    path: Vec<BlockId>,
    loose: usize,
}

impl Holding {
    /// How many blocks are held.
    pub(super) fn blocks(&self) -> usize {
        self.path.len() + self.loose
    }
}

/// A bounded set of blocks. Full blocks are named by their hash, are shared, and stay after their last holder left
/// until the room is needed; then the leaf that was released longest ago goes first.
#[derive(Debug)]
pub(super) struct BlockPool {
    capacity: usize,
    nodes: Vec<Node>,
    unused: Vec<BlockId>,
    by_hash: HashMap<u64, BlockId, FixedState>,
    idle_leaves: BTreeSet<(u64, BlockId)>,
    held: usize,
    loose: usize,
    releases: u64,
    /// What changed, if somebody wants to know.
    changes: Option<Vec<CacheChange>>,
}

impl BlockPool {
    /// Makes an empty pool.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            nodes: Vec::new(),
            unused: Vec::new(),
            by_hash: HashMap::default(),
            idle_leaves: BTreeSet::new(),
            held: 0,
            loose: 0,
            releases: 0,
            changes: None,
        }
    }

    /// How many blocks some sequence holds.
    pub(super) fn used(&self) -> usize {
        self.held + self.loose
    }

    /// How many named blocks are there, held or not.
    pub(super) fn named(&self) -> usize {
        self.by_hash.len()
    }

    /// How many blocks at the beginning of `hashes` are known.
    pub(super) fn known(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.by_hash.contains_key(hash)).count()
    }

    /// Holds the longest known prefix of `hashes`.
    pub(super) fn hold_prefix(&mut self, hashes: &[u64]) -> Holding {
        let path: Vec<BlockId> = hashes.iter().map_while(|hash| self.by_hash.get(hash).copied()).collect();
        path.iter().for_each(|&id| self.hold(id));
        Holding { path, loose: 0 }
    }

    /// Adds `more` unnamed blocks to a holding, evicting as needed; takes none and says no if there is no room for all.
    #[must_use]
    pub(super) fn grow(&mut self, holding: &mut Holding, more: usize) -> bool {
        if self.used() + more > self.capacity {
            return false;
        }
        while self.named() + self.loose + more > self.capacity {
            self.evict();
        }
        self.loose += more;
        holding.loose += more;
        true
    }

    /// Names the blocks of a holding that are full now; `hashes` are the names of all its full blocks from the first.
    /// Returns how many of them were known; all after these were not.
    pub(super) fn name_full(&mut self, holding: &mut Holding, hashes: &[u64]) -> usize {
        let mut known_before = hashes.len();
        for &hash in hashes.get(holding.path.len()..).unwrap_or_default() {
            holding.loose = holding.loose.checked_sub(1).expect("a full block is held before it is named");
            self.loose -= 1;
            let id = match self.by_hash.get(&hash) {
                Some(&known) => {
                    self.hold(known);
                    known
                }
                None => {
                    known_before = known_before.min(holding.path.len());
                    self.insert(hash, holding.path.last().copied())
                }
            };
            holding.path.push(id);
        }
        known_before
    }

    /// Gives all blocks of a holding back; the named ones stay known.
    pub(super) fn release(&mut self, holding: &mut Holding) {
        self.releases += 1;
        self.loose -= std::mem::take(&mut holding.loose);
        while let Some(id) = holding.path.pop() {
            let releases = self.releases;
            let node = self.node(id);
            node.holders -= 1;
            node.released = releases;
            let (idle, leaf) = (node.holders == 0, node.children == 0);
            if idle {
                self.held -= 1;
                if leaf {
                    self.idle_leaves.insert((releases, id));
                }
            }
        }
    }

    /// Forgets every named block, unless some block is held.
    pub(super) fn clear(&mut self) -> bool {
        if self.used() > 0 {
            return false;
        }
        self.nodes.clear();
        self.unused.clear();
        self.by_hash.clear();
        self.idle_leaves.clear();
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
        let Some(changes) = &mut self.changes else { return };
        match (changes.last_mut(), change) {
            (Some(CacheChange::Removed { blocks }), CacheChange::Removed { blocks: more }) => blocks.extend(more),
            (_, change) => changes.push(change),
        }
    }

    /// How many blocks can be taken without evicting one.
    pub(super) fn room(&self) -> usize {
        self.capacity - self.named() - self.loose
    }

    fn node(&mut self, id: BlockId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    fn hold(&mut self, id: BlockId) {
        let node = self.node(id);
        node.holders += 1;
        let (first, released) = (node.holders == 1, node.released);
        if first {
            self.held += 1;
            self.idle_leaves.remove(&(released, id));
        }
    }

    fn insert(&mut self, hash: u64, parent: Option<BlockId>) -> BlockId {
        let node = Node { hash, parent, children: 0, holders: 1, released: 0 };
        let id = match self.unused.pop() {
            Some(id) => {
                *self.node(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                BlockId(u32::try_from(self.nodes.len() - 1).expect("settings allow fewer than 2^32 blocks"))
            }
        };
        if let Some(parent) = parent {
            self.node(parent).children += 1;
        }
        self.by_hash.insert(hash, id);
        self.held += 1;
        id
    }

    fn evict(&mut self) {
        let (_, id) = self.idle_leaves.pop_first().expect("blocks that nobody holds end in a leaf");
        let (hash, parent) = (self.node(id).hash, self.node(id).parent);
        self.by_hash.remove(&hash);
        self.unused.push(id);
        if self.remembers_changes() {
            self.tell(CacheChange::Removed { blocks: vec![hash] });
        }
        if let Some(parent) = parent {
            let node = self.node(parent);
            node.children -= 1;
            if node.children == 0 && node.holders == 0 {
                let released = node.released;
                self.idle_leaves.insert((released, parent));
            }
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
