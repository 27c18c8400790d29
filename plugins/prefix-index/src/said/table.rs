//! The hashes of one place: a table of engine hash to block that takes 14 bytes an entry on average and never more than a
//! few microseconds to grow.
//!
//! Hashes are mixed first (one to one) and kept in order, with gaps. A leaf has its entries near where they would be if
//! the hashes were spread evenly; a search goes on from there to the first that is not smaller. A leaf that grows is
//! written out again in one pass, at four fifths full; one with too many entries becomes two.

/// Marks a gap.
const GAP: u32 = u32::MAX;
/// A leaf with more entries than this is parted.
const MOST: usize = 2048;
/// A leaf is not parted more often than this, so that hashes that are all alike in front do no harm.
const DEEPEST: u32 = 40;

/// The hashes that begin with the same bits.
#[derive(Debug, Default)]
struct Leaf {
    /// The least hash that belongs here.
    start: u64,
    /// How many bits in front are alike.
    depth: u32,
    n_entries: usize,
    /// Over how many places the entries are spread; a few more may follow.
    spread: usize,
    hashes: Vec<u64>,
    /// By place: the block, or [`GAP`].
    blocks: Vec<u32>,
}

impl Leaf {
    /// Writes entries, in order and `n` of them, with room for a quarter more.
    fn write(start: u64, depth: u32, n: usize, entries: impl Iterator<Item = (u64, u32)>) -> Self {
        let spread = n + n / 4 + 2;
        let (hashes, blocks) = (Vec::with_capacity(spread + 4), Vec::with_capacity(spread + 4));
        let mut leaf = Self { start, depth, n_entries: n, spread, hashes, blocks };
        leaf.stretch(spread);
        let mut next = 0;
        for (hash, block) in entries {
            let at = leaf.home(hash).max(next);
            leaf.stretch(at + 1);
            (leaf.hashes[at], leaf.blocks[at]) = (hash, block);
            next = at + 1;
        }
        leaf
    }

    fn stretch(&mut self, places: usize) {
        if places > self.hashes.len() {
            if places > self.hashes.capacity() {
                self.hashes.reserve_exact(places + 8 - self.hashes.len());
                self.blocks.reserve_exact(places + 8 - self.blocks.len());
            }
            self.hashes.resize(places, 0);
            self.blocks.resize(places, GAP);
        }
    }

    /// Where the hash would be if nothing were in its way.
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash << self.depth) * self.spread as u128) >> 64) as usize
    }

    fn taken(&self, at: usize) -> bool {
        self.blocks.get(at).is_some_and(|&b| b != GAP)
    }

    /// Where the hash is, or else where it belongs.
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let mut at = self.home(hash);
        while self.taken(at) && self.hashes[at] < hash {
            at += 1;
        }
        if self.taken(at) && self.hashes[at] == hash { Ok(at) } else { Err(at) }
    }

    fn insert(&mut self, at: usize, hash: u64, block: u32) {
        let mut gap = at;
        while self.taken(gap) {
            gap += 1;
        }
        self.stretch(gap + 1);
        self.hashes.copy_within(at..gap, at + 1);
        self.blocks.copy_within(at..gap, at + 1);
        (self.hashes[at], self.blocks[at]) = (hash, block);
        self.n_entries += 1;
    }

    fn remove(&mut self, at: usize) -> u32 {
        let block = self.blocks[at];
        let mut end = at + 1;
        while self.taken(end) && self.home(self.hashes[end]) < end {
            end += 1;
        }
        self.hashes.copy_within(at + 1..end, at);
        self.blocks.copy_within(at + 1..end, at);
        self.blocks[end - 1] = GAP;
        while self.blocks.len() > self.spread && self.blocks.last() == Some(&GAP) {
            self.blocks.pop();
            self.hashes.pop();
        }
        self.n_entries -= 1;
        block
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        std::iter::zip(&self.hashes, &self.blocks).filter(|(_, b)| **b != GAP).map(|(h, b)| (*h, *b))
    }

    fn rewrite(&mut self) {
        *self = Self::write(self.start, self.depth, self.n_entries, self.iter());
    }

    /// Parts the leaf by the next bit and gives the upper half.
    fn part(&mut self) -> Self {
        let depth = self.depth + 1;
        let middle = self.start | 1 << (64 - depth);
        let lower = self.iter().take_while(|e| e.0 < middle).count();
        let upper = Self::write(middle, depth, self.n_entries - lower, self.iter().skip(lower));
        *self = Self::write(self.start, depth, lower, self.iter().take(lower));
        upper
    }
}

/// Engine hash to block.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By `start`; none while there are no entries.
    leaves: Vec<Leaf>,
    n_entries: usize,
}

impl Table {
    /// How many hashes there are.
    pub(crate) fn len(&self) -> usize {
        self.n_entries
    }

    fn leaf(&self, hash: u64) -> usize {
        self.leaves.partition_point(|l| l.start <= hash) - 1
    }

    /// The block of a hash.
    pub(crate) fn get(&self, hash: u64) -> Option<u32> {
        if self.n_entries == 0 {
            return None;
        }
        let leaf = &self.leaves[self.leaf(hash)];
        leaf.find(hash).ok().map(|at| leaf.blocks[at])
    }

    /// Makes the hash stand for the block; gives what it stood for.
    pub(crate) fn set(&mut self, hash: u64, block: u32) -> Option<u32> {
        if self.leaves.is_empty() {
            self.leaves.push(Leaf::write(0, 0, 0, std::iter::empty()));
        }
        let n = self.leaf(hash);
        let leaf = &mut self.leaves[n];
        match leaf.find(hash) {
            Ok(at) => Some(std::mem::replace(&mut leaf.blocks[at], block)),
            Err(at) => {
                leaf.insert(at, hash, block);
                self.n_entries += 1;
                if leaf.n_entries > MOST && leaf.depth < DEEPEST {
                    let upper = leaf.part();
                    self.leaves.insert(n + 1, upper);
                } else if leaf.n_entries * 10 > leaf.spread * 9 {
                    leaf.rewrite();
                }
                None
            }
        }
    }

    /// Forgets a hash and gives the block that it stood for.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<u32> {
        if self.n_entries == 0 {
            return None;
        }
        let n = self.leaf(hash);
        let leaf = &mut self.leaves[n];
        let block = leaf.find(hash).ok().map(|at| leaf.remove(at))?;
        self.n_entries -= 1;
        if self.n_entries == 0 {
            self.leaves = Vec::new();
        } else if leaf.n_entries * 3 < leaf.spread * 2 && leaf.spread > 16 {
            leaf.rewrite();
        }
        Some(block)
    }

    /// Takes out one of the greatest hashes with its block.
    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        loop {
            let leaf = self.leaves.last_mut()?;
            while leaf.blocks.last() == Some(&GAP) {
                leaf.blocks.pop();
                leaf.hashes.pop();
            }
            if let (Some(hash), Some(block)) = (leaf.hashes.pop(), leaf.blocks.pop()) {
                leaf.n_entries -= 1;
                self.n_entries -= 1;
                if self.n_entries == 0 {
                    self.leaves = Vec::new();
                }
                return Some((hash, block));
            }
            self.leaves.pop();
        }
    }

    /// Some entries that lie next to each other, at most `most`, from a place that follows from `at`.
    pub(crate) fn sample(&self, at: u64, most: usize) -> impl Iterator<Item = (u64, u32)> + '_ {
        let from = self.leaves.partition_point(|l| l.start <= at).saturating_sub(1);
        let skip = self.leaves.get(from).map_or(0, |l| l.home(at));
        let order = (from..self.leaves.len()).chain(0..from).chain(from..(from + 1).min(self.leaves.len()));
        let all = order.enumerate().flat_map(move |(n, leaf)| {
            let (leaf, skip) = (&self.leaves[leaf], if n == 0 { skip } else { 0 });
            std::iter::zip(&leaf.hashes, &leaf.blocks).skip(skip).filter(|(_, b)| **b != GAP).map(|(h, b)| (*h, *b))
        });
        all.take(most)
    }

    /// Walks all entries, by hash.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.leaves.iter().flat_map(Leaf::iter)
    }

    /// Panics unless every entry is where it is looked for.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn check(&self) {
        assert_eq!(self.iter().count(), self.n_entries, "entries of a table");
        assert!(self.iter().map(|e| e.0).is_sorted_by(|a, b| a < b), "hashes are in order");
        assert!(self.iter().all(|(hash, block)| self.get(hash) == Some(block)), "every hash is found");
        assert!(self.leaves.iter().all(|l| l.iter().count() == l.n_entries), "entries of a leaf");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Does the same to a table and to a map of the standard library.
    fn agrees(hashes: impl Fn(&mut fastrand::Rng) -> u64, steps: usize, most: usize) {
        let (mut rng, mut table, mut map) = (fastrand::Rng::with_seed(5), Table::default(), HashMap::new());
        let mut known = Vec::new();
        for step in 0..steps {
            if map.len() < most && rng.u8(..) < 200 || known.is_empty() {
                let hash = hashes(&mut rng);
                table.set(hash, step as u32);
                map.insert(hash, step as u32);
                known.push(hash);
            } else {
                let hash = known.swap_remove(rng.usize(..known.len()));
                assert_eq!(table.remove(hash), map.remove(&hash));
            }
            let probe = if rng.bool() { hashes(&mut rng) } else { *known.first().unwrap_or(&0) };
            assert_eq!((table.get(probe), table.len()), (map.get(&probe).copied(), map.len()));
            if step % 997 == 0 {
                table.check();
            }
        }
        table.check();
        while let Some((hash, block)) = table.pop() {
            assert_eq!(map.remove(&hash), Some(block));
        }
        assert!(map.is_empty() && table.leaves.is_empty());
    }

    #[test]
    fn agrees_with_a_map() {
        agrees(|rng| rng.u64(..), 30_000, 9_000);
        agrees(|rng| rng.u64(..), 5_000, 20);
        agrees(|rng| rng.u64(..500), 5_000, 400);
        agrees(|rng| u64::MAX - rng.u64(..5000), 12_000, 4_000);
        agrees(|rng| rng.u64(..3) << 63 | rng.u64(..3), 500, 9);
    }

    #[test]
    fn takes_at_most_16_bytes_an_entry() {
        let (mut rng, mut table) = (fastrand::Rng::with_seed(6), Table::default());
        for n in 1..50_000usize {
            table.set(rng.u64(..), 1);
            let bytes: usize = table
                .leaves
                .iter()
                .map(|l| l.hashes.capacity() * 8 + l.blocks.capacity() * 4 + size_of::<Leaf>())
                .sum();
            assert!(n < 1000 || bytes <= 16 * n, "{bytes} bytes for {n} entries");
        }
    }

    #[test]
    fn a_sample_is_of_the_entries_and_as_large_as_can_be() {
        let mut table = Table::default();
        assert_eq!(table.sample(5, 8).count(), 0);
        (0..5000u64).for_each(|n| {
            table.set(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1);
        });
        for at in [0, 1 << 40, u64::MAX / 2, u64::MAX] {
            assert_eq!(table.sample(at, 8).filter(|e| table.get(e.0).is_some()).count(), 8, "from {at}");
        }
    }
}
