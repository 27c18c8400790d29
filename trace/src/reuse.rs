//! How much of the prompts a cache that forgets nothing would have.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::ids::mix;
use crate::prompt::{BYTES_A_TOKEN, PromptRef, Rows};

/// Literal ids and text are compared in blocks of so many tokens.
const BLOCK_TOKENS: usize = 16;

/// The beginnings of prompts that were there before. A block is known by all that stands before it in 64 bits.
#[derive(Debug, Default)]
pub struct Seen {
    blocks: HashSet<u64, FixedState>,
    /// How many tokens of a row.
    rows: HashMap<u64, u32, FixedState>,
    n_tokens: u64,
}

impl Seen {
    /// Takes a prompt, and returns how many tokens at its beginning are also at the beginning of an earlier one with the
    /// same `root`.
    pub fn add(&mut self, root: u64, prompt: PromptRef) -> u64 {
        match prompt {
            PromptRef::Unknown => 0,
            PromptRef::Blocks { .. } => self.add_blocks(root, prompt.blocks()),
            PromptRef::Rows(rows) => self.add_rows(root, rows),
            PromptRef::Ids(ids) => self.add_blocks(
                root,
                ids.chunks(BLOCK_TOKENS).map(|ids| (FixedState::default().hash_one(ids), ids.len() as u32)),
            ),
            PromptRef::Text { prompt, .. } => self.add_blocks(
                root,
                prompt
                    .chunks(BLOCK_TOKENS * BYTES_A_TOKEN)
                    .map(|text| (FixedState::default().hash_one(text), text.len().div_ceil(BYTES_A_TOKEN) as u32)),
            ),
        }
    }

    /// Tokens that are all different, or come after different ones.
    pub fn n_tokens(&self) -> u64 {
        self.n_tokens
    }

    /// The same in blocks; rows of ids have none.
    pub fn n_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.rows.clear();
        self.n_tokens = 0;
    }

    fn add_blocks(&mut self, root: u64, blocks: impl Iterator<Item = (u64, u32)>) -> u64 {
        let (mut chain, mut known) = (root, 0);
        for (id, tokens) in blocks {
            chain = mix(chain.rotate_left(5) ^ mix(id));
            // Whatever stands before a known block is known, too.
            if self.blocks.insert(chain) {
                self.n_tokens += u64::from(tokens);
            } else {
                known += u64::from(tokens);
            }
        }
        known
    }

    fn add_rows(&mut self, root: u64, Rows { seed, shared, own, tokens }: Rows) -> u64 {
        let shared = shared.min(tokens);
        let mut known = self.add_row(mix(root ^ mix(seed)), 0, shared);
        if tokens > shared {
            known += self.add_row(mix(root ^ mix(own).rotate_left(32)), shared, tokens);
        }
        known.into()
    }

    /// Tokens from one place of a row to another; those before it are not the row's.
    fn add_row(&mut self, row: u64, from: u32, to: u32) -> u32 {
        let there = self.rows.entry(row).or_insert(from);
        let known = (*there).clamp(from, to);
        self.n_tokens += u64::from(to - known);
        *there = (*there).max(to);
        known - from
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
