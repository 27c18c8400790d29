//! An index that is slow and plainly right, and operations that drive both and compare them.

use std::collections::{BTreeMap, HashMap};

use crate::keys::{chain_keys, chain_seed};
use crate::matches::Matches;
use crate::{Limits, Owner, PrefixIndex};

/// A block of a prompt: how many come before it, and its key.
type Block = (usize, u64);

#[derive(Debug, Default)]
struct Slot {
    /// Whose the blocks are.
    serial: u32,
    newest: u32,
    gone: bool,
    /// When each was last stored.
    held: HashMap<Block, u64>,
}

/// The slow index.
#[derive(Debug, Default)]
pub struct Model {
    slots: BTreeMap<u32, Slot>,
    now: u64,
}

impl Model {
    /// As [`PrefixIndex::store`], without limits.
    pub fn store(&mut self, owner: Owner, keys: &[u64], capacity: usize) {
        let slot = self.slots.entry(owner.slot).or_default();
        let late = owner.serial < slot.newest || (owner.serial == slot.newest && slot.gone);
        if keys.is_empty() || owner.serial == 0 || late {
            return;
        }
        if slot.serial != owner.serial {
            slot.held.clear();
        }
        (slot.serial, slot.newest, slot.gone) = (owner.serial, owner.serial, false);
        self.now += 1;
        slot.held.extend(keys.iter().enumerate().map(|(at, &key)| ((at, key), self.now)));
        while slot.held.len() > capacity {
            let (&block, &stamp) = slot.held.iter().min_by_key(|&(b, stamp)| order(*stamp, b)).expect("not empty");
            if stamp == self.now {
                break;
            }
            slot.held.remove(&block);
        }
    }

    /// Evicts the blocks that were stored longest ago at any owner until no more than `blocks` are left.
    pub fn shrink(&mut self, blocks: usize) {
        for _ in blocks..self.blocks() {
            let all = self.slots.iter().flat_map(|(&slot, s)| s.held.iter().map(move |(&b, &stamp)| (slot, b, stamp)));
            let (slot, block, _) = all.min_by_key(|(_, b, stamp)| order(*stamp, b)).expect("there are blocks");
            self.slots.get_mut(&slot).expect("it was just found").held.remove(&block);
        }
    }

    /// As [`PrefixIndex::matches`] for one owner.
    pub fn matches(&self, owner: Owner, keys: &[u64]) -> usize {
        let held = |block: &Block| self.slot(owner).is_some_and(|s| s.held.contains_key(block));
        keys.iter().copied().enumerate().take_while(held).count()
    }

    /// As [`PrefixIndex::clear`].
    pub fn clear(&mut self, owner: Owner) {
        if self.slot(owner).is_some() {
            self.slots.entry(owner.slot).or_default().held.clear();
        }
    }

    /// As [`PrefixIndex::forget`].
    pub fn forget(&mut self, owner: Owner) {
        let slot = self.slots.entry(owner.slot).or_default();
        if slot.newest <= owner.serial {
            (slot.newest, slot.gone) = (owner.serial, true);
        }
        if slot.serial <= owner.serial {
            slot.held.clear();
        }
    }

    /// As [`PrefixIndex::blocks`].
    pub fn blocks(&self) -> usize {
        self.slots.values().map(|s| s.held.len()).sum()
    }

    /// As [`PrefixIndex::blocks_of`].
    pub fn blocks_of(&self, owner: Owner) -> usize {
        self.slot(owner).map_or(0, |s| s.held.len())
    }

    fn slot(&self, owner: Owner) -> Option<&Slot> {
        self.slots.get(&owner.slot).filter(|s| s.serial == owner.serial)
    }
}

/// The order in which blocks leave: oldest store first, of one store the last block first.
fn order(stamp: u64, block: &Block) -> (u64, std::cmp::Reverse<usize>) {
    (stamp, std::cmp::Reverse(block.0))
}

/// What may happen to an index. Prompts are pieces of equal tokens: (token, how many).
#[derive(Clone, Debug)]
pub enum Op {
    Store { slot: u8, age: u8, prompt: Vec<(u8, u8)>, capacity: u16 },
    Clear { slot: u8, age: u8 },
    Forget { slot: u8, age: u8 },
    Replace { slot: u8 },
}

impl Op {
    /// Reads operations from arbitrary bytes.
    pub fn decode(bytes: &[u8]) -> Vec<Self> {
        let mut bytes = bytes.iter().copied();
        std::iter::from_fn(|| Self::decode_one(&mut bytes)).collect()
    }

    fn decode_one(bytes: &mut impl Iterator<Item = u8>) -> Option<Self> {
        let kind = bytes.next()?;
        let (slot, age) = (bytes.next()?, kind >> 6);
        Some(match kind & 15 {
            0 => Self::Clear { slot, age },
            1 => Self::Forget { slot, age },
            2 => Self::Replace { slot },
            _ => {
                let capacity = u16::from(bytes.next()?);
                let pieces = usize::from(kind >> 4 & 3) + 1;
                let prompt = (0..pieces).map_while(|_| Some((bytes.next()?, bytes.next()?))).collect();
                Self::Store { slot, age: age.saturating_sub(2), prompt, capacity }
            }
        })
    }
}

/// The slots that [`run`] uses: neighbours, and others in other words of a set.
const SLOTS: [u32; 8] = [0, 1, 2, 63, 64, 130, 200, 519];

/// Does the operations to an index and to the model and panics where they differ.
pub fn run(ops: &[Op], limits: Limits) {
    let (index, mut model, mut matches) = (PrefixIndex::new(limits), Model::default(), Matches::default());
    let mut serials = [4u32; SLOTS.len()];
    let mut prompts: Vec<Vec<u64>> = Vec::new();
    for op in ops {
        let owner = |slot: &u8, age: &u8, serials: &[u32]| {
            let at = usize::from(*slot) % SLOTS.len();
            Owner { slot: SLOTS[at], serial: serials[at] - u32::from(*age).min(3) }
        };
        match op {
            Op::Store { slot, age, prompt, capacity } => {
                let keys = keys_of(prompt);
                index.store(owner(slot, age, &serials), &keys, usize::from(*capacity));
                model.store(owner(slot, age, &serials), &keys, usize::from(*capacity));
                if !prompts.contains(&keys) {
                    prompts.push(keys);
                }
            }
            Op::Clear { slot, age } => {
                index.clear(owner(slot, age, &serials));
                model.clear(owner(slot, age, &serials));
            }
            Op::Forget { slot, age } => {
                index.forget(owner(slot, age, &serials));
                model.forget(owner(slot, age, &serials));
            }
            Op::Replace { slot } => serials[usize::from(*slot) % SLOTS.len()] += 1,
        }
        model.shrink(index.blocks());
        index.check();
        compare(&index, &model, &serials, &prompts, &mut matches);
    }
}

fn compare(index: &PrefixIndex, model: &Model, serials: &[u32], prompts: &[Vec<u64>], matches: &mut Matches) {
    assert_eq!(index.blocks(), model.blocks(), "blocks in all");
    let owners: Vec<Owner> = std::iter::zip(SLOTS, serials)
        .flat_map(|(slot, &newest)| (0..3).map(move |age| Owner { slot, serial: newest - age }))
        .collect();
    for &owner in &owners {
        assert_eq!(index.blocks_of(owner), model.blocks_of(owner), "blocks of {owner:?}");
    }
    let mut counts = vec![0; owners.len()];
    for keys in prompts {
        index.matches(keys, matches);
        matches.fill(owners.iter().copied(), &mut counts);
        let expected: Vec<usize> = owners.iter().map(|&o| model.matches(o, keys)).collect();
        assert_eq!(counts.iter().map(|&c| c as usize).collect::<Vec<_>>(), expected, "matches of {owners:?}");
        assert_eq!(owners.iter().map(|&o| matches.of(o)).collect::<Vec<_>>(), expected);
    }
}

fn keys_of(prompt: &[(u8, u8)]) -> Vec<u64> {
    let tokens: Vec<u8> = prompt
        .iter()
        .flat_map(|&(t, n)| std::iter::repeat_n(t % 4, usize::from(n % 24)))
        .flat_map(|t| [t, 0, 0, 0])
        .collect();
    let mut keys = Vec::new();
    chain_keys(chain_seed("m", ""), &tokens, 1, usize::MAX, &mut keys);
    keys
}
