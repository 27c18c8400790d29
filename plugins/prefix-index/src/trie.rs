//! The trie of runs: what a store changes, what eviction takes away.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::lane::{Lane, NONE};
use crate::run::{ROOT, RUN, Run};
use crate::slab::Slab;
use crate::{Limits, Owner};

/// How many maps the children are spread over, so that the growth of one never moves many.
const MAPS: usize = 256;

/// The next run, by the run before and the first key.
#[derive(Debug)]
pub(crate) struct Children(Vec<HashMap<(u32, u64), u32, RandomState>>);

impl Children {
    /// Makes an empty one.
    pub(crate) fn new() -> Self {
        Self((0..MAPS).map(|_| HashMap::default()).collect())
    }

    fn map(&mut self, key: u64) -> &mut HashMap<(u32, u64), u32, RandomState> {
        &mut self.0[(key >> 56) as usize % MAPS]
    }

    /// The run that goes on with this key.
    pub(crate) fn find(&self, parent: u32, key: u64) -> Option<u32> {
        self.0[(key >> 56) as usize % MAPS].get(&(parent, key)).copied()
    }

    /// Says which run goes on with this key.
    pub(crate) fn set(&mut self, parent: u32, key: u64, run: u32) {
        self.map(key).insert((parent, key), run);
    }

    /// Says that no run goes on with this key any more.
    pub(crate) fn remove(&mut self, parent: u32, key: u64) {
        let map = self.map(key);
        map.remove(&(parent, key));
        if map.capacity() > 4 * map.len() + 32 {
            map.shrink_to(2 * map.len());
        }
    }

    /// How many there are.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }
}

/// What became of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// It is in, as of this stamp.
    At(u64),
    /// It was not taken.
    Refused,
    /// The slot still has blocks of an older serial; evict what was stored before `all`, then try again.
    Occupied { all: u64 },
}

/// Runs, who holds them, and who stored when.
///
/// A store always ends at the end of a run (a longer run is split), so that an owner's hold of a run has one time. The
/// part of a split run that keeps its number is the rear one: stores that end there and runs that follow stay right.
/// An owner's blocks leave in the order of their times, within one store from its end, so that what is held is always
/// whole from the first block on, and only the oldest store can end in the middle of a run (a cut).
#[derive(Debug)]
pub(crate) struct Trie {
    pub(crate) runs: Slab<Run>,
    pub(crate) children: Children,
    pub(crate) lanes: Vec<Lane>,
    /// By slot: the serial in `lanes`.
    pub(crate) serials: Vec<u32>,
    /// By slot: the time of the oldest store; `u64::MAX` if there is none.
    pub(crate) oldest: Vec<u64>,
    /// The time of the last store.
    pub(crate) now: u64,
    pub(crate) blocks: usize,
    pub(crate) bytes: usize,
    limits: Limits,
}

impl Trie {
    /// Makes an empty one.
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            runs: Slab::new(),
            children: Children::new(),
            lanes: Vec::new(),
            serials: Vec::new(),
            oldest: Vec::new(),
            now: 0,
            blocks: 0,
            bytes: 0,
            limits,
        }
    }

    /// The owner's lane, if it is the owner's and not an older or a newer one's.
    pub(crate) fn lane(&self, owner: Owner) -> Option<&Lane> {
        self.lanes.get(owner.slot as usize).filter(|l| l.serial == owner.serial && owner.serial != 0)
    }

    /// Notes that an owner is gone for good.
    pub(crate) fn close(&mut self, owner: Owner) {
        let slot = owner.slot as usize;
        if owner.serial != 0 && slot < self.limits.slots {
            self.grow(slot);
            let lane = &mut self.lanes[slot];
            if lane.newest <= owner.serial {
                (lane.newest, lane.gone) = (owner.serial, true);
            }
        }
    }

    fn grow(&mut self, slot: usize) {
        if self.lanes.len() <= slot {
            self.lanes.resize_with(slot + 1, Lane::default);
            self.serials.resize(slot + 1, 0);
            self.oldest.resize(slot + 1, u64::MAX);
        }
    }

    /// Makes the slot the owner's, unless a newer owner was seen there or what an older one had is still there.
    fn admit(&mut self, owner: Owner) -> Result<(), Stored> {
        let slot = owner.slot as usize;
        if owner.serial == 0 || slot >= self.limits.slots {
            return Err(Stored::Refused);
        }
        self.grow(slot);
        let lane = &mut self.lanes[slot];
        if owner.serial < lane.newest || (owner.serial == lane.newest && lane.gone) {
            return Err(Stored::Refused);
        }
        (lane.newest, lane.gone) = (owner.serial, false);
        if lane.serial != owner.serial {
            if lane.blocks != 0 {
                return Err(Stored::Occupied { all: self.now + 1 });
            }
            lane.serial = owner.serial;
            self.serials[slot] = owner.serial;
        }
        Ok(())
    }

    /// Puts the blocks, of which there is at least one, at the owner, newest of all. Evicts nothing.
    pub(crate) fn store(&mut self, owner: Owner, keys: &[u64]) -> Stored {
        if RUN + size_of_val(keys) > self.limits.bytes {
            return Stored::Refused;
        }
        if let Err(why) = self.admit(owner) {
            return why;
        }
        self.now += 1;
        let slot = owner.slot as usize;
        let (mut at, mut left) = (ROOT, keys);
        while let Some(&first) = left.first() {
            let Some(id) = self.children.find(at, first) else {
                at = self.append(slot, at, left);
                break;
            };
            let n = self.runs[id].common(left);
            at = if n < self.runs[id].keys.len() { self.split(id, n) } else { id };
            self.mark(slot, at);
            left = &left[n..];
        }
        let entry = self.lanes[slot].push(self.now, at);
        self.runs[at].set_entry(slot, entry);
        self.note_oldest(slot);
        Stored::At(self.now)
    }

    /// Makes the owner hold the whole run as of now.
    fn mark(&mut self, slot: usize, id: u32) {
        let now = self.now;
        let was = self.change(id, |run| run.mark(slot, now));
        let lane = &mut self.lanes[slot];
        if was.entry != NONE {
            lane.unlink(was.entry);
        }
        let more = self.runs[id].keys.len() - was.held;
        lane.blocks += more;
        self.blocks += more;
    }

    /// Adds blocks that no run goes on with, and gives the run that they end in.
    fn append(&mut self, slot: usize, parent: u32, keys: &[u64]) -> u32 {
        if parent != ROOT {
            let run = &self.runs[parent];
            if run.n_children == 0 && run.n_holders() == 1 {
                // The owner was just marked there, so nobody else holds it: it grows instead of getting a follower.
                self.change(parent, |run| {
                    run.keys.reserve_exact(keys.len());
                    run.keys.extend_from_slice(keys);
                });
                self.lanes[slot].blocks += keys.len();
                self.blocks += keys.len();
                return parent;
            }
            self.runs[parent].n_children += 1;
        }
        let run = Run::new(keys.to_vec(), parent);
        self.bytes += run.bytes();
        let id = self.runs.insert(run);
        self.children.set(parent, keys[0], id);
        self.mark(slot, id);
        id
    }

    /// Parts a run after `at` blocks and gives the new one, which is the front.
    fn split(&mut self, id: u32, at: usize) -> u32 {
        let (head, moved) = self.change(id, |run| run.split_head(at));
        let (parent, first) = (head.parent, head.keys[0]);
        self.bytes += head.bytes();
        let head_id = self.runs.insert(head);
        self.children.set(parent, first, head_id);
        let rear = &mut self.runs[id];
        rear.parent = head_id;
        self.children.set(head_id, rear.keys[0], id);
        for slot in moved {
            let hold = self.runs[head_id].hold(slot).expect("who is moved holds the head");
            self.lanes[slot].relocate(hold.entry, head_id);
        }
        head_id
    }

    /// Evicts blocks of a slot, least recently stored first and of each store the last ones first, until it holds no
    /// more than `keep` or all that were stored before `before` are gone. Says whether that is reached; takes at most
    /// `most` steps.
    pub(crate) fn evict(&mut self, slot: usize, keep: usize, before: u64, most: usize) -> bool {
        for _ in 0..most {
            let Some(lane) = self.lanes.get(slot) else { return true };
            if lane.blocks <= keep || self.oldest[slot] >= before {
                return true;
            }
            self.evict_oldest(slot, lane.blocks - keep);
        }
        false
    }

    /// Evicts blocks of whoever's store is oldest, until the bytes are within the limit or all that were stored before
    /// `before` are gone. Says whether that is reached; takes at most `most` steps.
    pub(crate) fn shrink(&mut self, before: u64, most: usize) -> bool {
        for _ in 0..most {
            if self.bytes <= self.limits.bytes {
                return true;
            }
            let oldest = self.oldest.iter().copied().min().unwrap_or(u64::MAX);
            if oldest >= before {
                return true;
            }
            let slot = self.oldest.iter().position(|&o| o == oldest).expect("the least one is one of them");
            self.evict_oldest(slot, usize::MAX);
        }
        false
    }

    /// Evicts from the end of the slot's oldest store, of which there is one: at most `most` blocks, of one run.
    fn evict_oldest(&mut self, slot: usize, most: usize) {
        let (entry, store) = self.lanes[slot].front().expect("a slot with blocks has a store");
        let held = self.runs[store.run].held(slot);
        let n = held.min(most);
        self.lanes[slot].blocks -= n;
        self.blocks -= n;
        if n < held {
            self.change(store.run, |run| run.cut(slot, held - n));
            return;
        }
        let parent = self.runs[store.run].parent;
        self.change(store.run, |run| run.leave(slot));
        if self.runs[store.run].n_holders() == 0 {
            self.remove(store.run);
        }
        if parent != ROOT && self.runs[parent].hold(slot).is_some_and(|h| h.stamp == store.stamp) {
            self.runs[parent].set_entry(slot, entry);
            self.lanes[slot].relocate(entry, parent);
        } else {
            self.lanes[slot].unlink(entry);
            self.note_oldest(slot);
        }
    }

    /// Forgets a run that nobody holds; nothing follows it.
    fn remove(&mut self, id: u32) {
        let run = self.runs.remove(id);
        self.bytes -= run.bytes();
        self.children.remove(run.parent, run.keys[0]);
        if run.parent != ROOT {
            self.runs[run.parent].n_children -= 1;
        }
    }

    fn note_oldest(&mut self, slot: usize) {
        self.oldest[slot] = self.lanes[slot].front().map_or(u64::MAX, |(_, e)| e.stamp);
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
