//! The consistency of the trie, for tests: what its parts say of each other is so.

use std::collections::HashMap;

use crate::lane::NONE;
use crate::run::{ROOT, Run};
use crate::set::slots_of;
use crate::trie::Trie;

/// Panics unless every invariant holds.
pub(crate) fn check(trie: &Trie) {
    let runs = reachable(trie);
    assert_eq!(runs.len(), trie.runs.len(), "every run hangs on the root or on a run that a store ends in");
    assert_eq!(runs.len(), trie.children.len(), "every run has one place among the children");
    assert_eq!(trie.bytes, runs.values().map(|r| r.bytes()).sum::<usize>(), "bytes");
    let mut held = vec![0; trie.lanes.len()];
    let mut n_children: HashMap<u32, u32> = HashMap::new();
    for (&id, run) in &runs {
        check_run(trie, id, run);
        *n_children.entry(run.parent).or_default() += 1;
        slots(run).for_each(|slot| held[slot] += run.held(slot));
    }
    for (&id, run) in &runs {
        assert_eq!(run.n_children, n_children.get(&id).copied().unwrap_or(0), "followers of run {id}");
    }
    assert_eq!(trie.blocks, held.iter().sum::<usize>(), "blocks");
    for (slot, lane) in trie.lanes.iter().enumerate() {
        assert_eq!((lane.blocks, lane.serial), (held[slot], trie.serials[slot]), "blocks and serial of slot {slot}");
        let stamps: Vec<u64> = lane.iter().map(|(_, e)| e.stamp).collect();
        assert!(stamps.is_sorted_by(|a, b| a < b), "stores of slot {slot} are in order: {stamps:?}");
        assert_eq!(trie.oldest[slot], stamps.first().copied().unwrap_or(u64::MAX), "oldest store of slot {slot}");
        for (at, entry) in lane.iter() {
            let hold = runs[&entry.run].hold(slot).expect("a store ends in a run that its owner holds");
            assert_eq!((hold.entry, hold.stamp), (at, entry.stamp), "store of slot {slot} in run {}", entry.run);
        }
    }
}

/// Every run on the way from some owner's store to the root.
fn reachable(trie: &Trie) -> HashMap<u32, &Run> {
    let mut runs = HashMap::new();
    for mut id in trie.lanes.iter().flat_map(|l| l.iter()).map(|(_, e)| e.run) {
        while id != ROOT && runs.insert(id, &trie.runs[id]).is_none() {
            id = trie.runs[id].parent;
        }
    }
    runs
}

fn slots(run: &Run) -> impl Iterator<Item = usize> + '_ {
    run.set.words().flat_map(|(index, word)| slots_of(index, word))
}

fn check_run(trie: &Trie, id: u32, run: &Run) {
    assert!(!run.keys.is_empty(), "run {id} has blocks");
    assert_eq!(trie.children.find(run.parent, run.keys[0]), Some(id), "run {id} is found");
    assert_eq!(slots(run).count(), run.n_holders(), "one hold a holder of run {id}");
    assert!(run.cuts.len() < run.n_holders(), "somebody holds all of run {id}");
    assert!(run.cuts.is_sorted_by(|a, b| a.0 < b.0), "cuts of run {id} are in order");
    for &(slot, blocks) in &run.cuts {
        assert!(run.set.contains(slot as usize), "who is cut in run {id} holds it");
        assert!((1..run.keys.len()).contains(&(blocks as usize)), "a cut of run {id} is within");
    }
    for slot in slots(run) {
        let hold = run.hold(slot).expect("who is in the set has a hold");
        if run.held(slot) < run.keys.len() {
            assert_eq!(trie.oldest[slot], hold.stamp, "only the oldest store of slot {slot} is cut");
            assert_ne!(hold.entry, NONE, "a store that is cut ends there");
        }
        if run.parent != ROOT {
            let parent = &trie.runs[run.parent];
            assert_eq!(parent.held(slot), parent.keys.len(), "slot {slot} holds all before run {id}");
            let above = parent.hold(slot).expect("who holds all has a hold");
            assert!(above.stamp >= hold.stamp, "what is before run {id} is no older");
        }
    }
}
