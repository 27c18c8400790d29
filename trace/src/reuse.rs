//! How much of the prompts a cache that forgets nothing would have.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::ids::mix;
use crate::prompt::{BYTES_A_TOKEN, PromptRef, Rows};

/// Literal ids and text are compared in blocks of so many tokens.
const BLOCK_TOKENS: u32 = 16;

/// The beginnings of prompts that were there before.
///
/// A prompt is a path of runs, and the same ids always make the same runs. Known is, for a run that begins with an id and
/// has certain runs before it, how far it went at most: what is shorter was there, too. So a prompt costs a lookup a run,
/// whatever its length. Paths are told apart by 64 bits.
#[derive(Debug, Default)]
pub struct Seen {
    furthest: HashMap<u64, u32, FixedState>,
    n_blocks: u64,
    n_tokens: u64,
}

impl Seen {
    /// Takes a prompt, and returns how many tokens at its beginning are also at the beginning of an earlier one with the
    /// same `root`.
    pub fn add(&mut self, root: u64, prompt: PromptRef) -> u64 {
        let single = |block: u64| (block, 1);
        let (n_known, n_all, block_tokens) = match prompt {
            PromptRef::Unknown => return 0,
            PromptRef::Blocks { runs, block_tokens, .. } => {
                let (n_known, n_all) = self.walk(root, runs.iter().map(|run| (run.first, run.len)));
                self.n_blocks += n_all - n_known;
                (n_known, n_all, block_tokens)
            }
            PromptRef::Rows(Rows { seed, shared, own, tokens }) => {
                let shared = shared.min(tokens);
                let (n_known, n_all) = self.walk(root, [(seed, shared), (own, tokens - shared)].into_iter());
                (n_known, n_all, 1)
            }
            PromptRef::Ids(ids) => {
                let blocks = ids.chunks(BLOCK_TOKENS as usize).map(|ids| single(FixedState::default().hash_one(ids)));
                let (n_known, n_all) = self.walk(root, blocks);
                (n_known, n_all, BLOCK_TOKENS)
            }
            PromptRef::Text { prompt, .. } => {
                let blocks = prompt.chunks(BLOCK_TOKENS as usize * BYTES_A_TOKEN);
                let (n_known, n_all) = self.walk(root, blocks.map(|text| single(FixedState::default().hash_one(text))));
                (n_known, n_all, BLOCK_TOKENS)
            }
        };
        // The last block may be partial.
        let tokens = |n_blocks: u64| (n_blocks * u64::from(block_tokens)).min(prompt.tokens().unwrap_or(0).into());
        self.n_tokens += tokens(n_all) - tokens(n_known);
        tokens(n_known)
    }

    /// Tokens that are all different, or come after different ones.
    pub fn n_tokens(&self) -> u64 {
        self.n_tokens
    }

    /// The same in blocks, of prompts that are made of blocks.
    pub fn n_blocks(&self) -> u64 {
        self.n_blocks
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.furthest.clear();
        (self.n_blocks, self.n_tokens) = (0, 0);
    }

    /// Goes along runs, each the number it begins with and its length; returns how much is known, and the whole length.
    fn walk(&mut self, root: u64, runs: impl Iterator<Item = (u64, u32)>) -> (u64, u64) {
        let (mut path, mut n_known, mut n_all) = (root, 0, 0);
        for (first, len) in runs.filter(|(_, len)| *len > 0) {
            let here = mix(path.rotate_left(5) ^ mix(first));
            let furthest = self.furthest.entry(here).or_default();
            // Behind something new all is new.
            n_known += u64::from(len.min(*furthest));
            n_all += u64::from(len);
            *furthest = len.max(*furthest);
            path = mix(here.wrapping_add(len.into()));
        }
        (n_known, n_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::{Prompt, push_id};

    fn blocks(ids: &[u64], tokens: u32) -> Prompt {
        let mut runs = Vec::new();
        ids.iter().for_each(|id| push_id(&mut runs, *id));
        Prompt::Blocks { runs, block_tokens: 10, tokens }
    }

    fn known(root: u64, prompts: &[Prompt]) -> (Vec<u64>, u64) {
        let mut seen = Seen::default();
        (prompts.iter().map(|prompt| seen.add(root, prompt.view())).collect(), seen.n_tokens())
    }

    #[test]
    fn only_beginnings_count() {
        let prompts = [blocks(&[1, 2, 3], 30), blocks(&[1, 2, 4], 25), blocks(&[2, 3], 20), blocks(&[1, 2, 3, 3], 40)];
        assert_eq!(known(0, &prompts), (vec![0, 20, 0, 30], 30 + 5 + 20 + 10));
    }

    #[test]
    fn another_model_knows_nothing() {
        let mut seen = Seen::default();
        assert_eq!([1, 2, 1].map(|root| seen.add(root, blocks(&[1], 10).view())), [0, 0, 10]);
    }

    #[test]
    fn rows_are_known_as_far_as_they_were_said() {
        let rows = |own, tokens| Prompt::Rows(Rows { seed: 7, shared: 100, own, tokens });
        let prompts = [rows(1, 150), rows(2, 120), rows(1, 170), rows(3, 50), rows(1, 140)];
        assert_eq!(known(0, &prompts), (vec![0, 100, 150, 50, 140], 150 + 20 + 20));
    }

    #[test]
    fn ids_and_text_are_known_in_blocks() {
        let ids = |n: u32| Prompt::Ids((0..n).collect());
        assert_eq!(known(0, &[ids(40), ids(100)]).0, [0, 32]);
        let text = |text: &str| Prompt::Text { path: "/".into(), body: text.into(), prompt: 0..text.len() };
        assert_eq!(known(0, &[text(&"a".repeat(80)), text(&"a".repeat(100))]).0, [0, 16]);
    }
}
