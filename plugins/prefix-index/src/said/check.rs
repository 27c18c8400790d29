//! The consistency of what engines say, for tests: what its parts say of each other is so.

use std::collections::HashMap;

use crate::run::ROOT;
use crate::said::Said;
use crate::said::run::Run;
use crate::set::slots_of;

impl Said {
    /// Panics unless every invariant holds.
    pub(crate) fn check(&self) {
        check(self);
    }
}

fn check(said: &Said) {
    let mut n_hashes: HashMap<u32, u64> = HashMap::new();
    let mut bytes = 0;
    for lane in &said.lanes {
        lane.table.check();
        bytes += lane.bytes();
        assert!(lane.more().all(|hash| lane.table.get(hash).is_some()), "more is said of known hashes only");
        for (hash, _) in lane.table.iter() {
            let entry = lane.get(hash).expect("it was just seen");
            said.back(entry).for_each(|block| *n_hashes.entry(block).or_default() += 1);
        }
    }
    let mut runs: HashMap<u32, &Run> = HashMap::new();
    for &block in n_hashes.keys() {
        let mut id = said.cells[block].run();
        while id != ROOT && runs.insert(id, &said.runs[id]).is_none() {
            id = said.runs[id].parent;
        }
    }
    assert_eq!(runs.len(), said.runs.len(), "every run leads to a block that some hash stands for");
    assert_eq!(runs.len(), said.children.len(), "every run has one place among the children");
    let mut held = vec![0; said.lanes.len()];
    let (mut n_blocks, mut n_children) = (0, HashMap::<u32, u32>::new());
    runs.values().for_each(|run| *n_children.entry(run.parent).or_default() += 1);
    for (&id, run) in &runs {
        check_run(said, id, run, &n_hashes);
        bytes += run.bytes();
        n_blocks += run.ids.len();
        assert_eq!(run.n_children, n_children.get(&id).copied().unwrap_or(0), "followers of run {id}");
        slots(run).for_each(|slot| held[slot] += run.held(slot));
    }
    assert_eq!(n_blocks, said.cells.len(), "every number is a block's");
    assert_eq!(bytes, said.bytes, "bytes");
    assert_eq!(said.blocks, held.iter().sum::<usize>(), "blocks");
    for (slot, lane) in said.lanes.iter().enumerate() {
        assert_eq!((lane.blocks, lane.serial), (held[slot], said.serials[slot]), "blocks and serial of slot {slot}");
    }
    check_order(said, &runs);
}

fn slots(run: &Run) -> impl Iterator<Item = usize> + '_ {
    run.set.words().flat_map(|(index, word)| slots_of(index, word))
}

fn check_run(said: &Said, id: u32, run: &Run, n_hashes: &HashMap<u32, u64>) {
    assert!(!run.keys.is_empty() && run.keys.len() == run.ids.len(), "run {id} has blocks, each with a number");
    assert_eq!(said.children.find(run.parent, run.keys[0]), Some(id), "run {id} is found");
    for (at, &block) in run.ids.iter().enumerate() {
        assert_eq!(said.place_of(block), (id, at), "block {block} is where its number says");
        let n = n_hashes.get(&block).copied().unwrap_or(0);
        assert_eq!(said.cells[block].n_hashes(), n, "hashes that stand for block {block}");
        let last = at + 1 == run.ids.len() && run.n_children == 0;
        assert!(n > 0 || !last, "block {block} is there for some hash or for what follows");
    }
    let before =
        if run.parent == ROOT { 0 } else { said.runs[run.parent].depth as usize + said.runs[run.parent].keys.len() };
    assert_eq!(run.depth as usize, before, "depth of run {id}");
    assert!(run.parts.is_sorted_by(|a, b| a.slot < b.slot), "parts of run {id} are in order");
    for part in &run.parts {
        assert!(run.set.contains(part.slot as usize), "who has a part of run {id} is among its holders");
        assert!((1..run.keys.len()).contains(&part.held()), "a part of run {id} is some and not all");
    }
}

fn check_order(said: &Said, runs: &HashMap<u32, &Run>) {
    let Some(most) = said.limits.holders else { return assert!(said.order.is_empty(), "no order is kept") };
    let listed: usize = said.order.values().map(Vec::len).sum();
    assert_eq!(listed, said.blocks, "every hold of a block is in its order");
    for (&block, slots) in &said.order {
        let (run, at) = said.place_of(block);
        assert!(slots.len() <= most.max(1), "no more than {most} hold block {block}");
        for &slot in slots {
            let part = runs[&run].part(slot as usize);
            let held = part.map_or(runs[&run].set.contains(slot as usize), |p| p.stretch(at, runs[&run].keys.len()).0);
            assert!(held, "slot {slot} holds block {block}");
        }
    }
}
