//! Keeps the named blocks of an engine as runs: blocks of one sequence that came together and are held together.
//!
//! Most blocks are the end of one prompt and its answer, so there are far fewer runs than blocks, and a block costs little
//! more than its name. Runs make a forest: a run goes on where its parent ends, never in the midst of it. The name of a
//! block stands for all blocks before it, so a run is found by the name of its first block, wherever it is.

use std::collections::HashMap;
use std::num::NonZeroU32;

use foldhash::fast::FixedState;

/// A place in the list of runs, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunId(NonZeroU32);

#[derive(Debug)]
struct Run {
    /// Their names; at least one.
    blocks: Vec<u64>,
    parent: Option<RunId>,
    n_children: u32,
    /// Who holds a run holds its parent as well.
    n_holders: u32,
    /// Its neighbours among the idle ones.
    older: Option<RunId>,
    newer: Option<RunId>,
}

/// All runs. Those that nobody holds are idle and stand in the order in which they were given back, children before
/// their parents.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: Vec<Run>,
    unused: Vec<RunId>,
    by_first: HashMap<u64, RunId, FixedState>,
    oldest: Option<RunId>,
    newest: Option<RunId>,
}

impl Runs {
    /// Finds the run that begins with the first of these blocks, and how many blocks at its beginning are the same.
    pub(super) fn find(&self, blocks: &[u64]) -> Option<(RunId, usize)> {
        let id = *self.by_first.get(blocks.first()?)?;
        let pairs = self.run(id).blocks.iter().zip(blocks);
        Some((id, pairs.take_while(|(known, asked)| known == asked).count()))
    }

    /// The run that ends where this one begins.
    pub(super) fn parent(&self, id: RunId) -> Option<RunId> {
        self.run(id).parent
    }

    /// Makes the first `at` blocks of a run one of their own, which is returned, and the parent of what is left. Who holds
    /// the run holds both.
    pub(super) fn cut(&mut self, id: RunId, at: usize) -> RunId {
        let run = self.run_mut(id);
        if at == run.blocks.len() {
            return id;
        }
        let rest = run.blocks.split_off(at);
        let (first, first_of_rest) = (run.blocks[0], rest[0]);
        let mut blocks = std::mem::replace(&mut run.blocks, rest);
        blocks.shrink_to_fit();
        let above =
            Run { blocks, parent: run.parent, n_children: 1, n_holders: run.n_holders, older: None, newer: None };
        let idle = above.n_holders == 0;
        let above = self.put(above);
        self.run_mut(id).parent = Some(above);
        self.by_first.insert(first, above);
        self.by_first.insert(first_of_rest, id);
        if idle {
            self.link(above, Some(id));
        }
        above
    }

    /// Adds blocks, of which none is known, behind a run that is held, or as the first ones of a sequence. Who holds that
    /// run, at least one, holds them, and nobody else. Returns the run that they are the end of.
    pub(super) fn add(&mut self, behind: Option<RunId>, blocks: &[u64]) -> RunId {
        if let Some(id) = behind {
            let run = self.run_mut(id);
            // Nobody else ends here, so that the run can be longer.
            if run.n_holders == 1 && run.n_children == 0 {
                run.blocks.extend_from_slice(blocks);
                return id;
            }
            run.n_children += 1;
        }
        let run =
            Run { blocks: blocks.to_vec(), parent: behind, n_children: 0, n_holders: 1, older: None, newer: None };
        let id = self.put(run);
        self.by_first.insert(blocks[0], id);
        id
    }

    /// Somebody holds a run. Returns how many blocks nobody held before.
    pub(super) fn hold(&mut self, id: RunId) -> usize {
        let run = self.run_mut(id);
        run.n_holders += 1;
        if run.n_holders > 1 {
            return 0;
        }
        let n_blocks = run.blocks.len();
        self.unlink(id);
        n_blocks
    }

    /// Somebody gives a run back, who gives back its parents after it. Returns how many blocks nobody holds any more.
    pub(super) fn let_go(&mut self, id: RunId) -> usize {
        let run = self.run_mut(id);
        run.n_holders -= 1;
        if run.n_holders > 0 {
            return 0;
        }
        run.blocks.shrink_to_fit();
        let n_blocks = run.blocks.len();
        self.link(id, self.newest);
        n_blocks
    }

    /// Forgets the last block of the idle run that stands first, and returns it. No run follows that one: it would stand
    /// before it.
    pub(super) fn pop_oldest(&mut self) -> Option<u64> {
        let id = self.oldest?;
        let run = self.run_mut(id);
        debug_assert_eq!(run.n_children, 0, "who holds a run holds its parents");
        let block = run.blocks.pop()?;
        if run.blocks.is_empty() {
            run.blocks = Vec::new();
            let parent = run.parent;
            if let Some(parent) = parent {
                self.run_mut(parent).n_children -= 1;
            }
            self.unlink(id);
            self.by_first.remove(&block);
            self.unused.push(id);
        }
        Some(block)
    }

    /// Puts an idle run behind another one, or first.
    fn link(&mut self, id: RunId, behind: Option<RunId>) {
        let newer = behind.map_or(self.oldest, |behind| self.run(behind).newer);
        let run = self.run_mut(id);
        (run.older, run.newer) = (behind, newer);
        self.join(behind, Some(id));
        self.join(Some(id), newer);
    }

    fn unlink(&mut self, id: RunId) {
        let run = self.run_mut(id);
        let (older, newer) = (run.older.take(), run.newer.take());
        self.join(older, newer);
    }

    /// Makes two runs neighbours; none stands for the end of the list.
    fn join(&mut self, older: Option<RunId>, newer: Option<RunId>) {
        *older.map_or(&mut self.oldest, |id| &mut self.runs[place(id)].newer) = newer;
        *newer.map_or(&mut self.newest, |id| &mut self.runs[place(id)].older) = older;
    }

    fn put(&mut self, run: Run) -> RunId {
        if let Some(id) = self.unused.pop() {
            *self.run_mut(id) = run;
            return id;
        }
        self.runs.push(run);
        let number = u32::try_from(self.runs.len()).ok().and_then(NonZeroU32::new);
        RunId(number.expect("settings allow fewer than 2^32 blocks"))
    }

    fn run(&self, id: RunId) -> &Run {
        &self.runs[place(id)]
    }

    fn run_mut(&mut self, id: RunId) -> &mut Run {
        &mut self.runs[place(id)]
    }
}

fn place(id: RunId) -> usize {
    id.0.get() as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n_runs(runs: &Runs) -> usize {
        assert_eq!(runs.by_first.len(), runs.runs.len() - runs.unused.len());
        runs.by_first.len()
    }

    fn rest(runs: &mut Runs) -> Vec<u64> {
        std::iter::from_fn(|| runs.pop_oldest()).collect()
    }

    #[test]
    fn a_prompt_and_its_answer_are_one_run() {
        let mut runs = Runs::default();
        let prompt = runs.add(None, &[1, 2, 3]);
        assert_eq!(runs.add(Some(prompt), &[4]), prompt);
        assert_eq!(runs.add(Some(prompt), &[5]), prompt);
        assert_eq!((n_runs(&runs), runs.run(prompt).blocks.len()), (1, 5));
        assert_eq!(runs.find(&[1, 2, 3, 4, 6]), Some((prompt, 4)));
        assert_eq!(runs.find(&[2]), None);
    }

    #[test]
    fn answers_to_one_prompt_are_runs_of_their_own() {
        let mut runs = Runs::default();
        let prompt = runs.add(None, &[1, 2]);
        assert_eq!(runs.hold(prompt), 0);
        let answers = [3, 4].map(|block| runs.add(Some(prompt), &[block]));
        assert_eq!(n_runs(&runs), 3);
        assert_eq!(answers.map(|answer| runs.parent(answer)), [Some(prompt); 2]);
        let n_idle: Vec<_> = [answers[1], prompt, answers[0], prompt].map(|run| runs.let_go(run)).into();
        assert_eq!(n_idle, [1, 0, 1, 2]);
        assert_eq!(rest(&mut runs), [4, 3, 2, 1]);
    }

    #[test]
    fn what_goes_on_elsewhere_is_not_made_longer() {
        let mut runs = Runs::default();
        let prompt = runs.add(None, &[1, 2, 3]);
        runs.let_go(prompt);
        let head = runs.cut(prompt, 2);
        runs.hold(head);
        let other = runs.add(Some(head), &[4]);
        assert_eq!((runs.find(&[3]), runs.find(&[4])), (Some((prompt, 1)), Some((other, 1))));
        assert_eq!((runs.find(&[1, 2, 3]), n_runs(&runs)), (Some((head, 2)), 3));
    }

    #[test]
    fn who_holds_a_run_holds_both_parts_of_it() {
        let mut runs = Runs::default();
        let tail = runs.add(None, &[1, 2, 3]);
        let head = runs.cut(tail, 1);
        assert_eq!((runs.parent(tail), runs.parent(head)), (Some(head), None));
        assert_eq!((runs.let_go(tail), runs.let_go(head)), (2, 1));
    }

    #[test]
    fn an_idle_run_that_is_cut_stays_where_it_stood() {
        let mut runs = Runs::default();
        for first in [10, 20, 30] {
            let run = runs.add(None, &[first, first + 1, first + 2]);
            runs.let_go(run);
        }
        let (run, _) = runs.find(&[20]).unwrap();
        runs.cut(run, 1);
        assert_eq!(rest(&mut runs), [12, 11, 10, 22, 21, 20, 32, 31, 30]);
        assert_eq!(n_runs(&runs), 0);
    }

    #[test]
    fn the_place_of_a_forgotten_run_is_used_again() {
        let mut runs = Runs::default();
        for block in 1..100 {
            let run = runs.add(None, &[block]);
            runs.let_go(run);
            assert_eq!(runs.pop_oldest(), Some(block));
        }
        assert_eq!(runs.runs.len(), 1);
    }
}
