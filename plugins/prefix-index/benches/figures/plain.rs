//! The design to compare with: a map from block to the set of engines that hold it, one probe a block.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::RwLock;

pub(crate) struct Plain {
    blocks: RwLock<HashMap<u64, Box<[u64]>, RandomState>>,
    words: usize,
}

impl Plain {
    pub(crate) fn new(engines: u32) -> Self {
        Self { blocks: RwLock::default(), words: engines.div_ceil(64) as usize }
    }

    pub(crate) fn store(&self, slot: u32, keys: &[u64]) {
        let mut blocks = self.blocks.write();
        for &key in keys {
            let set = blocks.entry(key).or_insert_with(|| vec![0; self.words].into());
            set[slot as usize / 64] |= 1 << (slot % 64);
        }
    }

    pub(crate) fn remove(&self, slot: u32, keys: &[u64]) -> usize {
        let mut blocks = self.blocks.write();
        for &key in keys {
            if let Some(set) = blocks.get_mut(&key) {
                set[slot as usize / 64] &= !(1 << (slot % 64));
                if set.iter().all(|w| *w == 0) {
                    blocks.remove(&key);
                }
            }
        }
        keys.len()
    }

    pub(crate) fn matches(&self, keys: &[u64], counts: &mut Vec<u32>) {
        counts.clear();
        counts.resize(self.words * 64, 0);
        let mut alive = vec![u64::MAX; self.words];
        let blocks = self.blocks.read();
        let mut end = 0;
        for key in keys {
            let Some(set) = blocks.get(key) else { break };
            for (index, (alive, held)) in std::iter::zip(&mut alive, set).enumerate() {
                put(counts, index, *alive & !held, end);
                *alive &= held;
            }
            if alive.iter().all(|w| *w == 0) {
                return;
            }
            end += 1;
        }
        alive.iter().enumerate().for_each(|(index, &word)| put(counts, index, word, end));
    }
}

fn put(counts: &mut [u32], index: usize, mut word: u64, blocks: u32) {
    while word != 0 {
        counts[index * 64 + word.trailing_zeros() as usize] = blocks;
        word &= word - 1;
    }
}
