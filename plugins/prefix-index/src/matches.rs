//! The answer to a lookup: how many leading blocks each owner holds.

use crate::Owner;
use crate::set::slots_of;

/// How many leading blocks of one prompt each owner holds. Keep it from lookup to lookup: it takes memory only when
/// there are more slots than ever before.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    counts: Vec<u32>,
    serials: Vec<u32>,
    longest: u32,
    /// Room for a lookup: a bit a slot.
    pub(crate) alive: Vec<u64>,
}

impl Matches {
    /// The leading blocks that the owner holds; 0 for one that holds none or whose slot is another's.
    pub fn of(&self, owner: Owner) -> usize {
        self.count(owner) as usize
    }

    /// Writes the leading blocks of each owner, in the order given, as far as `counts` goes.
    pub fn fill(&self, owners: impl IntoIterator<Item = Owner>, counts: &mut [u32]) {
        for (owner, count) in owners.into_iter().zip(counts) {
            *count = self.count(owner);
        }
    }

    /// The most leading blocks that any owner holds; 0 if the prompt is new to all.
    pub fn longest(&self) -> usize {
        self.longest as usize
    }

    fn count(&self, owner: Owner) -> u32 {
        let slot = owner.slot as usize;
        match self.serials.get(slot) {
            Some(&serial) if serial == owner.serial => self.counts[slot],
            _ => 0,
        }
    }

    /// Forgets the last answer; `serials` says who has which slot now.
    pub(crate) fn reset(&mut self, serials: &[u32]) {
        self.longest = 0;
        self.counts.clear();
        self.counts.resize(serials.len(), 0);
        self.serials.clear();
        self.serials.extend_from_slice(serials);
    }

    /// Writes the count of every slot of one word of a set.
    pub(crate) fn put_word(&mut self, index: usize, word: u64, blocks: usize) {
        let blocks = blocks as u32;
        self.longest = self.longest.max(blocks);
        if word == u64::MAX {
            self.counts[index * 64..index * 64 + 64].fill(blocks);
        } else {
            slots_of(index, word).for_each(|slot| self.counts[slot] = blocks);
        }
    }

    /// Writes the count of one slot.
    pub(crate) fn put(&mut self, slot: usize, blocks: usize) {
        self.longest = self.longest.max(blocks as u32);
        self.counts[slot] = blocks as u32;
    }

    /// Writes the count of one slot that [`Self::put_word`] put too high.
    pub(crate) fn lower(&mut self, slot: usize, blocks: usize) {
        self.counts[slot] = blocks as u32;
    }
}
