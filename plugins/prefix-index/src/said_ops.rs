//! Operations that drive the index and the slow model of what engines say, and compare them.

use crate::keys::{chain_keys, chain_seed};
use crate::matches::Matches;
use crate::outcome::StoredBlocks;
use crate::said_model::SaidModel;
use crate::{Limits, Owner, PrefixIndex};

/// What an engine may say, and what else may happen. Prompts are a few letters; each place has its own way to hash.
#[derive(Clone, Debug)]
pub enum Say {
    /// A prompt from block `from` on, in events of `chunk` blocks, with `per` hashes for `of` blocks.
    Store {
        slot: u8,
        prompt: u16,
        from: u8,
        blocks: u8,
        chunk: u8,
        per: u8,
        of: u8,
    },
    /// Hashes that some place has said.
    Known {
        slot: u8,
        like: u8,
        prompt: u16,
        from: u8,
        blocks: u8,
        per: u8,
    },
    /// Hashes of a prompt, in whatever order.
    Remove {
        slot: u8,
        prompt: u16,
        from: u8,
        blocks: u8,
        per: u8,
        backwards: bool,
    },
    Clear {
        slot: u8,
        age: u8,
    },
    Forget {
        slot: u8,
        age: u8,
    },
    Replace {
        slot: u8,
    },
}

impl Say {
    /// Reads operations from arbitrary bytes.
    pub fn decode(bytes: &[u8]) -> Vec<Self> {
        let mut bytes = bytes.iter().copied();
        std::iter::from_fn(|| Self::decode_one(&mut bytes)).collect()
    }

    fn decode_one(bytes: &mut impl Iterator<Item = u8>) -> Option<Self> {
        let (kind, slot) = (bytes.next()?, bytes.next()?);
        let mut next = || bytes.next();
        Some(match kind % 16 {
            0 => Self::Clear { slot, age: kind >> 6 },
            1 => Self::Forget { slot, age: kind >> 6 },
            2 => Self::Replace { slot },
            3..5 => Self::Known {
                slot,
                like: next()?,
                prompt: u16::from(next()?),
                from: next()?,
                blocks: next()?,
                per: kind >> 4,
            },
            5..9 => Self::Remove {
                slot,
                prompt: u16::from(next()?),
                from: next()?,
                blocks: next()?,
                per: kind >> 5,
                backwards: kind & 16 != 0,
            },
            _ => Self::Store {
                slot,
                prompt: u16::from(next()?),
                from: next()?,
                blocks: next()?,
                chunk: next()?,
                per: kind >> 6,
                of: kind >> 4 & 3,
            },
        })
    }
}

/// Neighbours, and others in other words of a set; pairs of them are places of one endpoint.
const SLOTS: [u32; 8] = [0, 1, 2, 63, 64, 130, 200, 519];
/// Longer than what one step of a store takes.
const LONGEST: usize = 150;

/// Blocks of a prompt; those of like numbers begin alike.
fn keys_of(prompt: u16) -> Vec<u64> {
    let prompt = prompt % 64;
    let digit = |at: usize| match at {
        0..10 => prompt & 1,
        10..40 => prompt >> 1 & 3,
        40..110 => prompt >> 3 & 3,
        _ => prompt >> 5,
    };
    let tokens: Vec<u8> = (0..LONGEST).flat_map(|at| u32::from(digit(at) + 7).to_le_bytes()).collect();
    let mut keys = Vec::new();
    chain_keys(chain_seed("m", ""), &tokens, 1, usize::MAX, &mut keys);
    keys
}

/// The hash that ends with a block: places of an odd number hash each in their own way, the others alike.
fn hash(slot: u8, key: u64, nth: usize) -> u64 {
    let seed = if slot.is_multiple_of(2) { 0 } else { u64::from(slot % 8) };
    (key ^ seed).rotate_left(nth as u32 * 8) % 4093
}

/// Hashes for these blocks: `per` for each `of` of them.
fn hashes(slot: u8, keys: &[u64], per: u8, of: u8) -> Vec<u64> {
    let (per, of) = (usize::from(per % 4).max(1), usize::from(of % 4).max(1));
    keys.chunks(of).flat_map(|chunk| (0..per).map(move |nth| hash(slot, chunk[chunk.len() - 1], nth))).collect()
}

struct Both {
    index: PrefixIndex,
    model: SaidModel,
    serials: [u32; SLOTS.len()],
    /// Whether memory is scarce, so that the index may know less.
    scarce: bool,
}

impl Both {
    fn place(&self, slot: u8, age: u8) -> Owner {
        let at = usize::from(slot) % SLOTS.len();
        Owner { slot: SLOTS[at], serial: self.serials[at] - u32::from(age).min(3) }
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, index: T, model: T, what: &Say) {
        assert!(self.scarce || index == model, "{what:?}: the index says {index:?}, the model {model:?}");
    }

    fn step(&mut self, say: &Say) {
        match *say {
            Say::Store { slot, prompt, from, blocks, chunk, per, of } => {
                let keys = keys_of(prompt);
                let from = usize::from(from) % LONGEST;
                let to = (from + usize::from(blocks)).min(LONGEST);
                let (place, near) = (self.place(slot, 0), self.place(slot ^ 1, 0));
                let mut at = from;
                while at < to {
                    let end = (at + usize::from(chunk).max(1)).min(to);
                    let hashes = hashes(slot, &keys[at..end], per, of);
                    // The hash of the block before is what its event ended with.
                    let last = usize::from(per % 4).max(1) - 1;
                    let parent = at.checked_sub(1).map(|before| hash(slot, keys[before], last));
                    let stored = self.model.store_blocks(place, &[near], parent, &hashes, &keys[at..end]);
                    self.same(self.index.store_blocks(place, &[near], parent, &hashes, &keys[at..end]), stored, say);
                    if stored == StoredBlocks::Refused {
                        break;
                    }
                    at = end;
                }
            }
            Say::Known { slot, like, prompt, from, blocks, per } => {
                let hashes = self.hashes(like, prompt, from, blocks, per);
                let (place, near) = (self.place(slot, 0), self.place(slot ^ 1, 0));
                let known = self.model.store_known(place, &[near], &hashes);
                self.same(self.index.store_known(place, &[near], &hashes), known, say);
            }
            Say::Remove { slot, prompt, from, blocks, per, backwards } => {
                let mut hashes = self.hashes(slot, prompt, from, blocks, per);
                if backwards {
                    hashes.reverse();
                }
                let removed = self.model.remove_blocks(self.place(slot, 0), &hashes);
                self.same(self.index.remove_blocks(self.place(slot, 0), &hashes), removed, say);
            }
            Say::Clear { slot, age } => {
                self.index.clear(self.place(slot, age));
                self.model.clear(self.place(slot, age));
            }
            Say::Forget { slot, age } => {
                self.index.forget(self.place(slot, age));
                self.model.forget(self.place(slot, age));
            }
            Say::Replace { slot } => self.serials[usize::from(slot) % SLOTS.len()] += 1,
        }
    }

    fn hashes(&self, slot: u8, prompt: u16, from: u8, blocks: u8, per: u8) -> Vec<u64> {
        let keys = keys_of(prompt);
        let from = usize::from(from) % LONGEST;
        hashes(slot, &keys[from..(from + usize::from(blocks)).min(LONGEST)], per, 1)
    }

    fn compare(&self, say: &Say, prompts: &[u16], matches: &mut Matches) {
        self.index.check();
        self.same(self.index.blocks(), self.model.blocks(), say);
        let places: Vec<Owner> = (0..24).map(|n| self.place(n % 8, n / 8)).collect();
        for &place in &places {
            self.same(self.index.blocks_of(place), self.model.blocks_of(place), say);
        }
        for &prompt in prompts {
            let keys = keys_of(prompt);
            for keys in [&keys[..], &keys[..57]] {
                self.index.matches(keys, matches);
                for &place in &places {
                    self.same(matches.of(place), self.model.leading(place, keys), say);
                }
                let most = places.iter().map(|&p| matches.of(p)).max();
                self.same(Some(matches.longest()), most, say);
                for n in 0..4 {
                    let weights = [(places[n * 2], 1.0), (places[n * 2 + 1], 0.5), (places[n + 8], 4.0)];
                    self.same(self.index.combined(keys, &weights), self.model.combined(keys, &weights), say);
                }
            }
            for slot in 0..8 {
                let hash = hash(slot, keys[usize::from(prompt) * 7 % LONGEST], 0);
                let first = &places[usize::from(slot)..usize::from(slot) + 1];
                self.same(self.index.key_of(hash, first), self.model.key_of(hash, first), say);
            }
        }
    }
}

/// Does the operations to an index and to the model and panics where they differ; where memory is scarce, unless the
/// index is whole and within its limit.
pub fn run_said(says: &[Say], limits: Limits) {
    let (index, model) = (PrefixIndex::new(limits), SaidModel::new(limits));
    let scarce = limits.bytes < Limits::default().bytes;
    let mut both = Both { index, model, serials: [4; SLOTS.len()], scarce };
    let (mut prompts, mut matches) = (vec![0], Matches::default());
    for say in says {
        if let Say::Store { prompt, .. } = say
            && !prompts.contains(prompt)
        {
            prompts.push(*prompt);
            if prompts.len() > 4 {
                prompts.remove(0);
            }
        }
        both.step(say);
        both.compare(say, &prompts, &mut matches);
        assert!(both.index.bytes() <= limits.bytes, "{} bytes", both.index.bytes());
    }
    (0..8).for_each(|slot| both.index.forget(both.place(slot, 0)));
    both.index.check();
    assert_eq!((both.index.blocks(), both.index.bytes()), (0, 0), "nothing stays when all leave");
}
