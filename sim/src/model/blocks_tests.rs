//! Tests the pool of blocks against a plain one, in which every block stands on its own.

use std::collections::HashMap;

use proptest::prelude::*;

use super::blocks::{BlockPool, Holding};
use super::cache::CacheChange;
use super::chain::mix;

/// A pool that looks at all of its blocks whatever it does.
#[derive(Default)]
struct Plain {
    capacity: usize,
    blocks: HashMap<u64, Block>,
    loose: usize,
    n_releases: usize,
    removed: Vec<u64>,
}

struct Block {
    before: Option<u64>,
    n_holders: usize,
    released: usize,
}

#[derive(Default)]
struct PlainHolding {
    path: Vec<u64>,
    loose: usize,
}

impl Plain {
    fn used(&self) -> usize {
        self.blocks.values().filter(|block| block.n_holders > 0).count() + self.loose
    }

    fn known(&self, names: &[u64]) -> usize {
        names.iter().take_while(|name| self.blocks.contains_key(name)).count()
    }

    fn hold_prefix(&mut self, names: &[u64]) -> PlainHolding {
        let path = names[..self.known(names)].to_vec();
        path.iter().for_each(|name| self.blocks.get_mut(name).unwrap().n_holders += 1);
        PlainHolding { path, loose: 0 }
    }

    fn grow(&mut self, holding: &mut PlainHolding, more: usize) -> bool {
        let fits = self.used() + more <= self.capacity;
        if fits {
            while self.blocks.len() + self.loose + more > self.capacity {
                self.evict();
            }
            self.loose += more;
            holding.loose += more;
        }
        fits
    }

    fn name_full(&mut self, holding: &mut PlainHolding, names: &[u64]) -> usize {
        let known = self.known(names);
        for name in &names[holding.path.len()..] {
            let before = holding.path.last().copied();
            let new = Block { before, n_holders: 0, released: 0 };
            self.blocks.entry(*name).or_insert(new).n_holders += 1;
            holding.path.push(*name);
            holding.loose -= 1;
            self.loose -= 1;
        }
        known
    }

    fn release(&mut self, holding: PlainHolding) {
        self.n_releases += 1;
        self.loose -= holding.loose;
        for name in holding.path {
            let block = self.blocks.get_mut(&name).unwrap();
            block.n_holders -= 1;
            block.released = self.n_releases;
        }
    }

    /// Of blocks that nobody holds and none comes after, the one that was released first goes.
    fn evict(&mut self) {
        let is_leaf = |name: &u64| self.blocks.values().all(|block| block.before != Some(*name));
        let idle = self.blocks.iter().filter(|(name, block)| block.n_holders == 0 && is_leaf(name));
        let (_, first) = idle.map(|(name, block)| (block.released, *name)).min().unwrap();
        self.blocks.remove(&first);
        self.removed.push(first);
    }
}

/// What is done to both pools. Sequences are counted from the newest.
#[derive(Clone, Debug)]
enum Call {
    /// A sequence begins that would have these blocks, and holds what is known of the first so many.
    Begin {
        blocks: Vec<u8>,
        most: usize,
    },
    Grow {
        sequence: usize,
        more: usize,
    },
    /// So many more blocks are full, if there are.
    Fill {
        sequence: usize,
        more: usize,
    },
    End {
        sequence: usize,
    },
    Clear,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let sequence = || 0..5_usize;
    let call = prop_oneof![
        4 => (prop::collection::vec(0..2_u8, 1..12), 0..12_usize).prop_map(|(blocks, most)| Call::Begin { blocks, most }),
        8 => (sequence(), 0..6_usize).prop_map(|(sequence, more)| Call::Grow { sequence, more }),
        8 => (sequence(), 0..6_usize).prop_map(|(sequence, more)| Call::Fill { sequence, more }),
        4 => sequence().prop_map(|sequence| Call::End { sequence }),
        1 => Just(Call::Clear),
    ];
    prop::collection::vec(call, 1..150)
}

struct Sequence {
    names: Vec<u64>,
    holding: Holding,
    plain: PlainHolding,
}

/// Both pools, and who holds blocks of them.
struct Both {
    pool: BlockPool,
    plain: Plain,
    sequences: Vec<Sequence>,
}

impl Both {
    fn new(capacity: usize) -> Self {
        let mut pool = BlockPool::new(capacity);
        pool.remember_changes();
        Self { pool, plain: Plain { capacity, ..Plain::default() }, sequences: Vec::new() }
    }

    fn call(&mut self, call: &Call) {
        let at = |sequence: usize, n: usize| (sequence < n).then(|| n - 1 - sequence);
        let n = self.sequences.len();
        match call {
            Call::Begin { blocks, most } => {
                let names = names(blocks);
                let most = &names[..names.len().min(*most)];
                let (holding, plain) = (self.pool.hold_prefix(most), self.plain.hold_prefix(most));
                self.sequences.push(Sequence { names, holding, plain });
            }
            Call::Grow { sequence, more } => {
                let Some(at) = at(*sequence, n) else { return };
                let Sequence { holding, plain, .. } = &mut self.sequences[at];
                assert_eq!(self.pool.grow(holding, *more), self.plain.grow(plain, *more));
            }
            Call::Fill { sequence, more } => {
                let Some(at) = at(*sequence, n) else { return };
                let Sequence { names, holding, plain } = &mut self.sequences[at];
                let n_full = (plain.path.len() + more).min(plain.path.len() + plain.loose).min(names.len());
                let full = &names[..n_full];
                assert_eq!(self.pool.name_full(holding, full), self.plain.name_full(plain, full));
            }
            Call::End { sequence } => {
                let Some(at) = at(*sequence, n) else { return };
                let Sequence { mut holding, plain, .. } = self.sequences.remove(at);
                self.pool.release(&mut holding);
                self.plain.release(plain);
                assert_eq!(holding.blocks(), 0);
            }
            Call::Clear => {
                let idle = self.plain.used() == 0;
                assert_eq!(self.pool.clear(), idle);
                if idle {
                    self.plain.blocks.clear();
                }
            }
        }
    }

    fn are_alike(&self, asked: &[Vec<u64>]) {
        let Self { pool, plain, sequences } = self;
        assert_eq!((pool.used(), pool.named()), (plain.used(), plain.blocks.len()));
        assert_eq!(pool.room(), plain.capacity - plain.blocks.len() - plain.loose);
        asked.iter().for_each(|names| assert_eq!(pool.known(names), plain.known(names)));
        for Sequence { holding, plain, .. } in sequences {
            assert_eq!(holding.blocks(), plain.path.len() + plain.loose);
        }
    }
}

/// The name of each block stands for it and all before it.
fn names(blocks: &[u8]) -> Vec<u64> {
    let mut name = 0;
    let next = |block: &u8| {
        name = mix(name, u64::from(*block) + 1);
        name
    };
    blocks.iter().map(next).collect()
}

proptest! {
    #[test]
    fn blocks_in_runs_are_like_blocks_on_their_own(calls in calls(), capacity in 1..40_usize) {
        let mut both = Both::new(capacity);
        let asked: Vec<_> = calls.iter().filter_map(|call| match call {
            Call::Begin { blocks, .. } => Some(names(blocks)),
            Call::Grow { .. } | Call::Fill { .. } | Call::End { .. } | Call::Clear => None,
        }).collect();
        for call in &calls {
            both.call(call);
            both.are_alike(&asked);
        }
        for Sequence { mut holding, plain, .. } in both.sequences.drain(..) {
            both.pool.release(&mut holding);
            both.plain.release(plain);
        }
        both.are_alike(&asked);
        // What was released last goes last: all that is left is pushed out.
        let (mut all, mut plain) = (Holding::default(), PlainHolding::default());
        prop_assert!(both.pool.grow(&mut all, capacity) && both.plain.grow(&mut plain, capacity));
        let removed: Vec<_> = both.pool.take_changes().into_iter().flat_map(|change| match change {
            CacheChange::Removed { blocks } => blocks,
            CacheChange::Stored { .. } | CacheChange::Cleared => Vec::new(),
        }).collect();
        prop_assert_eq!(removed, both.plain.removed);
    }
}
