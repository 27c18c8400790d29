//! Which endpoint holds which blocks of a prompt: block hashing and the one prefix index.
//!
//! [`keys`] turns a prompt into chained block keys, [`PrefixIndex`] remembers who holds them, [`matches::Matches`] is its
//! answer. Inside, prompts share a trie whose runs are blocks without a fork between them; a run has one bit a holder.
//! A lookup compares the last key of each run on its way and writes one number an owner.
//!
//! An index serves one of two uses. [`PrefixIndex::store`] guesses from where prompts were sent; [`events`] takes in what
//! engines say of single blocks, with holes.
//!
//! One reader-writer lock guards the trie. A lookup shares it for about a microsecond; whoever changes the trie lets go
//! after a store, after every 128 evictions, and after every 64 hashes of what engines say. Beside a writer that never
//! rests a lookup takes 7 µs on average (`lookup/beside_a_busy_writer`). Two copies, one read while the other is written,
//! would take twice the memory and twice the work of a store, and lookups beside 50,000 stores a second were no faster.
//! Shards by first block would not help, as prompts with one system prompt share it. `docs/prefix-index.md` has figures.

pub mod events;
mod lane;
mod lookup;
pub mod outcome;
mod run;
mod said;
mod set;
mod slab;
mod trie;

#[cfg(any(test, feature = "model"))]
mod check;
#[cfg(test)]
mod events_tests;
pub mod keys;
pub mod matches;
#[cfg(any(test, feature = "model"))]
#[doc(hidden)]
pub mod model;
#[cfg(any(test, feature = "model"))]
mod said_model;
#[cfg(any(test, feature = "model"))]
#[doc(hidden)]
pub mod said_ops;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};

use crate::matches::Matches;
use crate::said::Said;
use crate::trie::{Stored, Trie};

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
    /// At most so many places (at least 1) remember one block that engines say they hold; one more takes the block
    /// from the place that stored it longest ago. Default none: any number.
    pub holders: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 30, slots: 1 << 16, holders: None }
    }
}

/// Where an index knows from who holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// From where prompts were sent: [`PrefixIndex::store`].
    Guessed,
    /// From what engines say: [`PrefixIndex::store_blocks`].
    Said,
}

/// Remembers which owners hold which blocks. Many threads may look up and store at once.
///
/// Keys must be chained, as [`keys::chain_keys`] makes them: equal keys stand for equal prompts up to there.
#[derive(Debug)]
pub struct PrefixIndex {
    trie: RwLock<Trie>,
    said: RwLock<Said>,
    /// Which of the two is in use: the first store decides.
    source: OnceLock<Source>,
    refused: AtomicU64,
}

impl PrefixIndex {
    /// Makes an empty index.
    pub fn new(limits: Limits) -> Self {
        let said = RwLock::new(Said::new(limits));
        Self { trie: RwLock::new(Trie::new(limits)), said, source: OnceLock::new(), refused: AtomicU64::new(0) }
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
        if !self.is_for(Source::Guessed) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let slot = owner.slot as usize;
        loop {
            let stored = self.trie.write().store(owner, keys);
            match stored {
                Stored::At(stamp) => {
                    return self.until(|trie| trie.evict(slot, capacity, stamp, STEPS) && trie.shrink(stamp, STEPS));
                }
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
        if self.source.get() != Some(&Source::Said) {
            self.trie.read().lookup(keys, matches);
            return;
        }
        self.glance().lookup(keys, matches);
    }

    /// Forgets all blocks of an owner whose cache is empty now; the owner may store again.
    pub fn clear(&self, owner: Owner) {
        let trie = self.trie.read();
        let (known, all) = (trie.lane(owner).is_some(), trie.now + 1);
        drop(trie);
        if known {
            self.until(|trie| trie.evict(owner.slot as usize, 0, all, STEPS));
        }
        let said = self.said.read().lane(owner).is_some();
        if said {
            self.empty(owner.slot as usize);
        }
    }

    /// Forgets an owner that has left for good; what it still wants to store comes too late.
    pub fn forget(&self, owner: Owner) {
        let slot = owner.slot as usize;
        let mut trie = self.trie.write();
        trie.close(owner);
        let (theirs, all) = (trie.lanes.get(slot).is_some_and(|l| l.serial <= owner.serial), trie.now + 1);
        drop(trie);
        if theirs {
            self.until(|trie| trie.evict(slot, 0, all, STEPS));
        }
        let said = self.said.write().close(owner);
        if said {
            self.empty(slot);
        }
    }

    /// How many blocks all owners hold: a block held by two counts twice.
    pub fn blocks(&self) -> usize {
        self.trie.read().blocks + self.said.read().blocks
    }

    /// How many blocks the owner holds.
    pub fn blocks_of(&self, owner: Owner) -> usize {
        self.trie.read().lane(owner).map_or(0, |lane| lane.blocks) + self.said.read().blocks_of(owner)
    }

    /// About how many bytes the index takes: what is in use, without the slack of growing tables.
    pub fn bytes(&self) -> usize {
        self.trie.read().bytes + self.said.read().bytes
    }

    /// How many stores were refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether the index is for this, or is from now on.
    fn is_for(&self, source: Source) -> bool {
        *self.source.get_or_init(|| source) == source
    }

    /// Changes the trie step by step until one says that it was the last, and lets those in between who wait.
    fn until(&self, step: impl Fn(&mut Trie) -> bool) {
        let mut trie = self.trie.write();
        while !step(&mut trie) {
            RwLockWriteGuard::bump(&mut trie);
        }
    }

    /// Panics unless all that the parts of the index say of each other is so.
    #[cfg(any(test, feature = "model"))]
    #[doc(hidden)]
    pub fn check(&self) {
        check::check(&self.trie.read());
        self.said.read().check();
    }
}
