//! What a request asks, small enough to keep a million of them: runs of block ids, seeds, ids or text.

use std::ops::Range;

use crate::ids::{TokenIds, seed_of_number};

/// Blocks with ids from here on belong to one prompt alone.
pub const OWN: u64 = 1 << 63;
/// How many bytes of text are taken for one token where nobody has counted.
pub const BYTES_A_TOKEN: usize = 4;

/// Consecutive block ids. Prompts of the known traces have about three of these, whatever their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: u64,
    /// At least 1.
    pub len: u32,
}

/// What a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The trace does not say.
    Unknown,
    /// Blocks, all of `block_tokens` but for the last, which holds what is left of `tokens`. Equal ids are equal tokens.
    Blocks { runs: Vec<Run>, block_tokens: u32, tokens: u32 },
    /// The beginning of a row of ids, which others may begin with, too, and then a row of its own.
    Rows(Rows),
    /// Token ids as they are.
    Ids(Vec<u32>),
    /// The body of a request to an HTTP API.
    Text { path: String, body: Vec<u8>, prompt: Range<usize> },
}

/// Two rows of ids of [`TokenIds`], one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The seed of the first row, which gives `shared` tokens at most.
    pub seed: u64,
    pub shared: u32,
    /// The seed of the row that gives the rest.
    pub own: u64,
    /// All of them.
    pub tokens: u32,
}

/// A prompt that someone else keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptRef<'a> {
    Unknown,
    Blocks {
        runs: &'a [Run],
        block_tokens: u32,
        tokens: u32,
    },
    Rows(Rows),
    Ids(&'a [u32]),
    Text {
        path: &'a str,
        body: &'a [u8],
        /// The part of the body that the model reads.
        prompt: &'a [u8],
    },
}

impl Rows {
    /// A prompt that shares nothing with any other; the number is that of its record.
    pub fn alone(number: u32, tokens: u32) -> Self {
        let own = seed_of_number(OWN | u64::from(number));
        Self { seed: own, shared: 0, own, tokens }
    }
}

impl Prompt {
    /// The same, borrowed.
    pub fn view(&self) -> PromptRef<'_> {
        match self {
            Self::Unknown => PromptRef::Unknown,
            Self::Blocks { runs, block_tokens, tokens } => {
                PromptRef::Blocks { runs, block_tokens: *block_tokens, tokens: *tokens }
            }
            Self::Rows(rows) => PromptRef::Rows(*rows),
            Self::Ids(ids) => PromptRef::Ids(ids),
            Self::Text { path, body, prompt } => {
                PromptRef::Text { path, body, prompt: body.get(prompt.clone()).unwrap_or_default() }
            }
        }
    }
}

impl<'a> PromptRef<'a> {
    /// How many tokens it has, a quarter of its bytes if it is text; `None` if that is unknown.
    pub fn tokens(&self) -> Option<u32> {
        match self {
            Self::Unknown => None,
            Self::Blocks { tokens, .. } | Self::Rows(Rows { tokens, .. }) => Some(*tokens),
            Self::Ids(ids) => Some(ids.len().try_into().unwrap_or(u32::MAX)),
            Self::Text { prompt, .. } => Some(prompt.len().div_ceil(BYTES_A_TOKEN).try_into().unwrap_or(u32::MAX)),
        }
    }

    /// The blocks in order, each with its tokens; empty if the prompt is not made of blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32)> + use<'a> {
        let (runs, block_tokens, tokens) = match *self {
            Self::Blocks { runs, block_tokens, tokens } => (runs, block_tokens, tokens),
            Self::Unknown | Self::Rows(_) | Self::Ids(_) | Self::Text { .. } => (&[][..], 1, 0),
        };
        let ids = runs.iter().flat_map(|run| (0..u64::from(run.len)).map(|i| run.first.wrapping_add(i)));
        let mut left = tokens;
        ids.map_while(move |id| {
            let here = left.min(block_tokens);
            left -= here;
            (here > 0).then_some((id, here))
        })
    }

    /// Appends the token ids: the same ones for the same block, row and place, in any process. Returns false, and appends
    /// nothing, if it has none: it is text or unknown.
    pub fn token_ids(&self, into: &mut Vec<u32>) -> bool {
        match self {
            Self::Unknown | Self::Text { .. } => return false,
            Self::Blocks { .. } => {
                for (id, tokens) in self.blocks() {
                    into.extend(TokenIds::new(seed_of_number(id)).take(tokens as usize));
                }
            }
            Self::Rows(Rows { seed, shared, own, tokens }) => {
                let shared = *shared.min(tokens);
                into.extend(TokenIds::new(*seed).take(shared as usize));
                into.extend(TokenIds::new(*own).take((tokens - shared) as usize));
            }
            Self::Ids(ids) => into.extend_from_slice(ids),
        }
        true
    }
}

/// Adds an id to the end.
pub fn push_id(runs: &mut Vec<Run>, id: u64) {
    match runs.last_mut() {
        Some(run) if run.first.checked_add(run.len.into()) == Some(id) && run.len < u32::MAX => run.len += 1,
        _ => runs.push(Run { first: id, len: 1 }),
    }
}

/// Adds that many consecutive ids to the end.
pub fn push_run(runs: &mut Vec<Run>, first: u64, len: u32) {
    if len > 0 {
        runs.push(Run { first, len });
    }
}

/// How many blocks the runs have.
pub fn n_blocks(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.len)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(ids: &[u64], block_tokens: u32, tokens: u32) -> Prompt {
        let mut runs = Vec::new();
        ids.iter().for_each(|id| push_id(&mut runs, *id));
        Prompt::Blocks { runs, block_tokens, tokens }
    }

    fn ids(prompt: &Prompt) -> Vec<u32> {
        let mut ids = Vec::new();
        assert!(prompt.view().token_ids(&mut ids));
        ids
    }

    #[test]
    fn the_last_block_holds_what_is_left() {
        let prompt = blocks(&[7, 8, 9, 3], 16, 50);
        assert_eq!(prompt.view().blocks().collect::<Vec<_>>(), [(7, 16), (8, 16), (9, 16), (3, 2)]);
        assert_eq!(prompt, blocks(&[7, 8, 9, 3], 16, 50));
        let Prompt::Blocks { runs, .. } = prompt else { panic!("made of blocks") };
        assert_eq!(runs, [Run { first: 7, len: 3 }, Run { first: 3, len: 1 }]);
    }

    #[test]
    fn equal_beginnings_have_equal_token_ids() {
        let (a, b) = (ids(&blocks(&[1, 2, 3], 16, 48)), ids(&blocks(&[1, 2, 4], 16, 40)));
        assert_eq!((a.len(), b.len()), (48, 40));
        assert_eq!(a[..32], b[..32]);
        assert_ne!(a[32..40], b[32..40]);
    }

    #[test]
    fn rows_share_their_first_part_only() {
        let rows = |own, tokens| Prompt::Rows(Rows { seed: 5, shared: 10, own, tokens });
        let (a, b) = (ids(&rows(1, 20)), ids(&rows(2, 30)));
        assert_eq!((a.len(), b.len()), (20, 30));
        assert_eq!(a[..10], b[..10]);
        assert_ne!(a[10..], b[10..20]);
        assert_eq!(ids(&rows(1, 4)), a[..4]);
    }

    #[test]
    fn text_is_counted_by_its_bytes_and_has_no_ids() {
        let text =
            Prompt::Text { path: "/v1/completions".into(), body: b"{\"prompt\":\"hello\"}".into(), prompt: 11..16 };
        assert_eq!(text.view().tokens(), Some(2));
        assert!(!text.view().token_ids(&mut Vec::new()));
    }
}
