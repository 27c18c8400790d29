//! What a store and a removal change.

use std::ops::Range;

use crate::Owner;
use crate::outcome::{RemovedBlocks, StoredBlocks};
use crate::run::{ROOT, common};
use crate::said::lane::{Entry, HASH};
use crate::said::run::{BLOCK, RUN, Run};
use crate::said::{Cell, Said};

/// Whether a place may say something now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    Yes,
    /// It comes too late or is beyond the limits.
    Refused,
    /// The slot still has hashes of an older serial; empty it, then try again.
    Occupied,
}

/// What a store puts where, and how far it is.
#[derive(Debug)]
pub(crate) struct Storing<'a> {
    pub(crate) place: Owner,
    pub(crate) hashes: &'a [u64],
    pub(crate) keys: &'a [u64],
    /// The block before the next key, which is the block of the last hash if there was one.
    pub(crate) last: Option<u32>,
    /// How many of the hashes are noted.
    pub(crate) n_noted: usize,
    pub(crate) new_blocks: usize,
}

impl Said {
    /// Makes the slot the place's, unless a newer one was seen there or what an older one had is still there.
    pub(crate) fn admit(&mut self, place: Owner) -> Admitted {
        let slot = place.slot as usize;
        if place.serial == 0 || slot >= self.limits.slots {
            return Admitted::Refused;
        }
        self.grow(slot);
        let lane = &mut self.lanes[slot];
        if place.serial < lane.newest || (place.serial == lane.newest && lane.gone) {
            return Admitted::Refused;
        }
        (lane.newest, lane.gone) = (place.serial, false);
        if lane.serial != place.serial {
            if lane.table.len() > 0 {
                return Admitted::Occupied;
            }
            lane.serial = place.serial;
            self.serials[slot] = place.serial;
        }
        Admitted::Yes
    }

    /// Finds what a hash stands for at one of these places.
    pub(crate) fn entry_at(&self, hash: u64, places: impl IntoIterator<Item = Owner>) -> Option<Entry> {
        let hash = self.mix(hash);
        places.into_iter().filter_map(|place| self.lane(place)).find_map(|lane| lane.get(hash))
    }

    /// Finds a place among the slots from `from` on that knows the hash: `Ok`, or else the slot to go on with; `None`
    /// after the last slot. Looks at most at `most`.
    pub(crate) fn who_knows(&self, hash: u64, from: usize, most: usize) -> Result<Owner, Option<usize>> {
        let (hash, end) = (self.mix(hash), self.lanes.len().min(from.saturating_add(most)));
        let found = (from..end).find(|&slot| self.lanes[slot].table.get(hash).is_some());
        match found {
            Some(slot) => Ok(Owner { slot: slot as u32, serial: self.serials[slot] }),
            None => Err((end < self.lanes.len()).then_some(end)),
        }
    }

    /// The key of a block.
    pub(crate) fn key(&self, block: u32) -> u64 {
        let (run, at) = self.place_of(block);
        self.runs[run].keys[at]
    }

    /// Whether so much could be kept if there were nothing else, so deep in a prompt.
    pub(crate) fn fits(&self, storing: &Storing<'_>) -> bool {
        let depth = storing.last.map_or(0, |b| self.cells[b].depth() as usize + 1);
        let bytes = storing.keys.len() * BLOCK + storing.hashes.len() * HASH + RUN;
        depth + storing.keys.len() <= Cell::MOST_DEPTH as usize && bytes <= self.limits.bytes
    }

    /// Notes at most `most` more of the hashes and their blocks. Says whether those were the last.
    pub(crate) fn store(&mut self, storing: &mut Storing<'_>, most: usize) -> bool {
        let (n_hashes, n_keys) = (storing.hashes.len(), storing.keys.len());
        let (from, to) = (storing.n_noted, n_hashes.min(storing.n_noted + most));
        if from == to || n_keys == 0 {
            return true;
        }
        self.now += 1;
        let slot = storing.place.slot as usize;
        let start = span(from, n_hashes, n_keys).start;
        // The first hash of a step may stand for the block of the last one of the step before.
        let n_walked = if from == 0 { 0 } else { span(from - 1, n_hashes, n_keys).end };
        let mut ids: Vec<u32> = if start < n_walked { storing.last.into_iter().collect() } else { Vec::new() };
        let end = span(to - 1, n_hashes, n_keys).end;
        self.walk(storing.last, &storing.keys[n_walked..end], &mut ids);
        // Blocks that are noted under their hashes, but not yet as held.
        let (mut open, mut next) = (0, 0);
        for at in from..to {
            let keys = span(at, n_hashes, n_keys);
            let blocks = &ids[keys.start - start..keys.end - start];
            let hash = self.mix(storing.hashes[at]);
            if let Some(old) = self.name(slot, hash, blocks) {
                storing.new_blocks += self.hold(slot, &ids[open..next]);
                open = keys.start - start;
                for block in self.back(old) {
                    if !blocks.contains(&block) {
                        self.leave(slot, block);
                    }
                    self.let_go(block);
                }
            }
            next = keys.end - start;
        }
        storing.new_blocks += self.hold(slot, &ids[open..next]);
        (storing.n_noted, storing.last) = (to, ids.last().copied());
        self.settle();
        to == n_hashes
    }

    /// Makes a hash stand for these blocks at a place, once more if it does. Gives what it stood for, if that was
    /// something else.
    fn name(&mut self, slot: usize, hash: u64, blocks: &[u32]) -> Option<Entry> {
        let (block, n_blocks) = (*blocks.last()?, blocks.len() as u32);
        let lane = &mut self.lanes[slot];
        let before = lane.bytes();
        let old = lane.set(hash, block, n_blocks);
        self.bytes = self.bytes + lane.bytes() - before;
        let other = old.filter(|old| old.block != block || old.n_blocks != n_blocks);
        if old.is_none() || other.is_some() {
            for &block in blocks {
                self.cells[block].count_hash();
            }
        }
        other
    }

    /// Makes the place hold blocks that follow each other; gives how many it did not hold.
    fn hold(&mut self, slot: usize, mut blocks: &[u32]) -> usize {
        let mut new = 0;
        while let Some(&first) = blocks.first() {
            let (run, at) = self.place_of(first);
            let n = blocks.len().min(self.runs[run].ids.len() - at);
            let now = self.now;
            new += self.change(run, |run| {
                run.stamp = now;
                run.hold(slot, at, at + n)
            });
            if self.limits.holders.is_some() {
                blocks[..n].iter().for_each(|&block| self.note_holder(slot, block));
            }
            blocks = &blocks[n..];
        }
        self.lanes[slot].blocks += new;
        self.blocks += new;
        new
    }

    /// Notes that the place is the last one that stored the block, and lets the first one lose it if they are too many.
    fn note_holder(&mut self, slot: usize, block: u32) {
        let most = self.limits.holders.unwrap_or(usize::MAX).max(1);
        let slots = self.order.entry(block).or_default();
        slots.retain(|&s| s as usize != slot);
        slots.push(slot as u32);
        if slots.len() > most {
            let first = slots[0] as usize;
            self.leave(first, block);
        }
    }

    /// Finds the blocks that follow `from`, or are the first ones, and makes those that are not there; appends their
    /// numbers.
    fn walk(&mut self, from: Option<u32>, mut keys: &[u64], ids: &mut Vec<u32>) {
        let (mut run, mut at) = match from {
            None => (ROOT, 0),
            Some(block) => {
                let (run, at) = self.place_of(block);
                (run, at + 1)
            }
        };
        while let Some(&first) = keys.first() {
            if run == ROOT || at == self.runs[run].keys.len() {
                let Some(next) = self.children.find(run, first) else { return self.extend(run, keys, ids) };
                (run, at) = (next, 0);
            }
            let here = &self.runs[run];
            if here.keys[at] != first {
                let head = self.split(run, at);
                return self.extend(head, keys, ids);
            }
            let n = common(&here.keys[at..], keys);
            ids.extend_from_slice(&here.ids[at..at + n]);
            (at, keys) = (at + n, &keys[n..]);
        }
    }

    /// Adds blocks that are not there after the end of a run.
    fn extend(&mut self, run: u32, keys: &[u64], ids: &mut Vec<u32>) {
        let grows = run != ROOT && self.runs[run].n_children == 0;
        let (run, depth) = if grows {
            (run, self.runs[run].depth + self.runs[run].keys.len() as u32)
        } else {
            let depth = if run == ROOT { 0 } else { self.runs[run].depth + self.runs[run].keys.len() as u32 };
            if run != ROOT {
                self.runs[run].n_children += 1;
            }
            let next = Run::new(run, depth);
            self.bytes += next.bytes();
            let next = self.runs.insert(next);
            assert!(next < Cell::MOST_RUNS, "the byte limit keeps the number of runs below 2^28");
            self.children.set(run, keys[0], next);
            (next, depth)
        };
        let first = ids.len();
        ids.extend((depth..).take(keys.len()).map(|depth| self.cells.insert(Cell::new(run, depth))));
        self.change(run, |run| run.append(keys, &ids[first..]));
    }

    /// Parts a run after `at` blocks and gives the new one, which is the front.
    fn split(&mut self, id: u32, at: usize) -> u32 {
        let head = self.change(id, |run| run.split_head(at));
        let (parent, first) = (head.parent, head.keys[0]);
        self.bytes += head.bytes();
        let head_id = self.runs.insert(head);
        assert!(head_id < Cell::MOST_RUNS, "the byte limit keeps the number of runs below 2^28");
        self.children.set(parent, first, head_id);
        let rear = &mut self.runs[id];
        rear.parent = head_id;
        self.children.set(head_id, rear.keys[0], id);
        for &block in &self.runs[head_id].ids {
            let cell = &mut self.cells[block];
            *cell = Cell(Cell::new(head_id, cell.depth()).0 | cell.n_hashes());
        }
        head_id
    }

    /// Notes at the place what the hash stands for, as `entry` says, which is some place's.
    pub(crate) fn store_known(&mut self, place: Owner, hash: u64, entry: Entry) {
        self.now += 1;
        let (slot, hash) = (place.slot as usize, self.mix(hash));
        let mut blocks: Vec<u32> = self.back(entry).collect();
        blocks.reverse();
        if let Some(old) = self.name(slot, hash, &blocks) {
            for block in self.back(old) {
                if !blocks.contains(&block) {
                    self.leave(slot, block);
                }
                self.let_go(block);
            }
        }
        self.hold(slot, &blocks);
        self.settle();
    }

    /// Takes hashes away from a place.
    pub(crate) fn remove(&mut self, place: Owner, hashes: &[u64], removed: &mut RemovedBlocks) {
        let (slot, known) = (place.slot as usize, self.lane(place).is_some());
        for &hash in hashes {
            let hash = self.mix(hash);
            if known && self.lower(slot, hash) {
                removed.suppressed += 1;
            } else {
                removed.forwarded += 1;
                removed.blocks += if known { self.take_out(slot, hash) } else { 0 };
            }
        }
        self.settle();
    }

    fn lower(&mut self, slot: usize, hash: u64) -> bool {
        let lane = &mut self.lanes[slot];
        let before = lane.bytes();
        let lowered = lane.lower(hash);
        self.bytes = self.bytes + lane.bytes() - before;
        lowered
    }
}

impl Storing<'_> {
    /// What became of it.
    pub(crate) fn result(&self) -> StoredBlocks {
        StoredBlocks::Stored { new_blocks: self.new_blocks }
    }
}

/// Which of the keys belong to a hash.
pub(crate) fn span(at: usize, n_hashes: usize, n_keys: usize) -> Range<usize> {
    if n_keys > n_hashes {
        (at * n_keys).div_ceil(n_hashes)..((at + 1) * n_keys).div_ceil(n_hashes)
    } else {
        let key = at * n_keys / n_hashes;
        key..key + 1
    }
}
