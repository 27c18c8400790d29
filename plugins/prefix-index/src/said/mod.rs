//! What engines say they hold: runs of blocks of which a place may hold any part, found by the engines' hashes.
//!
//! Every block has a number for as long as somebody's hash stands for it or blocks after it are known. A place's table
//! leads from hash to number, [`Cell`] from number to run. Runs grow at their end whoever stores there, so that engines
//! that go through one prompt chunk by chunk make one run of it.

#[cfg(any(test, feature = "model"))]
mod check;
mod lane;
mod lookup;
mod run;
pub(crate) mod store;
mod table;

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::run::ROOT;
use crate::said::lane::{Entry, Lane};
use crate::said::run::Run;
use crate::slab::Slab;
use crate::trie::Children;
use crate::{Limits, Owner};

/// What is known by a block's number, in one word: 28 bits of run, 20 of blocks before it, 16 of hashes that stand for it.
#[derive(Clone, Copy, Debug)]
struct Cell(u64);

impl Cell {
    const MOST_RUNS: u32 = (1 << 28) - 1;
    const MOST_DEPTH: u32 = (1 << 20) - 1;
    const MOST_HASHES: u64 = (1 << 16) - 1;

    fn new(run: u32, depth: u32) -> Self {
        Self(u64::from(run) << 36 | u64::from(depth) << 16)
    }

    fn run(self) -> u32 {
        (self.0 >> 36) as u32
    }

    fn depth(self) -> u32 {
        (self.0 >> 16) as u32 & Self::MOST_DEPTH
    }

    fn n_hashes(self) -> u64 {
        self.0 & Self::MOST_HASHES
    }

    fn count_hash(&mut self) {
        if self.n_hashes() < Self::MOST_HASHES {
            self.0 += 1;
        }
    }

    /// Whoever had so many hashes that they could not be counted stays.
    fn uncount_hash(&mut self) {
        if self.n_hashes() < Self::MOST_HASHES {
            self.0 -= 1;
        }
    }
}

/// A number that no block has.
impl Default for Cell {
    fn default() -> Self {
        Self::new(Self::MOST_RUNS, 0)
    }
}

/// Runs, blocks by number, and who calls them what.
#[derive(Debug)]
pub(crate) struct Said {
    runs: Slab<Run>,
    children: Children,
    cells: Slab<Cell>,
    lanes: Vec<Lane>,
    /// By slot: the serial in `lanes`.
    serials: Vec<u32>,
    /// How many blocks all places hold.
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    limits: Limits,
    /// Counts the stores.
    now: u64,
    /// Makes it unforeseeable where a hash lies.
    seed: u64,
    /// Blocks that lost their last hash in the present operation.
    loose: Vec<u32>,
    /// The slot whose turn it is to lose something when memory is full, and where.
    hand: (usize, u64),
    /// By block: the slots that hold it, the one that stored it longest ago first. Kept only where that is limited.
    order: HashMap<u32, Vec<u32>, RandomState>,
}

impl Said {
    /// Makes an empty one.
    pub(crate) fn new(limits: Limits) -> Self {
        let most = Cell::MOST_RUNS as usize * run::RUN;
        let limits = Limits { bytes: limits.bytes.min(most), ..limits };
        Self {
            runs: Slab::new(),
            children: Children::new(),
            cells: Slab::new(),
            lanes: Vec::new(),
            serials: Vec::new(),
            blocks: 0,
            bytes: 0,
            limits,
            now: 0,
            seed: RandomState::default().hash_one(0),
            loose: Vec::new(),
            hand: (0, 0),
            order: HashMap::default(),
        }
    }

    /// Spreads hashes, whatever the engine makes them of; no two become one.
    fn mix(&self, hash: u64) -> u64 {
        let hash = (hash ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// The place's lane, if it is the place's and not an older or a newer one's.
    pub(crate) fn lane(&self, place: Owner) -> Option<&Lane> {
        self.lanes.get(place.slot as usize).filter(|l| l.serial == place.serial && place.serial != 0)
    }

    /// How many blocks the place holds.
    pub(crate) fn blocks_of(&self, place: Owner) -> usize {
        self.lane(place).map_or(0, |l| l.blocks)
    }

    fn grow(&mut self, slot: usize) {
        if self.lanes.len() <= slot {
            self.lanes.resize_with(slot + 1, Lane::default);
            self.serials.resize(slot + 1, 0);
        }
    }

    /// Notes that a place is gone for good. Says whether what is there is the place's or an older one's.
    pub(crate) fn close(&mut self, place: Owner) -> bool {
        let slot = place.slot as usize;
        if place.serial == 0 || slot >= self.limits.slots {
            return false;
        }
        self.grow(slot);
        let lane = &mut self.lanes[slot];
        if lane.newest <= place.serial {
            (lane.newest, lane.gone) = (place.serial, true);
        }
        lane.serial <= place.serial
    }

    /// Forgets hashes of a slot and what they stand for. Says whether that was all; takes at most `most` steps.
    pub(crate) fn empty(&mut self, slot: usize, most: usize) -> bool {
        for _ in 0..most {
            let lane = &mut self.lanes[slot];
            let before = lane.bytes();
            let Some(entry) = lane.pop() else { break };
            self.bytes = self.bytes + lane.bytes() - before;
            for block in self.back(entry) {
                self.leave_run(slot, self.cells[block].run());
                self.let_go(block);
            }
        }
        self.settle();
        self.lanes[slot].table.len() == 0
    }

    /// The blocks that an entry stands for, the last one first.
    fn back(&self, entry: Entry) -> impl Iterator<Item = u32> + use<> {
        let mut rest = Vec::new();
        if entry.n_blocks > 1 {
            let (mut run, mut at) = self.place_of(entry.block);
            for _ in 1..entry.n_blocks {
                if at == 0 {
                    run = self.runs[run].parent;
                    at = self.runs[run].ids.len();
                }
                at -= 1;
                rest.push(self.runs[run].ids[at]);
            }
        }
        std::iter::once(entry.block).chain(rest)
    }

    /// The run that a block is in, and where.
    fn place_of(&self, block: u32) -> (u32, usize) {
        let cell = self.cells[block];
        (cell.run(), (cell.depth() - self.runs[cell.run()].depth) as usize)
    }

    /// Takes all of a run from a place.
    fn leave_run(&mut self, slot: usize, run: u32) {
        if self.limits.holders.is_some() {
            let here = &self.runs[run];
            let order = &mut self.order;
            here.ids.iter().for_each(|block| forget_holder(order, *block, slot));
        }
        let left = self.change(run, |run| run.drop_all(slot));
        self.lanes[slot].blocks -= left;
        self.blocks -= left;
    }

    /// Takes a block from a place; gives whether it was there.
    fn leave(&mut self, slot: usize, block: u32) -> bool {
        let (run, at) = self.place_of(block);
        let left = self.change(run, |run| run.drop_one(slot, at));
        if left {
            self.lanes[slot].blocks -= 1;
            self.blocks -= 1;
            if self.limits.holders.is_some() {
                forget_holder(&mut self.order, block, slot);
            }
        }
        left
    }

    /// Notes that one hash less stands for the block.
    fn let_go(&mut self, block: u32) {
        let cell = &mut self.cells[block];
        cell.uncount_hash();
        if cell.n_hashes() == 0 {
            self.loose.push(block);
        }
    }

    /// Forgets blocks that no hash stands for any more and nothing follows.
    fn settle(&mut self) {
        while let Some(block) = self.loose.pop() {
            // A block that was loose twice, or behind one that was, is gone already.
            let here = self.cells.get(block).filter(|cell| cell.run() != Cell::MOST_RUNS && cell.n_hashes() == 0);
            if let Some(run) = here.map(|cell| cell.run()) {
                self.trim(run);
            }
        }
    }

    /// Shortens a run by the blocks at its end that no hash stands for, and those before it if nothing is left.
    fn trim(&mut self, mut id: u32) {
        while id != ROOT && self.runs[id].n_children == 0 {
            let run = &self.runs[id];
            let (parent, first, cells) = (run.parent, run.keys[0], &self.cells);
            let keep = run.ids.iter().rposition(|&b| cells[b].n_hashes() > 0).map_or(0, |last| last + 1);
            for at in keep..self.runs[id].ids.len() {
                let block = self.runs[id].ids[at];
                self.cells.remove(block);
                self.order.remove(&block);
            }
            if keep > 0 {
                self.change(id, |run| run.truncate(keep));
                return;
            }
            self.bytes -= self.runs[id].bytes();
            self.runs.remove(id);
            self.children.remove(parent, first);
            if parent != ROOT {
                self.runs[parent].n_children -= 1;
            }
            id = parent;
        }
    }

    /// Takes hashes away while bytes are beyond the limit. Says whether they are within; takes at most `most` steps.
    ///
    /// The places take turns. Of some hashes of one, which lie together by chance, that one goes whose run was stored
    /// longest ago anywhere; of one run, the one farthest from the start.
    pub(crate) fn shrink(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.bytes <= self.limits.bytes {
                return true;
            }
            let n = self.lanes.len();
            let turns = (1..=n).map(|turn| (self.hand.0 + turn) % n);
            let Some(slot) = turns.into_iter().find(|&slot| self.lanes[slot].table.len() > 0) else { return true };
            self.hand = (slot, self.mix(self.hand.1));
            let age = |block: u32| {
                let cell = self.cells[block];
                (self.runs[cell.run()].stamp, u32::MAX - cell.depth())
            };
            let sample = self.lanes[slot].table.sample(self.hand.1, SAMPLE);
            let (hash, _) = sample.min_by_key(|&(_, block)| age(block)).expect("the table is not empty");
            self.take_out(slot, hash);
            self.settle();
        }
        self.bytes <= self.limits.bytes
    }

    /// Forgets a hash at a place; gives how many blocks left.
    fn take_out(&mut self, slot: usize, hash: u64) -> usize {
        let lane = &mut self.lanes[slot];
        let before = lane.bytes();
        let Some(entry) = lane.remove(hash) else { return 0 };
        self.bytes = self.bytes + lane.bytes() - before;
        let mut left = 0;
        for block in self.back(entry) {
            left += usize::from(self.leave(slot, block));
            self.let_go(block);
        }
        left
    }

    /// Changes a run and keeps the bytes right.
    fn change<T>(&mut self, id: u32, change: impl FnOnce(&mut Run) -> T) -> T {
        let run = &mut self.runs[id];
        let before = run.bytes();
        let result = change(run);
        self.bytes = self.bytes + run.bytes() - before;
        result
    }
}

/// How many hashes are compared when one must go.
const SAMPLE: usize = 8;

fn forget_holder(order: &mut HashMap<u32, Vec<u32>, RandomState>, block: u32, slot: usize) {
    if let Some(slots) = order.get_mut(&block) {
        slots.retain(|&s| s as usize != slot);
        if slots.is_empty() {
            order.remove(&block);
        }
    }
}
