//! What an engine is asked for, and what it says happened.

use std::sync::Arc;
use std::time::Duration;

use super::chain::{Chain, mix};

/// Identifies a request for the life of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

/// A prompt, as tokens or as recorded traffic names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Token ids, shared by the requests that have the same prompt.
    Tokens(Arc<[u32]>),
    /// Names of pieces of `per_id` tokens each, the last one cut off where `tokens` ends. Equal names in equal places
    /// stand for equal tokens. Tokens beyond the last name are like those of no other prompt with other names.
    Named { ids: Vec<u64>, per_id: usize, tokens: usize },
}

impl Prompt {
    /// How many tokens the prompt has.
    pub fn tokens(&self) -> usize {
        match self {
            Self::Tokens(ids) => ids.len(),
            Self::Named { tokens, .. } => *tokens,
        }
    }

    /// The tokens one by one. Those that only have names get ids that follow from them.
    pub(super) fn ids(&self) -> Vec<u32> {
        match self {
            Self::Tokens(ids) => ids.to_vec(),
            Self::Named { tokens, .. } => (0..*tokens).map(|at| self.named_token(at) as u32).collect(),
        }
    }

    fn named_token(&self, at: usize) -> u64 {
        let Self::Named { ids, per_id, .. } = self else { return 0 };
        let id = ids.get(at / (*per_id).max(1)).or(ids.last()).copied().unwrap_or_default();
        mix(id, at as u64)
    }

    pub(super) fn chain(&self, block_size: usize, salt: u64) -> Chain {
        let mut chain = Chain::new(block_size, salt);
        match self {
            Self::Tokens(ids) => ids.iter().for_each(|&id| chain.push(u64::from(id))),
            Self::Named { tokens, .. } => (0..*tokens).for_each(|at| chain.push(self.named_token(at))),
        }
        chain
    }
}

/// The names that engines with blocks of one size give to the full blocks of a prompt, made once for several engines.
#[derive(Clone, Debug)]
pub struct BlockNames {
    pub(super) tokens: usize,
    pub(super) blocks: Vec<u64>,
}

impl BlockNames {
    /// Names the blocks of a prompt.
    pub fn new(prompt: &Prompt, block_size: usize, salt: u64) -> Self {
        let chain = prompt.chain(block_size, salt);
        Self { tokens: chain.tokens(), blocks: chain.blocks().to_vec() }
    }

    /// How many tokens the prompt has.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The names, from the first block on.
    pub fn blocks(&self) -> &[u64] {
        &self.blocks
    }
}

/// One request to one engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub prompt: Prompt,
    /// Requests with different salts share no cached block.
    pub salt: u64,
    /// Requests for one prompt get equal answers if this is equal.
    pub sample: u64,
    /// How many tokens to generate, at least 1; fewer if prompt and answer would fill all blocks of the engine.
    pub output_tokens: usize,
}

/// Says why an engine does not take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the prompt must have at least 1 token, found 0")]
    EmptyPrompt,
    #[error("the prompt must have fewer than {window} tokens, found {tokens}")]
    PromptTooLong { tokens: usize, window: usize },
    #[error("at most {queue} requests may wait, and as many do")]
    QueueFull { queue: usize },
}

/// Something that happened in the engine at a moment of its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub at: Duration,
    pub what: Happening,
}

/// What can happen in an engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A request got a seat for the first time.
    Admitted { id: RequestId, prompt_tokens: usize, cached_tokens: usize },
    /// A request gave its seat and its blocks back to an older one and waits again, first in line.
    Preempted { id: RequestId },
    /// A request got its next token. `since` is the time since its arrival for the first, else since the one before.
    Token { id: RequestId, index: usize, token: u32, since: Duration, last: bool },
    /// A request has all its tokens and left.
    Finished { id: RequestId, report: Report },
    /// A request was taken back before it was finished.
    Aborted { id: RequestId },
    /// A step ended in which `tokens` prompt tokens were computed and tokens generated, together.
    Step { tokens: usize, took: Duration },
}

/// What one finished request was like.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub prompt_tokens: usize,
    /// Prompt tokens that were in the cache when the request got its seat for the first time.
    pub cached_tokens: usize,
    pub output_tokens: usize,
    /// The output that was asked for.
    pub asked_tokens: usize,
    pub preemptions: usize,
    /// From the arrival to the first seat.
    pub queued: Duration,
    /// From the first seat to the first token.
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

impl Report {
    /// The time from arrival to the last token.
    pub fn total(&self) -> Duration {
        self.queued + self.prefill + self.decode
    }
}
