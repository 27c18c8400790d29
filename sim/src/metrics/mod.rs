//! What an engine tells a scraper: the numbers it keeps, and its page in the words of each kind of engine.

mod histogram;
mod page;
mod process;
mod sglang;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod trtllm;
mod vllm;
mod web;

use crate::kind::Kind;
use crate::model::{Load, ModelSettings};

pub(crate) use self::tally::Tally;
pub(crate) use self::web::{Visit, WebTally};

/// Everything that a page can tell, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) model_name: String,
    pub(crate) settings: ModelSettings,
    /// When the engine started, in seconds since the epoch.
    pub(crate) started_unix: f64,
    pub(crate) load: Load,
    pub(crate) tally: Tally,
    pub(crate) web: WebTally,
}

impl View {
    /// Writes the page of an engine of this kind.
    pub(crate) fn page(&self, kind: Kind) -> String {
        match kind {
            Kind::Vllm => vllm::page(self),
            Kind::Sglang => sglang::page(self),
            Kind::Trtllm => trtllm::page(self),
        }
    }

    /// The share of the blocks that requests hold, 0 to 1.
    fn kv_usage(&self) -> f64 {
        self.load.used_blocks as f64 / self.settings.blocks as f64
    }

    /// The share of prompt tokens that were cached, 0 to 1; 0 before the first prompt.
    fn hit_rate(&self) -> f64 {
        self.tally.cached_tokens as f64 / self.tally.prompt_tokens.max(1) as f64
    }

    /// Tokens generated a second while at work; 0 while nothing runs.
    fn tokens_per_busy_second(&self) -> f64 {
        match self.load.running {
            0 => 0.0,
            _ if self.tally.busy.is_zero() => 0.0,
            _ => self.tally.generated_tokens as f64 / self.tally.busy.as_secs_f64(),
        }
    }
}
