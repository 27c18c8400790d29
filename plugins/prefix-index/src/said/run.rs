//! A run of blocks of which a place may hold any part.

use crate::set::SlotSet;

/// Blocks that a place holds behind its first hole, with those before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rest {
    words: Vec<u64>,
    /// How many bits are set in `words`.
    n_held: u32,
}

/// What a place holds of a run of which it does not hold all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) slot: u32,
    /// Leading blocks.
    pub(crate) lead: u32,
    /// All that is held, when that is more than the leading blocks.
    rest: Option<Box<Rest>>,
}

impl Part {
    fn new(slot: usize, lead: usize) -> Self {
        Self { slot: slot as u32, lead: lead as u32, rest: None }
    }

    fn of_words(slot: u32, words: Vec<u64>) -> Self {
        let n_held = words.iter().map(|w| w.count_ones()).sum();
        let mut part = Self { slot, lead: 0, rest: Some(Box::new(Rest { words, n_held })) };
        part.settle();
        part
    }

    /// How many blocks are held.
    pub(crate) fn held(&self) -> usize {
        self.rest.as_ref().map_or(self.lead, |r| r.n_held) as usize
    }

    /// Whether the block is held, and up to where that stays so; of a run of `len` blocks.
    pub(crate) fn stretch(&self, at: usize, len: usize) -> (bool, usize) {
        if at < self.lead as usize {
            return (true, self.lead as usize);
        }
        let Some(rest) = &self.rest else { return (false, len) };
        let held = rest.words.get(at / 64).is_some_and(|w| w >> (at % 64) & 1 == 1);
        let end = rest.until(at, !held);
        (
            held,
            if held {
                end
            } else if end == rest.words.len() * 64 {
                len
            } else {
                end
            },
        )
    }

    /// Holds the blocks from `from` to before `to`, too; gives how many were not held.
    fn fill(&mut self, from: usize, to: usize) -> usize {
        let lead = self.lead as usize;
        if self.rest.is_none() && from <= lead {
            self.lead = lead.max(to) as u32;
            return to.saturating_sub(lead);
        }
        let rest = self.rest.get_or_insert_with(|| Rest::leading(lead));
        let new = rest.fill(from, to);
        if from <= lead {
            self.settle();
        }
        new
    }

    /// Holds the block no longer; gives whether it was held.
    fn drop_one(&mut self, at: usize) -> bool {
        let lead = self.lead as usize;
        if self.rest.is_none() {
            if at >= lead {
                return false;
            }
            if at + 1 == lead {
                self.lead -= 1;
                return true;
            }
        }
        let rest = self.rest.get_or_insert_with(|| Rest::leading(lead));
        let Some(word) = rest.words.get_mut(at / 64).filter(|w| **w >> (at % 64) & 1 == 1) else { return false };
        *word &= !(1 << (at % 64));
        rest.n_held -= 1;
        self.lead = self.lead.min(at as u32);
        if rest.n_held == self.lead {
            self.rest = None;
        }
        true
    }

    /// Counts the leading blocks anew.
    fn settle(&mut self) {
        if let Some(rest) = &self.rest {
            self.lead = rest.until(self.lead as usize, false) as u32;
            if rest.n_held == self.lead {
                self.rest = None;
            }
        }
    }

    /// What it is of the first `at` blocks, and of those after.
    fn split(self, at: usize) -> (Self, Self) {
        let Some(rest) = self.rest else {
            let lead = self.lead as usize;
            let slot = self.slot as usize;
            return (Self::new(slot, lead.min(at)), Self::new(slot, lead.saturating_sub(at)));
        };
        let (whole, bits) = (at / 64, at % 64);
        let word = |n: usize| rest.words.get(n).copied().unwrap_or(0);
        let mut front: Vec<u64> = (0..=whole).map(word).collect();
        front[whole] &= (1 << bits) - 1;
        let shifted = |n| if bits == 0 { word(n) } else { word(n) >> bits | word(n + 1) << (64 - bits) };
        let rear = (whole..rest.words.len().max(whole)).map(shifted).collect();
        (Self::of_words(self.slot, front), Self::of_words(self.slot, rear))
    }

    fn heap_bytes(&self) -> usize {
        self.rest.as_ref().map_or(0, |r| size_of::<Rest>() + r.words.len() * 8)
    }
}

impl Rest {
    fn leading(lead: usize) -> Box<Self> {
        let mut rest = Self::default();
        rest.fill(0, lead);
        Box::new(rest)
    }

    fn fill(&mut self, from: usize, to: usize) -> usize {
        if self.words.len() * 64 < to {
            self.words.reserve_exact(to.div_ceil(64) - self.words.len());
            self.words.resize(to.div_ceil(64), 0);
        }
        let (mut at, before) = (from, self.n_held);
        while at < to {
            let n = (64 - at % 64).min(to - at);
            let mask = (u64::MAX >> (64 - n)) << (at % 64);
            let word = &mut self.words[at / 64];
            self.n_held += (mask & !*word).count_ones();
            *word |= mask;
            at += n;
        }
        (self.n_held - before) as usize
    }

    /// The first block from `at` on that is held, or else that is not held; the end if there is none.
    fn until(&self, at: usize, held: bool) -> usize {
        let flip = if held { 0 } else { u64::MAX };
        for (n, word) in self.words.iter().enumerate().skip(at / 64) {
            let shift = if n == at / 64 { at % 64 } else { 0 };
            let word = (word ^ flip) & (u64::MAX << shift);
            if word != 0 {
                return n * 64 + word.trailing_zeros() as usize;
            }
        }
        self.words.len() * 64
    }
}

/// Blocks that follow each other without a fork.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Chained keys of the blocks; not empty.
    pub(crate) keys: Vec<u64>,
    /// Numbers of the blocks.
    pub(crate) ids: Vec<u32>,
    /// The run before, or [`crate::run::ROOT`].
    pub(crate) parent: u32,
    /// How many blocks come before.
    pub(crate) depth: u32,
    /// How many runs follow.
    pub(crate) n_children: u32,
    /// When it was last stored at any place.
    pub(crate) stamp: u64,
    /// Who holds some of it.
    pub(crate) set: SlotSet,
    /// Who of `set` does not hold all of it, by slot.
    pub(crate) parts: Vec<Part>,
    heap_of_parts: usize,
}

impl Run {
    /// Makes a run without blocks, which must get some.
    pub(crate) fn new(parent: u32, depth: u32) -> Self {
        Self { parent, depth, ..Self::default() }
    }

    /// What the place holds of it, if some but not all.
    pub(crate) fn part(&self, slot: usize) -> Option<&Part> {
        self.parts.binary_search_by_key(&(slot as u32), |p| p.slot).ok().map(|at| &self.parts[at])
    }

    /// How many blocks the place holds.
    pub(crate) fn held(&self, slot: usize) -> usize {
        match self.part(slot) {
            Some(part) => part.held(),
            None if self.set.contains(slot) => self.keys.len(),
            None => 0,
        }
    }

    /// Adds blocks at the end, which nobody holds yet.
    pub(crate) fn append(&mut self, keys: &[u64], ids: &[u32]) {
        let before = self.keys.len();
        if before > 0 {
            self.part_all(before);
        }
        if self.keys.capacity() < before + keys.len() {
            let more = keys.len().max(before / 8);
            self.keys.reserve_exact(more);
            self.ids.reserve_exact(more);
        }
        self.keys.extend_from_slice(keys);
        self.ids.extend_from_slice(ids);
    }

    /// Gives a part of `lead` blocks to everybody who has none.
    fn part_all(&mut self, lead: usize) {
        let slots = self.set.words().flat_map(|(index, word)| crate::set::slots_of(index, word));
        let mut old = std::mem::take(&mut self.parts).into_iter().peekable();
        let part = |slot| old.next_if(|p| p.slot as usize == slot).unwrap_or_else(|| Part::new(slot, lead));
        self.parts = slots.map(part).collect();
    }

    /// Makes the place hold the blocks from `from` to before `to`; gives how many it did not hold.
    pub(crate) fn hold(&mut self, slot: usize, from: usize, to: usize) -> usize {
        let len = self.keys.len();
        let at = match self.parts.binary_search_by_key(&(slot as u32), |p| p.slot) {
            Ok(at) => at,
            Err(_) if self.set.contains(slot) => return 0,
            Err(at) => {
                self.set.insert(slot);
                if from == 0 && to == len {
                    return len;
                }
                self.parts.insert(at, Part::new(slot, 0));
                at
            }
        };
        let part = &mut self.parts[at];
        let before = part.heap_bytes();
        let new = part.fill(from, to);
        let full = part.lead as usize == len;
        self.heap_of_parts = self.heap_of_parts + part.heap_bytes() - before;
        if full {
            self.unpart(at);
        }
        new
    }

    /// Makes the place hold one block no longer; gives whether it held it.
    pub(crate) fn drop_one(&mut self, slot: usize, block: usize) -> bool {
        if !self.set.contains(slot) {
            return false;
        }
        let found = self.parts.binary_search_by_key(&(slot as u32), |p| p.slot);
        let at = found.unwrap_or_else(|at| {
            self.parts.insert(at, Part::new(slot, self.keys.len()));
            at
        });
        let part = &mut self.parts[at];
        let before = part.heap_bytes();
        let left = part.drop_one(block);
        let empty = part.held() == 0;
        self.heap_of_parts = self.heap_of_parts + part.heap_bytes() - before;
        if empty {
            self.unpart(at);
            self.set.remove(slot);
        }
        left
    }

    /// Makes the place hold nothing of it; gives how much it held.
    pub(crate) fn drop_all(&mut self, slot: usize) -> usize {
        let held = self.held(slot);
        if held > 0 {
            if let Ok(at) = self.parts.binary_search_by_key(&(slot as u32), |p| p.slot) {
                self.unpart(at);
            }
            self.set.remove(slot);
        }
        held
    }

    fn unpart(&mut self, at: usize) {
        self.heap_of_parts -= self.parts.remove(at).heap_bytes();
        tighten(&mut self.parts);
    }

    /// Gives up the blocks after the first `len`, which nobody holds.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.keys.truncate(len);
        self.ids.truncate(len);
        tighten(&mut self.keys);
        tighten(&mut self.ids);
        let full = |p: &Part| p.lead as usize == len;
        if self.parts.iter().any(full) {
            self.parts.retain(|p| !full(p));
            tighten(&mut self.parts);
        }
    }

    /// Parts the run: the first `at` blocks become the run that is given back, the rest stays.
    pub(crate) fn split_head(&mut self, at: usize) -> Self {
        let (keys, ids) = (self.keys[at..].to_vec(), self.ids[at..].to_vec());
        let mut head = Self {
            keys: self.keys[..at].to_vec(),
            ids: self.ids[..at].to_vec(),
            n_children: 1,
            stamp: self.stamp,
            set: self.set.clone(),
            ..Self::new(self.parent, self.depth)
        };
        (self.keys, self.ids, self.heap_of_parts) = (keys, ids, 0);
        self.depth += at as u32;
        for part in std::mem::take(&mut self.parts) {
            let (front, rear) = part.split(at);
            head.keep(front);
            self.keep(rear);
        }
        head
    }

    /// Takes in what a place in `set` holds, in the order of slots.
    fn keep(&mut self, part: Part) {
        match part.held() {
            0 => self.set.remove(part.slot as usize),
            held if held == self.keys.len() => {}
            _ => {
                self.heap_of_parts += part.heap_bytes();
                self.parts.push(part);
            }
        }
    }

    /// Bytes that the run takes, all told, with its blocks.
    pub(crate) fn bytes(&self) -> usize {
        RUN + self.keys.len() * BLOCK + size_of_val(self.parts.as_slice()) + self.heap_of_parts + self.set.heap_bytes()
    }
}

/// A run and its place in the map of children, at the map's usual load.
pub(crate) const RUN: usize = size_of::<Run>() + 48;
/// Key, number, and what is known by number.
pub(crate) const BLOCK: usize = 20;

/// Gives back memory once more than a quarter of it is idle.
fn tighten<T>(things: &mut Vec<T>) {
    if things.capacity() > things.len() + things.len() / 4 + 4 {
        things.shrink_to(things.len() + things.len() / 16);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn held_of(run: &Run, slot: usize) -> BTreeSet<usize> {
        let len = run.keys.len();
        let Some(part) = run.part(slot) else {
            return if run.set.contains(slot) { (0..len).collect() } else { BTreeSet::new() };
        };
        let mut held = BTreeSet::new();
        let mut at = 0;
        while at < len {
            let (is, end) = part.stretch(at, len);
            assert!(end > at && end <= len, "a stretch goes on from {at} to {end} of {len}");
            if is {
                held.extend(at..end);
            }
            at = end;
        }
        held
    }

    #[test]
    fn holds_what_a_sorted_set_says() {
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..300 {
            let mut len = rng.usize(1..200);
            let mut run = Run::default();
            run.append(&(0..len as u64).collect::<Vec<_>>(), &vec![0; len]);
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for _ in 0..60 {
                let at = rng.usize(..2);
                let (slot, set) = ([3, 200][at], &mut sets[at]);
                let from = if rng.bool() { set.len().min(len - 1) } else { rng.usize(..len) };
                let to = rng.usize(from + 1..=len);
                match rng.u8(..10) {
                    0..5 => {
                        let new = (from..to).filter(|&b| set.insert(b)).count();
                        assert_eq!(run.hold(slot, from, to), new);
                    }
                    5 => {
                        let more = rng.usize(1..70);
                        run.append(&vec![9; more], &vec![0; more]);
                        len += more;
                    }
                    6 if rng.bool() => assert_eq!(run.drop_all(slot), std::mem::take(set).len()),
                    _ => assert_eq!(run.drop_one(slot, from), set.remove(&from)),
                }
                for (slot, set) in std::iter::zip([3, 200], &sets) {
                    assert_eq!((&held_of(&run, slot), run.held(slot)), (set, set.len()));
                    assert!(run.part(slot).is_none_or(|p| !set.contains(&(p.lead as usize))));
                }
            }
            if len > 1 {
                let at = rng.usize(1..len);
                let head = run.split_head(at);
                for (slot, set) in std::iter::zip([3, 200], &sets) {
                    assert_eq!(held_of(&head, slot), set.iter().copied().filter(|&b| b < at).collect());
                    assert_eq!(held_of(&run, slot), set.iter().filter(|b| **b >= at).map(|b| b - at).collect());
                }
                let heap = |run: &Run| run.parts.iter().map(Part::heap_bytes).sum::<usize>();
                assert_eq!((heap(&head), heap(&run)), (head.heap_of_parts, run.heap_of_parts));
            }
        }
    }
}
