//! What the index knows of one owner slot: whose it is, how much it holds, and its stores from oldest to newest.

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// One store that still has blocks of its own: the run that the last of them is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// When; greater is later.
    pub(crate) stamp: u64,
    pub(crate) run: u32,
    older: u32,
    newer: u32,
}

/// The state of one slot.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Whose blocks these are; 0: nobody's.
    pub(crate) serial: u32,
    /// The greatest serial ever seen here; what older ones want to store comes too late.
    pub(crate) newest: u32,
    /// Whether `newest` is gone for good.
    pub(crate) gone: bool,
    /// Blocks held.
    pub(crate) blocks: usize,
    entries: Vec<Entry>,
    free: u32,
    oldest: u32,
    latest: u32,
}

impl Default for Lane {
    fn default() -> Self {
        let (serial, newest, gone, blocks) = (0, 0, false, 0);
        Self { serial, newest, gone, blocks, entries: Vec::new(), free: NONE, oldest: NONE, latest: NONE }
    }
}

impl Lane {
    /// The oldest store and its number.
    pub(crate) fn front(&self) -> Option<(u32, Entry)> {
        self.entries.get(self.oldest as usize).map(|e| (self.oldest, *e))
    }

    /// Notes a store, the newest one, and gives its number.
    pub(crate) fn push(&mut self, stamp: u64, run: u32) -> u32 {
        let entry = Entry { stamp, run, older: self.latest, newer: NONE };
        let at = match self.entries.get_mut(self.free as usize) {
            Some(slot) => {
                let at = self.free;
                self.free = slot.newer;
                *slot = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        match self.entries.get_mut(self.latest as usize) {
            Some(latest) => latest.newer = at,
            None => self.oldest = at,
        }
        self.latest = at;
        at
    }

    /// Says that the last block of a store is now in another run.
    pub(crate) fn relocate(&mut self, at: u32, run: u32) {
        self.entries[at as usize].run = run;
    }

    /// Forgets a store.
    pub(crate) fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match self.entries.get_mut(older as usize) {
            Some(e) => e.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(e) => e.older = older,
            None => self.latest = older,
        }
        if self.oldest == NONE {
            self.entries = Vec::new();
            self.free = NONE;
        } else {
            self.entries[at as usize].newer = self.free;
            self.free = at;
        }
    }

    /// Walks the stores, oldest first.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Entry)> + '_ {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            let entry = *self.entries.get(at as usize)?;
            Some((std::mem::replace(&mut at, entry.newer), entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lane: &Lane) -> Vec<u32> {
        lane.iter().map(|(_, e)| e.run).collect()
    }

    #[test]
    fn keeps_stores_in_order_whatever_leaves() {
        let mut lane = Lane::default();
        let at: Vec<u32> = (0..5).map(|n| lane.push(n.into(), n)).collect();
        lane.unlink(at[2]);
        assert_eq!(runs(&lane), [0, 1, 3, 4]);
        lane.unlink(at[0]);
        lane.unlink(at[4]);
        assert_eq!(runs(&lane), [1, 3]);
        lane.push(9, 9);
        lane.relocate(at[3], 7);
        assert_eq!(runs(&lane), [1, 7, 9]);
        assert_eq!(lane.front().map(|(_, e)| e.stamp), Some(1));
    }

    #[test]
    fn uses_the_place_of_a_store_that_left_again() {
        let mut lane = Lane::default();
        let keep = lane.push(0, 0);
        for n in 1..100 {
            let at = lane.push(n, 1);
            lane.unlink(at);
        }
        assert_eq!(lane.entries.len(), 2);
        lane.unlink(keep);
        assert!(lane.front().is_none());
        assert_eq!(lane.entries.capacity(), 0);
    }
}
