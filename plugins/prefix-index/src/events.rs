//! What engines say they hold: blocks under the hashes that they give them.
//!
//! A *place* is an [`Owner`] like any other: one memory of one endpoint. Unlike what is guessed with
//! [`PrefixIndex::store`], what is said may have holes, is found by the engine's own hashes, and leaves only when the
//! engine says so (or when memory is full). An index serves one of the two uses: the first store decides.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::{Owner, PrefixIndex, Source};

/// What became of a store of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBlocks {
    /// They are in.
    Stored {
        /// How many of them the place did not hold before.
        new_blocks: usize,
    },
    /// Nobody holds anything under the hash of the block before; nothing was noted.
    UnknownParent,
    /// The owner is too late, or beyond the limits; nothing was noted.
    Refused,
}

/// What became of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedBlocks {
    /// Hashes that are gone now or were never known.
    pub forwarded: usize,
    /// Hashes that were stored more often than they were removed so far.
    pub suppressed: usize,
    /// Blocks that left the place.
    pub blocks: usize,
}

/// What the places of one endpoint hold together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Combined {
    /// Leading blocks that at least one of the places holds.
    pub blocks: u32,
    /// Sum over those blocks of the largest weight among the places that hold the block.
    pub weight: f64,
}

impl PrefixIndex {
    /// Gives the key of the last block stored under an engine's hash: looked for at these places first, then at all
    /// others (engines with equal seeds share hashes, and a block may be known from elsewhere only).
    pub fn key_of(&self, hash: u64, first: &[Owner]) -> Option<u64> {
        self.said.read().key_of(hash, first)
    }

    /// Notes that the place holds blocks `keys`, which follow the block known under the hash `parent` or are the first
    /// of a prompt, under the engine's `hashes`. The parent is looked for at the place, then at the places `near` it,
    /// then at all others. Without hashes or without keys nothing is noted.
    ///
    /// Hashes and keys are matched by proportion: with n the greater of their numbers, for i below n key
    /// ⌊i · keys / n⌋ belongs to hash ⌊i · hashes / n⌋. A hash that stood for other blocks stands for these now, and
    /// the others leave.
    pub fn store_blocks(
        &self,
        place: Owner,
        near: &[Owner],
        parent: Option<u64>,
        hashes: &[u64],
        keys: &[u64],
    ) -> StoredBlocks {
        let stored = match self.is_for(Source::Said) {
            true => self.said.write().store_blocks(place, near, parent, hashes, keys),
            false => StoredBlocks::Refused,
        };
        if stored == StoredBlocks::Refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        stored
    }

    /// Notes that the place holds the blocks that are known under these hashes: at the place itself, else `near` it,
    /// else anywhere. Leaves unknown ones out. Gives how many hashes were known.
    pub fn store_known(&self, place: Owner, near: &[Owner], hashes: &[u64]) -> usize {
        if !self.is_for(Source::Said) {
            return 0;
        }
        self.said.write().store_known(place, near, hashes)
    }

    /// Takes hashes away from a place. A hash that was stored n times needs n removals. A block leaves as soon as one
    /// of its hashes does.
    pub fn remove_blocks(&self, place: Owner, hashes: &[u64]) -> RemovedBlocks {
        self.said.write().remove_blocks(place, hashes)
    }

    /// Counts the leading blocks of a prompt of which each is held by at least one of the places, and what they weigh.
    pub fn combined(&self, keys: &[u64], places: &[(Owner, f64)]) -> Combined {
        self.said.read().combined(keys, places)
    }
}

/// By hash: which of the keys belong to it.
pub(crate) fn spans(hashes: usize, keys: usize) -> impl Iterator<Item = Range<usize>> {
    let n = if keys == 0 { 0 } else { hashes };
    (0..n).map(move |at| {
        if keys > hashes {
            (at * keys).div_ceil(hashes)..((at + 1) * keys).div_ceil(hashes)
        } else {
            let key = at * keys / hashes;
            key..key + 1
        }
    })
}
