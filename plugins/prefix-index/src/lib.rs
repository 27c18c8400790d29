//! Which endpoint holds which blocks of a prompt: block hashing and the one prefix index.
//!
//! [`keys`] turns a prompt into chained block keys, [`PrefixIndex`] remembers who holds them, [`matches::Matches`] is its
//! answer. Inside, prompts share a trie whose runs are blocks without a fork between them; a run has one bit a holder.
//! A lookup compares the last key of each run on its way and writes one number an owner.
//!
//! Two equal copies are kept: stores go to the one that is not read, then they swap, then the other gets the same. So a
//! lookup never waits for a store or for the eviction of a whole endpoint, nor for a writer whose thread was
//! interrupted; the price is twice the memory and twice the work of a store, which is a few microseconds. Whoever evicts
//! much lets other writers go between [`STEPS`] runs. `benches/lookup.rs` measures lookups beside a busy writer.

mod lane;
mod lookup;
mod run;
mod set;
mod slab;
mod trie;
mod twin;

#[cfg(any(test, feature = "model"))]
mod check;
pub mod keys;
pub mod matches;
#[cfg(any(test, feature = "model"))]
#[doc(hidden)]
pub mod model;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::matches::Matches;
use crate::trie::{Stored, Trie};
use crate::twin::Twin;

/// How many runs an eviction visits before it lets lookups in.
const STEPS: usize = 128;

/// Who holds blocks: an endpoint for as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Dense; given to another owner once this one has left.
    pub slot: u32,
    /// Never given twice, at least 1, and greater than those of earlier owners of the slot.
    pub serial: u32,
}

/// What an index may grow to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all runs and holds, as [`PrefixIndex::bytes`] counts them. Default 1 GiB. When there are more, the
    /// blocks that were stored longest ago at any owner are evicted; a prompt that takes more by itself is refused.
    pub bytes: usize,
    /// Owner slots; what is stored at this slot or a higher one is refused. Default 65,536.
    pub slots: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, slots: 1 << 16 }
    }
}

/// Remembers which owners hold which blocks. Many threads may look up and store at once.
///
/// Keys must be chained, as [`keys::chain_keys`] makes them: equal keys stand for equal prompts up to there.
#[derive(Debug)]
pub struct PrefixIndex {
    tries: Twin,
    refused: AtomicU64,
}

impl PrefixIndex {
    /// Makes an empty index.
    pub fn new(limits: Limits) -> Self {
        let half = Limits { bytes: limits.bytes / 2, ..limits };
        Self { tries: Twin::new([Trie::new(half), Trie::new(half)]), refused: AtomicU64::new(0) }
    }

    /// Notes that the owner holds these blocks now, and that they are its most recent ones. An empty prompt changes
    /// nothing.
    ///
    /// Then evicts what the owner holds beyond `capacity` blocks: the least recently stored first, of one prompt the
    /// last blocks first, but none of those just stored, so that a prompt longer than the capacity is kept whole.
    /// Blocks of an earlier owner of the slot are gone. What an owner stores after [`Self::forget`], or after a later
    /// owner has taken its slot, is refused, as are serial 0 and what [`Limits`] says.
    pub fn store(&self, owner: Owner, keys: &[u64], capacity: usize) {
        if keys.is_empty() {
            return;
        }
        let slot = owner.slot as usize;
        let make_room = |trie: &mut Trie, stamp| trie.evict(slot, capacity, stamp, STEPS) && trie.shrink(stamp, STEPS);
        loop {
            let (stored, done) = self.tries.write(|trie| match trie.store(owner, keys) {
                Stored::At(stamp) => (Stored::At(stamp), make_room(trie, stamp)),
                other => (other, false),
            });
            match stored {
                Stored::At(_) if done => return,
                Stored::At(stamp) => return self.until(|trie| make_room(trie, stamp)),
                Stored::Refused => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Stored::Occupied { all } => self.until(|trie| trie.evict(slot, 0, all, STEPS)),
            }
        }
    }

    /// Counts for every owner how many leading blocks of the prompt it holds, contiguous from the first. Does not make
    /// them more recent.
    pub fn matches(&self, keys: &[u64], matches: &mut Matches) {
        self.tries.read(|trie| trie.lookup(keys, matches));
    }

    /// Forgets all blocks of an owner whose cache is empty now; the owner may store again.
    pub fn clear(&self, owner: Owner) {
        let (known, all) = self.tries.read(|trie| (trie.lane(owner).is_some(), trie.now + 1));
        if known {
            self.until(|trie| trie.evict(owner.slot as usize, 0, all, STEPS));
        }
    }

    /// Forgets an owner that has left for good; what it still wants to store comes too late.
    pub fn forget(&self, owner: Owner) {
        let slot = owner.slot as usize;
        let (theirs, all) = self.tries.write(|trie| {
            trie.close(owner);
            (trie.lanes.get(slot).is_some_and(|l| l.serial <= owner.serial), trie.now + 1)
        });
        if theirs {
            self.until(|trie| trie.evict(slot, 0, all, STEPS));
        }
    }

    /// How many blocks all owners hold: a block held by two counts twice.
    pub fn blocks(&self) -> usize {
        self.tries.read(|trie| trie.blocks)
    }

    /// How many blocks the owner holds.
    pub fn blocks_of(&self, owner: Owner) -> usize {
        self.tries.read(|trie| trie.lane(owner).map_or(0, |lane| lane.blocks))
    }

    /// About how many bytes the index takes: what is in use, without the slack of growing tables.
    pub fn bytes(&self) -> usize {
        2 * self.tries.read(|trie| trie.bytes)
    }

    /// How many stores were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes steps until one says that it was the last, and lets other writers go in between.
    fn until(&self, step: impl Fn(&mut Trie) -> bool) {
        while !self.tries.write(&step) {}
    }

    /// Panics unless all that the parts of the index say of each other is so.
    #[cfg(any(test, feature = "model"))]
    #[doc(hidden)]
    pub fn check(&self) {
        self.tries.each(check::check);
    }
}
