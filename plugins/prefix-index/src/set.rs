//! A set of owner slots as bit words, without heap memory while all slots share one word.

/// A set of slots. The first word that is not empty lives inline, those after it in `more`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotSet {
    /// Index of `first`: slot / 64. Says nothing when the set is empty.
    at: usize,
    /// Never 0 unless the set is empty.
    first: u64,
    /// Words after `first`; the last one is never 0.
    more: Vec<u64>,
}

impl SlotSet {
    /// The bits of slots from 64 · `index` on.
    pub(crate) fn word(&self, index: usize) -> u64 {
        match index.checked_sub(self.at) {
            None => 0,
            Some(0) => self.first,
            Some(n) => self.more.get(n - 1).copied().unwrap_or(0),
        }
    }

    /// Whether the slot is in the set.
    pub(crate) fn contains(&self, slot: usize) -> bool {
        self.word(slot / 64) >> (slot % 64) & 1 == 1
    }

    /// How many slots of the set lie below this one.
    pub(crate) fn rank(&self, slot: usize) -> usize {
        let below = |word: u64| (word & ((1 << (slot % 64)) - 1)).count_ones() as usize;
        match (slot / 64).checked_sub(self.at) {
            None => 0,
            Some(0) => below(self.first),
            Some(n) => {
                let whole = self.more.iter().take(n - 1).map(|w| w.count_ones() as usize).sum::<usize>();
                self.first.count_ones() as usize + whole + self.more.get(n - 1).map_or(0, |&w| below(w))
            }
        }
    }

    /// Puts the slot in.
    pub(crate) fn insert(&mut self, slot: usize) {
        let (index, bit) = (slot / 64, 1 << (slot % 64));
        if self.first == 0 {
            (self.at, self.first) = (index, bit);
        } else if index < self.at {
            let gap = self.at - index;
            self.more.splice(0..0, std::iter::repeat_n(0, gap));
            self.more[gap - 1] = self.first;
            (self.at, self.first) = (index, bit);
        } else if index == self.at {
            self.first |= bit;
        } else {
            let n = index - self.at;
            if self.more.len() < n {
                self.more.resize(n, 0);
            }
            self.more[n - 1] |= bit;
        }
    }

    /// Takes the slot out.
    pub(crate) fn remove(&mut self, slot: usize) {
        let (index, keep) = (slot / 64, !(1u64 << (slot % 64)));
        match index.checked_sub(self.at) {
            None => return,
            Some(0) => self.first &= keep,
            Some(n) => {
                if let Some(word) = self.more.get_mut(n - 1) {
                    *word &= keep;
                }
            }
        }
        while self.more.last() == Some(&0) {
            self.more.pop();
        }
        if self.first == 0
            && let Some(skip) = self.more.iter().position(|&w| w != 0)
        {
            self.at += skip + 1;
            self.first = self.more[skip];
            self.more.drain(..=skip);
        }
    }

    /// Walks the non-empty words as (index, bits).
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let all = std::iter::once(self.first).chain(self.more.iter().copied());
        all.enumerate().map(|(n, w)| (self.at + n, w)).filter(|&(_, w)| w != 0)
    }

    /// Walks the words of what is here and not in `other`.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (usize, u64)> + 'a {
        self.words().map(|(index, w)| (index, w & !other.word(index))).filter(|&(_, w)| w != 0)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.more.len() * size_of::<u64>()
    }
}

/// Walks the slots of one word of a set, lowest first.
pub(crate) fn slots_of(index: usize, mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            index * 64 + bit
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn slots(words: impl Iterator<Item = (usize, u64)>) -> Vec<usize> {
        words.flat_map(|(i, w)| slots_of(i, w)).collect()
    }

    #[test]
    fn agrees_with_a_sorted_set() {
        let mut rng = fastrand::Rng::with_seed(7);
        for most in [3, 64, 130, 1000] {
            let (mut set, mut sorted, mut other) = (SlotSet::default(), BTreeSet::new(), SlotSet::default());
            for _ in 0..400 {
                let slot = rng.usize(..most);
                if rng.bool() {
                    if !sorted.contains(&slot) {
                        set.insert(slot);
                        sorted.insert(slot);
                    }
                } else {
                    set.remove(slot);
                    sorted.remove(&slot);
                }
                if rng.u8(..) < 20 {
                    sorted.clear();
                    set = SlotSet::default();
                }
                if rng.bool() {
                    other.insert(rng.usize(..most));
                }
                let probe = rng.usize(..most + 100);
                assert_eq!(set.contains(probe), sorted.contains(&probe));
                assert_eq!(set.rank(probe), sorted.range(..probe).count());
                assert_eq!(slots(set.words()), sorted.iter().copied().collect::<Vec<_>>());
                let left: Vec<_> = sorted.iter().copied().filter(|&s| !other.contains(s)).collect();
                assert_eq!(slots(set.without(&other)), left);
                let mut fresh = SlotSet::default();
                sorted.iter().rev().for_each(|&s| fresh.insert(s));
                assert!(sorted.is_empty() || fresh == set, "one set has one form");
            }
        }
    }
}
