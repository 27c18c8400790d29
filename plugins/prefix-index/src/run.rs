//! One run of the trie: blocks that follow each other without a fork, and who holds them.

use crate::lane::NONE;
use crate::set::SlotSet;

/// No run: where the first blocks of prompts hang.
pub(crate) const ROOT: u32 = u32::MAX;

/// How one owner holds a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    /// When the run was last stored at this owner.
    pub(crate) stamp: u64,
    /// The owner's store that ends here; `NONE` if the last one through here went on.
    pub(crate) entry: u32,
}

/// Blocks that follow each other without a fork. Whoever holds a block of it holds all before that block.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Chained keys of the blocks; not empty.
    pub(crate) keys: Vec<u64>,
    /// The run before, or [`ROOT`].
    pub(crate) parent: u32,
    /// How many runs follow.
    pub(crate) n_children: u32,
    /// Who holds the first block or more.
    pub(crate) set: SlotSet,
    /// By rank in `set`.
    holds: Vec<Hold>,
    /// Who of `set` does not hold the whole run, and how many blocks: (slot, blocks), by slot. Never all of `set`.
    pub(crate) cuts: Vec<(u32, u32)>,
}

/// What [`Run::mark`] found.
pub(crate) struct Was {
    /// Blocks of the run that were held.
    pub(crate) held: usize,
    /// The store that ended here.
    pub(crate) entry: u32,
}

impl Run {
    /// Makes a run that nobody holds yet.
    pub(crate) fn new(keys: Vec<u64>, parent: u32) -> Self {
        Self { keys, parent, ..Self::default() }
    }

    /// How many owners hold some of it.
    pub(crate) fn n_holders(&self) -> usize {
        self.holds.len()
    }

    /// How the owner of the slot holds it.
    pub(crate) fn hold(&self, slot: usize) -> Option<Hold> {
        self.set.contains(slot).then(|| self.holds[self.set.rank(slot)])
    }

    /// Notes which store of the slot's owner ends here.
    pub(crate) fn set_entry(&mut self, slot: usize, entry: u32) {
        let rank = self.set.rank(slot);
        self.holds[rank].entry = entry;
    }

    /// How many of its blocks the owner of the slot holds.
    pub(crate) fn held(&self, slot: usize) -> usize {
        match self.cuts.binary_search_by_key(&(slot as u32), |c| c.0) {
            Ok(at) => self.cuts[at].1 as usize,
            Err(_) if self.set.contains(slot) => self.keys.len(),
            Err(_) => 0,
        }
    }

    /// Makes the owner of the slot hold the whole run as of `stamp`, with no store that ends here.
    pub(crate) fn mark(&mut self, slot: usize, stamp: u64) -> Was {
        let held = self.held(slot);
        let rank = self.set.rank(slot);
        if held == 0 {
            self.set.insert(slot);
            if self.holds.is_empty() {
                // Most runs never have another holder.
                self.holds.reserve_exact(1);
            }
            self.holds.insert(rank, Hold { stamp, entry: NONE });
            return Was { held, entry: NONE };
        }
        self.uncut(slot);
        let before = std::mem::replace(&mut self.holds[rank], Hold { stamp, entry: NONE });
        Was { held, entry: before.entry }
    }

    /// Leaves the owner of the slot with the first `blocks` blocks, of which there is at least one.
    pub(crate) fn cut(&mut self, slot: usize, blocks: usize) {
        if self.holds.len() == 1 {
            self.keys.truncate(blocks);
            tighten(&mut self.keys);
            return;
        }
        let cut = (slot as u32, blocks as u32);
        match self.cuts.binary_search_by_key(&cut.0, |c| c.0) {
            Ok(at) => self.cuts[at] = cut,
            Err(at) => self.cuts.insert(at, cut),
        }
        self.trim();
    }

    /// Takes the owner of the slot out, who is in.
    pub(crate) fn leave(&mut self, slot: usize) {
        self.uncut(slot);
        let rank = self.set.rank(slot);
        self.holds.remove(rank);
        self.set.remove(slot);
        tighten(&mut self.holds);
        self.trim();
    }

    fn uncut(&mut self, slot: usize) {
        if let Ok(at) = self.cuts.binary_search_by_key(&(slot as u32), |c| c.0) {
            self.cuts.remove(at);
            tighten(&mut self.cuts);
        }
    }

    /// Gives up the blocks at the end that nobody holds.
    fn trim(&mut self) {
        if self.cuts.len() < self.holds.len() || self.cuts.is_empty() {
            return;
        }
        let most = self.cuts.iter().map(|c| c.1).max().expect("there is a cut");
        self.keys.truncate(most as usize);
        tighten(&mut self.keys);
        self.cuts.retain(|c| c.1 < most);
        tighten(&mut self.cuts);
    }

    /// Parts the run: the first `at` blocks become the run that is given back, the rest stays. Whoever was cut within
    /// the first part leaves this one, and its store now ends in the first part; those slots are given back, too.
    pub(crate) fn split_head(&mut self, at: usize) -> (Run, Vec<usize>) {
        let mut head = Run::new(self.keys[..at].to_vec(), self.parent);
        self.keys = self.keys[at..].to_vec();
        head.n_children = 1;
        head.set = self.set.clone();
        head.holds = self.holds.iter().map(|h| Hold { entry: NONE, ..*h }).collect();
        let (short, long): (Vec<_>, Vec<_>) = self.cuts.iter().copied().partition(|c| c.1 as usize <= at);
        self.cuts = long.into_iter().map(|(slot, blocks)| (slot, blocks - at as u32)).collect();
        let moved: Vec<usize> = short.iter().map(|c| c.0 as usize).collect();
        for &slot in &moved {
            let rank = self.set.rank(slot);
            head.set_entry(slot, self.holds.remove(rank).entry);
            self.set.remove(slot);
        }
        tighten(&mut self.holds);
        head.cuts = short.into_iter().filter(|c| (c.1 as usize) < at).collect();
        (head, moved)
    }

    /// How many leading keys of a prompt are this run's; its first is known to be.
    pub(crate) fn common(&self, keys: &[u64]) -> usize {
        common(&self.keys, keys)
    }

    /// Bytes that the run takes, all told.
    pub(crate) fn bytes(&self) -> usize {
        RUN + size_of_val(self.keys.as_slice())
            + self.holds.len() * HOLD
            + size_of_val(self.cuts.as_slice())
            + self.set.heap_bytes()
    }
}

/// How many leading keys two chains share that share the first. Keys are chained: where two are equal, so are all before,
/// so the last one is compared first and the rest bisected.
pub(crate) fn common(ours: &[u64], keys: &[u64]) -> usize {
    let most = ours.len().min(keys.len());
    if ours[most - 1] == keys[most - 1] {
        return most;
    }
    let (mut same, mut differs) = (1, most - 1);
    while same < differs {
        let middle = same + (differs - same) / 2;
        if ours[middle] == keys[middle] {
            same = middle + 1;
        } else {
            differs = middle;
        }
    }
    same
}

/// A run and its place in the map of children, at the map's usual load.
pub(crate) const RUN: usize = size_of::<Run>() + 48;
/// A hold and the store that may end there.
const HOLD: usize = size_of::<Hold>() + size_of::<crate::lane::Entry>();

/// Gives back memory once more than half of it is idle.
fn tighten<T>(things: &mut Vec<T>) {
    if things.capacity() > 2 * things.len() + 4 {
        things.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_counts_leading_keys() {
        let run = Run::new((0..50).collect(), ROOT);
        for n in 1..=60 {
            for differs in 1..=n {
                let keys: Vec<u64> = (0..n).map(|k| if k < differs { k } else { 1000 + k }).collect();
                assert_eq!(run.common(&keys), differs.min(50) as usize, "{n} keys, {differs} common");
            }
        }
    }

    #[test]
    fn a_cut_of_all_shortens_the_run() {
        let mut run = Run::new((0..50).collect(), ROOT);
        run.mark(1, 1);
        run.mark(2, 2);
        run.cut(1, 20);
        assert_eq!((run.keys.len(), run.held(1), run.held(2)), (50, 20, 50));
        run.cut(2, 30);
        assert_eq!((run.keys.len(), run.held(1), run.held(2)), (30, 20, 30));
        run.leave(2);
        assert_eq!((run.keys.len(), run.held(1), run.cuts.len()), (20, 20, 0));
    }

    #[test]
    fn a_split_leaves_everybody_what_they_had() {
        for at in 1..50 {
            let mut run = Run::new((0..50).collect(), ROOT);
            run.mark(50, 50);
            for slot in 0..49 {
                run.mark(slot, slot as u64);
                run.set_entry(slot, slot as u32);
                run.cut(slot, slot + 1);
            }
            let (head, _) = run.split_head(at);
            assert_eq!((head.keys.len(), run.keys.len()), (at, 50 - at));
            for slot in (0..49).chain([50]) {
                assert_eq!(head.held(slot) + run.held(slot), (slot + 1).min(50), "slot {slot} split at {at}");
                let ends = [head.hold(slot), run.hold(slot)].into_iter().flatten().filter(|h| h.entry != NONE);
                assert_eq!(ends.count(), usize::from(slot < 49), "slot {slot} split at {at}");
            }
        }
    }
}
