//! The set of rows that are still in question: a bit a row.

use crate::EndpointIdx;

/// A set of rows of one snapshot. Filters clear bits, scorers and pickers walk what is left in row order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    words: Vec<u64>,
    rows: usize,
}

impl Candidates {
    /// Makes the set of all of `rows` rows.
    pub fn all(rows: usize) -> Self {
        let mut set = Self::default();
        set.fill(rows);
        set
    }

    /// Makes the empty set over `rows` rows.
    pub fn none(rows: usize) -> Self {
        let mut set = Self::default();
        set.empty(rows);
        set
    }

    /// Becomes the set of all of `rows` rows; keeps its memory.
    pub fn fill(&mut self, rows: usize) {
        self.rows = rows;
        self.words.clear();
        self.words.resize(rows.div_ceil(64), u64::MAX);
        if !rows.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last = (1 << (rows % 64)) - 1;
        }
    }

    /// Becomes the empty set over `rows` rows; keeps its memory.
    pub fn empty(&mut self, rows: usize) {
        self.rows = rows;
        self.words.clear();
        self.words.resize(rows.div_ceil(64), 0);
    }

    /// Becomes a copy of `other`; keeps its memory.
    pub fn copy_from(&mut self, other: &Self) {
        self.rows = other.rows;
        self.words.clear();
        self.words.extend_from_slice(&other.words);
    }

    /// How many rows the snapshot has, in the set or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows are in the set.
    pub fn count(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Whether no row is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&w| w == 0)
    }

    /// Whether the row is in the set.
    pub fn contains(&self, idx: EndpointIdx) -> bool {
        self.words.get(idx.row() / 64).is_some_and(|w| w >> (idx.row() % 64) & 1 == 1)
    }

    /// Puts the row in.
    ///
    /// # Panics
    /// If the snapshot has no such row.
    pub fn insert(&mut self, idx: EndpointIdx) {
        assert!(idx.row() < self.rows, "row {} of {}", idx.row(), self.rows);
        self.words[idx.row() / 64] |= 1 << (idx.row() % 64);
    }

    /// Takes the row out.
    pub fn remove(&mut self, idx: EndpointIdx) {
        if let Some(w) = self.words.get_mut(idx.row() / 64) {
            *w &= !(1 << (idx.row() % 64));
        }
    }

    /// Keeps the rows that `keep` says yes to; asks only about rows in the set, in row order.
    pub fn retain(&mut self, mut keep: impl FnMut(EndpointIdx) -> bool) {
        for (i, word) in self.words.iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                if !keep(EndpointIdx((i * 64) as u32 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Keeps the rows that are in `other`, too. Rows that `other` does not have are taken out.
    pub fn intersect(&mut self, other: &Self) {
        for (i, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(i).copied().unwrap_or(0);
        }
    }

    /// Walks the rows in the set, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = EndpointIdx> + '_ {
        let (mut at, mut left) = (0, self.words.first().copied().unwrap_or_default());
        std::iter::from_fn(move || {
            while left == 0 {
                at += 1;
                left = *self.words.get(at)?;
            }
            let bit = left.trailing_zeros();
            left &= left - 1;
            Some(EndpointIdx((at * 64) as u32 + bit))
        })
    }

    /// The lowest row in the set.
    pub fn first(&self) -> Option<EndpointIdx> {
        self.iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(set: &Candidates) -> Vec<u32> {
        set.iter().map(|i| i.0).collect()
    }

    #[test]
    fn all_holds_every_row_and_no_more() {
        for n in [0, 1, 63, 64, 65, 128, 200] {
            let set = Candidates::all(n);
            assert_eq!(set.count(), n);
            assert_eq!(rows(&set), (0..n as u32).collect::<Vec<_>>());
            assert_eq!(set.is_empty(), n == 0);
        }
    }

    #[test]
    fn retain_asks_only_about_rows_in_the_set() {
        let mut set = Candidates::all(130);
        set.retain(|i| i.0 % 3 == 0);
        let mut asked = Vec::new();
        set.retain(|i| {
            asked.push(i.0);
            i.0 % 2 == 0
        });
        assert_eq!(asked, (0..130).filter(|i| i % 3 == 0).collect::<Vec<_>>());
        assert_eq!(rows(&set), (0..130).filter(|i| i % 6 == 0).collect::<Vec<_>>());
    }

    #[test]
    fn insert_and_remove_touch_one_row() {
        let mut set = Candidates::none(70);
        set.insert(EndpointIdx(69));
        set.insert(EndpointIdx(3));
        assert_eq!(rows(&set), [3, 69]);
        set.remove(EndpointIdx(3));
        set.remove(EndpointIdx(1000));
        assert_eq!(rows(&set), [69]);
        assert!(!set.contains(EndpointIdx(1000)));
    }

    #[test]
    fn intersect_treats_missing_rows_as_out() {
        let mut set = Candidates::all(100);
        set.intersect(&Candidates::all(10));
        assert_eq!(set.count(), 10);
    }
}
