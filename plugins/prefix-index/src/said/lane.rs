//! What the index knows of one place: whose it is, how much it holds, and what its engine calls the blocks.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::table::Table;

/// What a hash stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The last block.
    pub(crate) block: u32,
    /// How many blocks, counted back from it.
    pub(crate) n_blocks: u32,
    /// How often it is stored.
    pub(crate) count: u32,
}

/// The state of one place. Hashes are mixed by [`super::Said::mix`].
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Whose blocks these are; 0: nobody's.
    pub(crate) serial: u32,
    /// The greatest serial ever seen here; what older ones say comes too late.
    pub(crate) newest: u32,
    /// Whether `newest` is gone for good.
    pub(crate) gone: bool,
    /// Blocks held.
    pub(crate) blocks: usize,
    pub(crate) table: Table,
    /// Of hashes that are stored more than once or stand for more than one block: (count, blocks).
    more: HashMap<u64, (u32, u32), RandomState>,
}

impl Lane {
    /// What the hash stands for here.
    pub(crate) fn get(&self, hash: u64) -> Option<Entry> {
        let block = self.table.get(hash)?;
        Some(self.entry(hash, block))
    }

    fn entry(&self, hash: u64, block: u32) -> Entry {
        let usual = (1, 1);
        let (count, n_blocks) =
            if self.more.is_empty() { usual } else { self.more.get(&hash).copied().unwrap_or(usual) };
        Entry { block, n_blocks, count }
    }

    /// Makes the hash stand for these blocks, once more if it stands for something; gives what it stood for.
    pub(crate) fn set(&mut self, hash: u64, block: u32, n_blocks: u32) -> Option<Entry> {
        let Some(old) = self.table.set(hash, block) else {
            if n_blocks > 1 {
                self.note(hash, Entry { block, n_blocks, count: 1 });
            }
            return None;
        };
        let old = self.entry(hash, old);
        self.note(hash, Entry { block, n_blocks, count: old.count.saturating_add(1) });
        Some(old)
    }

    fn note(&mut self, hash: u64, entry: Entry) {
        if entry.count > 1 || entry.n_blocks > 1 {
            self.more.insert(hash, (entry.count, entry.n_blocks));
        } else {
            self.lessen(hash);
        }
    }

    fn lessen(&mut self, hash: u64) {
        if !self.more.is_empty() && self.more.remove(&hash).is_some() && self.more.capacity() > 4 * self.more.len() + 16
        {
            self.more.shrink_to(2 * self.more.len());
        }
    }

    /// Forgets a hash and gives what it stood for.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<Entry> {
        let block = self.table.remove(hash)?;
        let entry = self.entry(hash, block);
        self.lessen(hash);
        Some(entry)
    }

    /// Lowers the count of a hash that is stored more than once; gives whether it is.
    pub(crate) fn lower(&mut self, hash: u64) -> bool {
        let entry = if self.more.is_empty() { None } else { self.get(hash) };
        match entry.filter(|entry| entry.count > 1) {
            Some(entry) => {
                self.note(hash, Entry { count: entry.count - 1, ..entry });
                true
            }
            None => false,
        }
    }

    /// Takes out any one of the hashes.
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let (hash, block) = self.table.pop()?;
        let entry = self.entry(hash, block);
        self.lessen(hash);
        Some(entry)
    }

    /// Bytes that the hashes take, at the usual load.
    pub(crate) fn bytes(&self) -> usize {
        self.table.len() * HASH + self.more.len() * MORE
    }

    /// How many hashes have more to say than which block they stand for.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn more(&self) -> impl Iterator<Item = u64> + '_ {
        self.more.keys().copied()
    }
}

/// Bytes of a hash and its block.
pub(crate) const HASH: usize = 14;
/// Bytes of what else there is to say of a hash.
const MORE: usize = 28;
