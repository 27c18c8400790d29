//! What engines say they hold: blocks under the hashes that they give them.
//!
//! A *place* is an [`Owner`] like any other: one memory of one endpoint. Unlike what is guessed with
//! [`PrefixIndex::store`], what is said may have holes, is found by the engine's own hashes, and leaves only when the
//! engine says so (or when memory is full). An index serves one of the two uses: the first store decides.

use std::sync::atomic::Ordering;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::outcome::{Combined, RemovedBlocks, StoredBlocks};
use crate::said::Said;
use crate::said::store::{Admitted, Storing};
use crate::{Owner, PrefixIndex, STEPS, Source};

/// How often a lookup tries before it queues: for some 40 µs.
const TRIES: usize = 1000;
/// How long a writer stays away between two steps: for some 0.3 µs.
const PAUSES: usize = 8;

impl PrefixIndex {
    /// Gives the key of the last block stored under an engine's hash: looked for at these places first, then at all
    /// others (engines with equal seeds share hashes, and a block may be known from elsewhere only).
    ///
    /// A hash that none of `first` knows costs a look at every other place: some 60 ns each.
    pub fn key_of(&self, hash: u64, first: &[Owner]) -> Option<u64> {
        let key = |places: &[Owner]| {
            let said = self.said.read();
            said.entry_at(hash, places.iter().copied()).map(|entry| said.key(entry.block))
        };
        key(first).or_else(|| key(&[self.who_knows(hash)?]))
    }

    /// Notes that the place holds blocks `keys`, which follow the block known under the hash `parent` or are the first
    /// of a prompt, under the engine's `hashes`. The parent is looked for at the place, then at the places `near` it,
    /// then at all others. Without hashes or without keys nothing is noted.
    ///
    /// Hashes and keys are matched by proportion: with n the greater of their numbers, for i below n key
    /// ⌊i · keys / n⌋ belongs to hash ⌊i · hashes / n⌋. A hash that stood for other blocks stands for these now, and
    /// the others leave.
    ///
    /// When there are more bytes than [`crate::Limits`] says, hashes are taken away: the places take turns, and of
    /// eight hashes that lie together by chance at the place, that one goes whose blocks were stored longest ago
    /// anywhere. What takes more by itself is refused, as are prompts of more than a million blocks.
    pub fn store_blocks(
        &self,
        place: Owner,
        near: &[Owner],
        parent: Option<u64>,
        hashes: &[u64],
        keys: &[u64],
    ) -> StoredBlocks {
        if !self.is_for(Source::Said) {
            return self.refuse();
        }
        // Where the parent is known, if not nearby.
        let mut elsewhere = None;
        loop {
            let Some(said) = self.enter(place) else { return self.refuse() };
            let places = std::iter::once(place).chain(near.iter().copied()).chain(elsewhere);
            let last = match parent.map(|hash| (hash, said.entry_at(hash, places))) {
                None => None,
                Some((_, Some(entry))) => Some(entry.block),
                Some((hash, None)) if elsewhere.is_none() => {
                    drop(said);
                    elsewhere = self.who_knows(hash);
                    if elsewhere.is_none() {
                        return StoredBlocks::UnknownParent;
                    }
                    continue;
                }
                Some(_) => return StoredBlocks::UnknownParent,
            };
            let storing = Storing { place, hashes, keys, last, n_noted: 0, new_blocks: 0 };
            return if said.fits(&storing) { self.go_on(said, storing) } else { self.refuse() };
        }
    }

    /// Waits to change what the place holds, once nothing is left of earlier owners of its slot; `None` if it comes too
    /// late or is beyond the limits.
    fn enter(&self, place: Owner) -> Option<RwLockWriteGuard<'_, Said>> {
        loop {
            let mut said = self.said.write();
            match said.admit(place) {
                Admitted::Yes => return Some(said),
                Admitted::Refused => return None,
                Admitted::Occupied => {}
            }
            drop(said);
            self.empty(place.slot as usize);
        }
    }

    /// Stores step by step, and lets those in between who wait.
    fn go_on<'a>(&'a self, mut said: RwLockWriteGuard<'a, Said>, mut storing: Storing<'_>) -> StoredBlocks {
        while !said.store(&mut storing, STEPS / 4) {
            said = self.let_in(said);
            // What was stored may have been taken away meanwhile.
            let last = storing.hashes[storing.n_noted - 1];
            match said.entry_at(last, [storing.place]) {
                Some(entry) => storing.last = Some(entry.block),
                None => return storing.result(),
            }
        }
        while !said.shrink(STEPS / 8) {
            said = self.let_in(said);
        }
        storing.result()
    }

    /// Lets those in who wait, asleep or trying.
    fn let_in<'a>(&'a self, said: RwLockWriteGuard<'a, Said>) -> RwLockWriteGuard<'a, Said> {
        RwLockWriteGuard::unlock_fair(said);
        // Who tries must see that nobody is inside.
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
        self.said.write()
    }

    /// Notes that the place holds the blocks that are known under these hashes: at the place itself, else `near` it,
    /// else anywhere. Leaves unknown ones out. Gives how many hashes were known.
    pub fn store_known(&self, place: Owner, near: &[Owner], hashes: &[u64]) -> usize {
        if !self.is_for(Source::Said) {
            return 0;
        }
        let mut n_known = 0;
        for &hash in hashes {
            let Some(mut said) = self.enter(place) else {
                self.refuse();
                break;
            };
            let mut entry = said.entry_at(hash, std::iter::once(place).chain(near.iter().copied()));
            if entry.is_none() {
                drop(said);
                let Some(elsewhere) = self.who_knows(hash) else { continue };
                let Some(again) = self.enter(place) else { continue };
                said = again;
                entry = said.entry_at(hash, [elsewhere]);
            }
            if let Some(entry) = entry {
                said.store_known(place, hash, entry);
                n_known += 1;
            }
        }
        self.until_said(|said| said.shrink(STEPS / 8));
        n_known
    }

    /// Takes hashes away from a place. A hash that was stored n times needs n removals. A block leaves as soon as one
    /// of its hashes does.
    pub fn remove_blocks(&self, place: Owner, hashes: &[u64]) -> RemovedBlocks {
        let mut removed = RemovedBlocks::default();
        let mut steps = hashes.chunks(STEPS / 4);
        self.until_said(|said| {
            steps.next().is_none_or(|hashes| {
                said.remove(place, hashes, &mut removed);
                false
            })
        });
        // A hole takes memory to remember.
        self.until_said(|said| said.shrink(STEPS / 8));
        removed
    }

    /// Counts the leading blocks of a prompt of which each is held by at least one of the places, and what they weigh.
    pub fn combined(&self, keys: &[u64], places: &[(Owner, f64)]) -> Combined {
        self.glance().combined(keys, places)
    }

    /// Waits to look at what engines said. A writer lets go after some six microseconds, which is less than it takes to
    /// be put to sleep and woken up, so a lookup tries for a while before it queues.
    pub(crate) fn glance(&self) -> RwLockReadGuard<'_, Said> {
        for _ in 0..TRIES {
            if let Some(said) = self.said.try_read() {
                return said;
            }
            std::hint::spin_loop();
        }
        self.said.read()
    }

    /// Any place that knows the hash.
    fn who_knows(&self, hash: u64) -> Option<Owner> {
        let mut from = 0;
        loop {
            match self.said.read().who_knows(hash, from, STEPS) {
                Ok(place) => return Some(place),
                Err(next) => from = next?,
            }
        }
    }

    /// Forgets all hashes of a slot.
    pub(crate) fn empty(&self, slot: usize) {
        self.until_said(|said| said.empty(slot, STEPS));
    }

    fn refuse(&self) -> StoredBlocks {
        self.refused.fetch_add(1, Ordering::Relaxed);
        StoredBlocks::Refused
    }

    /// Changes what engines said step by step until one says that it was the last, and lets those in between who wait.
    fn until_said(&self, mut step: impl FnMut(&mut Said) -> bool) {
        let mut said = self.said.write();
        while !step(&mut said) {
            said = self.let_in(said);
        }
    }
}
