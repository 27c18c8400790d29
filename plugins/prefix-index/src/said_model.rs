//! What engines say they hold, kept slowly and plainly right.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::outcome::{Combined, RemovedBlocks, StoredBlocks};
use crate::said::store::span;
use crate::{Limits, Owner};

/// A block of some prompt: the number of the way that leads to it.
type Block = usize;

#[derive(Debug, Default)]
struct Place {
    serial: u32,
    newest: u32,
    gone: bool,
    /// How often each hash is stored, and the blocks it stands for.
    hashes: HashMap<u64, (usize, Vec<Block>)>,
    held: HashSet<Block>,
}

/// The slow index of what engines say.
#[derive(Debug)]
pub struct SaidModel {
    limits: Limits,
    places: BTreeMap<u32, Place>,
    /// Every block ever seen, by the one before it and its key; a block's number is its place in `blocks`.
    ways: HashMap<(Option<Block>, u64), Block>,
    blocks: Vec<(Option<Block>, u64)>,
    /// By block: the slots that hold it, the one that stored it longest ago first.
    holders: HashMap<Block, Vec<u32>>,
}

impl SaidModel {
    /// Makes an empty one.
    pub fn new(limits: Limits) -> Self {
        let (places, ways, blocks, holders) = Default::default();
        Self { limits, places, ways, blocks, holders }
    }

    fn place(&self, owner: Owner) -> Option<&Place> {
        self.places.get(&owner.slot).filter(|p| p.serial == owner.serial && owner.serial != 0)
    }

    fn admit(&mut self, owner: Owner) -> bool {
        if owner.serial == 0 || owner.slot as usize >= self.limits.slots {
            return false;
        }
        let place = self.places.entry(owner.slot).or_default();
        if owner.serial < place.newest || (owner.serial == place.newest && place.gone) {
            return false;
        }
        (place.newest, place.gone) = (owner.serial, false);
        if place.serial != owner.serial {
            place.serial = owner.serial;
            self.empty(owner.slot);
        }
        true
    }

    fn empty(&mut self, slot: u32) {
        if let Some(place) = self.places.get_mut(&slot) {
            place.hashes.clear();
            for block in place.held.drain() {
                self.holders.entry(block).or_default().retain(|&s| s != slot);
            }
        }
    }

    fn find(&self, hash: u64, first: &[Owner]) -> Option<&(usize, Vec<Block>)> {
        let near = first.iter().filter_map(|&o| self.place(o));
        near.chain(self.places.values()).find_map(|p| p.hashes.get(&hash))
    }

    /// As [`crate::PrefixIndex::key_of`].
    pub fn key_of(&self, hash: u64, first: &[Owner]) -> Option<u64> {
        self.find(hash, first).map(|(_, blocks)| self.blocks[*blocks.last().expect("a hash has blocks")].1)
    }

    fn hold(&mut self, slot: u32, block: Block) -> usize {
        let place = self.places.entry(slot).or_default();
        let new = place.held.insert(block);
        let holders = self.holders.entry(block).or_default();
        holders.retain(|&s| s != slot);
        holders.push(slot);
        if self.limits.holders.is_some_and(|most| holders.len() > most.max(1)) {
            let least = holders.remove(0);
            self.places.entry(least).or_default().held.remove(&block);
        }
        usize::from(new)
    }

    fn leave(&mut self, slot: u32, block: Block) -> usize {
        let left = self.places.entry(slot).or_default().held.remove(&block);
        self.holders.entry(block).or_default().retain(|&s| s != slot);
        usize::from(left)
    }

    fn note(&mut self, slot: u32, hash: u64, blocks: &[Block]) -> usize {
        let (count, old) = self.places.entry(slot).or_default().hashes.entry(hash).or_default();
        *count += 1;
        let old = std::mem::replace(old, blocks.to_vec());
        old.iter().filter(|b| !blocks.contains(b)).for_each(|&b| {
            self.leave(slot, b);
        });
        blocks.iter().map(|&b| self.hold(slot, b)).sum()
    }

    /// As [`crate::PrefixIndex::store_blocks`].
    pub fn store_blocks(
        &mut self,
        place: Owner,
        near: &[Owner],
        parent: Option<u64>,
        hashes: &[u64],
        keys: &[u64],
    ) -> StoredBlocks {
        if !self.admit(place) {
            return StoredBlocks::Refused;
        }
        let first: Vec<Owner> = std::iter::once(place).chain(near.iter().copied()).collect();
        let mut before = match parent.map(|hash| self.find(hash, &first)) {
            Some(None) => return StoredBlocks::UnknownParent,
            Some(Some((_, blocks))) => blocks.last().copied(),
            None => None,
        };
        let mut blocks = Vec::new();
        for &key in keys {
            let next = self.blocks.len();
            let block = *self.ways.entry((before, key)).or_insert(next);
            if block == next {
                self.blocks.push((before, key));
            }
            blocks.push(block);
            before = Some(block);
        }
        let n = if keys.is_empty() { 0 } else { hashes.len() };
        let blocks_of = |at| &blocks[span(at, hashes.len(), keys.len())];
        let new_blocks = (0..n).map(|at| self.note(place.slot, hashes[at], blocks_of(at))).sum();
        StoredBlocks::Stored { new_blocks }
    }

    /// As [`crate::PrefixIndex::store_known`].
    pub fn store_known(&mut self, place: Owner, near: &[Owner], hashes: &[u64]) -> usize {
        if hashes.is_empty() || !self.admit(place) {
            return 0;
        }
        let first: Vec<Owner> = std::iter::once(place).chain(near.iter().copied()).collect();
        let mut known = 0;
        for &hash in hashes {
            if let Some(blocks) = self.find(hash, &first).map(|(_, blocks)| blocks.clone()) {
                self.note(place.slot, hash, &blocks);
                known += 1;
            }
        }
        known
    }

    /// As [`crate::PrefixIndex::remove_blocks`].
    pub fn remove_blocks(&mut self, place: Owner, hashes: &[u64]) -> RemovedBlocks {
        let mut removed = RemovedBlocks::default();
        let known = self.place(place).is_some();
        for hash in hashes {
            let held = if known { self.places.entry(place.slot).or_default().hashes.get_mut(hash) } else { None };
            if let Some((count, _)) = held
                && *count > 1
            {
                *count -= 1;
                removed.suppressed += 1;
                continue;
            }
            removed.forwarded += 1;
            if known && let Some((_, blocks)) = self.places.entry(place.slot).or_default().hashes.remove(hash) {
                removed.blocks += blocks.iter().map(|&b| self.leave(place.slot, b)).sum::<usize>();
            }
        }
        removed
    }

    /// The blocks of a prompt, as far as they were ever seen.
    fn way(&self, keys: &[u64]) -> Vec<Block> {
        let mut before = None;
        let next = |&key: &u64| {
            before = Some(*self.ways.get(&(before, key))?);
            before
        };
        keys.iter().map_while(next).collect()
    }

    /// How many leading blocks the place holds.
    pub fn leading(&self, place: Owner, keys: &[u64]) -> usize {
        let Some(place) = self.place(place) else { return 0 };
        self.way(keys).iter().take_while(|b| place.held.contains(b)).count()
    }

    /// As [`crate::PrefixIndex::combined`].
    pub fn combined(&self, keys: &[u64], places: &[(Owner, f64)]) -> Combined {
        let mut combined = Combined::default();
        for block in self.way(keys) {
            let holding = places.iter().filter(|(o, _)| self.place(*o).is_some_and(|p| p.held.contains(&block)));
            let Some(weight) = holding.map(|(_, w)| *w).max_by(f64::total_cmp) else { break };
            combined.blocks += 1;
            combined.weight += weight;
        }
        combined
    }

    /// As [`crate::PrefixIndex::clear`].
    pub fn clear(&mut self, place: Owner) {
        if self.place(place).is_some() {
            self.empty(place.slot);
        }
    }

    /// As [`crate::PrefixIndex::forget`].
    pub fn forget(&mut self, place: Owner) {
        if place.serial == 0 || place.slot as usize >= self.limits.slots {
            return;
        }
        let known = self.places.entry(place.slot).or_default();
        if known.newest <= place.serial {
            (known.newest, known.gone) = (place.serial, true);
        }
        if known.serial <= place.serial {
            self.empty(place.slot);
        }
    }

    /// As [`crate::PrefixIndex::blocks`].
    pub fn blocks(&self) -> usize {
        self.places.values().map(|p| p.held.len()).sum()
    }

    /// As [`crate::PrefixIndex::blocks_of`].
    pub fn blocks_of(&self, place: Owner) -> usize {
        self.place(place).map_or(0, |p| p.held.len())
    }
}
