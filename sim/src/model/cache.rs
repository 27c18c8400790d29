//! What an engine tells of its prefix cache, and what of itself beside that its answers do not show.

use std::time::Duration;

use super::request::Request;
use super::{Model, ModelSettings};

/// Something that changed in the prefix cache. Blocks are named as the engine names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// Full blocks have come that follow each other, the first one after `parent`, with all of their tokens.
    Stored { blocks: Vec<u64>, parent: Option<u64>, tokens: Vec<u32>, salt: u64 },
    /// Blocks have left, in this order.
    Removed { blocks: Vec<u64> },
    /// All of them have left.
    Cleared,
}

/// The tokens of a sequence, prompt and answer.
#[derive(Debug)]
pub(super) struct Words {
    salt: u64,
    tokens: Vec<u32>,
}

impl Words {
    /// Begins with the prompt.
    pub(super) fn new(request: &Request) -> Self {
        Self { salt: request.salt, tokens: request.prompt.ids() }
    }

    /// Appends a token of the answer.
    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Tells that of its full blocks all but the first `known` have come.
    pub(super) fn stored(&self, full: &[u64], known: usize, block_size: usize) -> CacheChange {
        CacheChange::Stored {
            blocks: full[known..].to_vec(),
            parent: known.checked_sub(1).map(|before| full[before]),
            tokens: self.tokens[known * block_size..full.len() * block_size].to_vec(),
            salt: self.salt,
        }
    }
}

impl Model {
    /// Tells from now on what changes in the prefix cache. Requests that are there already are left out.
    pub fn tell_of_cache(&mut self) {
        self.pool.remember_changes();
    }

    /// What changed in the prefix cache by steps that have ended, since this was asked before, in order; nothing unless
    /// [`tell_of_cache`](Self::tell_of_cache) was called.
    pub fn take_cache_changes(&mut self) -> Vec<CacheChange> {
        std::mem::take(&mut self.changes)
    }

    /// Steps that begin from now on cost what they do with these settings; all else stays.
    pub fn change_costs(&mut self, now: Duration, costs: &ModelSettings) {
        self.catch_up(now);
        self.cut_steps();
        self.settings = ModelSettings {
            prefill_per_token: costs.prefill_per_token,
            decode_step: costs.decode_step,
            decode_per_request: costs.decode_per_request,
            decode_per_context_token: costs.decode_per_context_token,
            ..self.settings.clone()
        };
    }

    /// Tokens of prompts that are here and not computed yet, whether they wait or run.
    pub fn uncomputed_tokens(&self) -> usize {
        self.waiting.iter().chain(&self.running).filter(|s| s.output == 0).map(|s| s.uncomputed()).sum()
    }

    /// Tokens of all requests that have a seat.
    pub fn context_tokens(&self) -> usize {
        self.running.iter().map(|s| s.chain.tokens()).sum()
    }

    /// How many blocks can be taken before one that is known is pushed out.
    pub fn room(&self) -> usize {
        self.pool.room()
    }
}
