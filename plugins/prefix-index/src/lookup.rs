//! The walk that a lookup takes through the trie.

use crate::matches::Matches;
use crate::run::{ROOT, Run};
use crate::trie::Trie;

impl Trie {
    /// Counts the leading blocks of a prompt at every owner. Writes each owner's count once, where its way ends: who
    /// holds a run holds all before it, so those who end at a run are its holders less those of the run that follows.
    pub(crate) fn lookup(&self, keys: &[u64], matches: &mut Matches) {
        matches.reset(&self.serials);
        let (mut at, mut start) = (ROOT, 0);
        let mut before: Option<&Run> = None;
        while let Some(&first) = keys.get(start) {
            let Some(id) = self.children.find(at, first) else { break };
            let run = &self.runs[id];
            if let Some(before) = before {
                end_at(before, before.set.without(&run.set), start - before.keys.len(), before.keys.len(), matches);
            }
            let n = run.common(&keys[start..]);
            if n < run.keys.len() || start + n == keys.len() {
                end_at(run, run.set.words(), start, n, matches);
                return;
            }
            (before, at, start) = (Some(run), id, start + n);
        }
        if let Some(run) = before {
            end_at(run, run.set.words(), start - run.keys.len(), run.keys.len(), matches);
        }
    }
}

/// Counts for those who hold the first `n` blocks of a run or, if cut before that, fewer, and none after.
fn end_at(run: &Run, who: impl Iterator<Item = (usize, u64)>, start: usize, n: usize, matches: &mut Matches) {
    who.for_each(|(index, word)| matches.put_word(index, word, start + n));
    for &(slot, blocks) in run.cuts.iter().filter(|c| (c.1 as usize) < n) {
        matches.lower(slot as usize, start + blocks as usize);
    }
}
