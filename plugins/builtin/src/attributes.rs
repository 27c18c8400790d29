//! The data that producers of this crate write and others read.

use std::ops::Range;

use epp_plugin_api::{Attribute, InferenceRequest};

/// How much of the request's prompt an endpoint is believed to have in its KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Leading blocks of the prompts that count as cached.
    pub match_blocks: u32,
    /// Blocks of the prompts, up to the producer's cap.
    pub total_blocks: u32,
    /// Tokens that a block holds; 0 if nothing is known.
    pub block_tokens: u32,
    /// Leading blocks that are cached on any tier, unweighted.
    pub cached_blocks: u32,
    /// Leading blocks in host memory; `None` if the producer knows nothing of tiers.
    pub host_blocks: Option<u32>,
}

impl PrefixMatch {
    /// Tokens of the prompt that need not be computed.
    pub fn cached_tokens(&self) -> u64 {
        u64::from(self.cached_blocks) * u64::from(self.block_tokens)
    }
}

impl Attribute for PrefixMatch {
    const NAME: &'static str = "PrefixCacheMatchInfoDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("approx-prefix-cache-producer");
}

/// What is in flight on an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    pub requests: i64,
    pub tokens: i64,
}

impl Attribute for InFlight {
    const NAME: &'static str = "InFlightLoadDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("inflight-load-producer");
}

/// How many tokens of the request's prompt an endpoint would have to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncachedTokens(pub i64);

impl Attribute for UncachedTokens {
    const NAME: &'static str = "UncachedRequestTokensDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

/// What a request is predicted to take on an endpoint. The default stands for no prediction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LatencyPrediction {
    /// Whether the time to the first token keeps its objective.
    pub ttft_valid: bool,
    /// Whether the time per output token keeps its objective.
    pub tpot_valid: bool,
    /// The objective of the time to the first token less the prediction, in milliseconds.
    pub ttft_headroom: f64,
    /// The objective of the time per output token less the prediction, in milliseconds.
    pub tpot_headroom: f64,
    /// The predicted time to the first token, in milliseconds.
    pub ttft: f64,
    /// The predicted time per output token, in milliseconds.
    pub tpot: f64,
    /// Requests that this picker has sent to the endpoint and that are not complete.
    pub dispatched: u64,
}

impl Attribute for LatencyPrediction {
    const NAME: &'static str = "LatencyPredictionInfoDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("predicted-latency-producer");
}

impl LatencyPrediction {
    /// Whether anything is predicted.
    pub fn is_there(&self) -> bool {
        *self != Self::default()
    }

    /// Whether it keeps both objectives.
    pub fn has_headroom(&self) -> bool {
        self.ttft_headroom >= 0.0 && self.tpot_headroom >= 0.0
    }
}

/// Which of the request's images, videos and sounds an endpoint is believed to have encoded before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncoderMatch {
    /// The size of those that it has, in items.
    pub matched: u32,
    /// The size of all of them, in items.
    pub requested: u32,
}

impl Attribute for EncoderMatch {
    const NAME: &'static str = "MultiModalEncoderCacheMatchInfoKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("mm-embeddings-cache-producer");
}

/// Where an endpoint stands. Equal numbers of one level stand for equal names within a cycle; 0: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    pub host: u32,
    pub rack: u32,
    pub zone: u32,
    pub region: u32,
}

impl Attribute for Topology {
    const NAME: &'static str = "Topology";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

/// The session that the request belongs to. One value a request; empty or not written if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionId(pub String);

impl Attribute for SessionId {
    const NAME: &'static str = "SessionIDDataKey";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("session-id-producer");
}

/// The tokens of the request's prompts, four bytes each, little endian. One value a request; not written if the request
/// has no prompt.
#[derive(Clone, Debug, Default)]
pub struct TokenizedPrompt {
    packed: Vec<u8>,
    prompts: Vec<Prompt>,
    /// What an engine said of the media: hash, offset and length in tokens, by offset.
    features: Vec<(String, usize, usize)>,
}

/// Where the tokens of one prompt are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prompt {
    /// Bytes of the request's own token ids.
    Given(Range<usize>),
    /// Bytes of `packed`.
    Packed(Range<usize>),
}

impl Attribute for TokenizedPrompt {
    const NAME: &'static str = "TokenizedPrompt";
    const DEFAULT_PRODUCER: Option<&'static str> = Some("token-producer");
}

impl TokenizedPrompt {
    /// What is kept for the next request once the memory of a larger one is given back.
    const KEPT_BYTES: usize = 1 << 20;

    /// Forgets the last request's tokens; keeps memory for ordinary ones.
    pub fn clear(&mut self) {
        self.packed.clear();
        self.packed.shrink_to(Self::KEPT_BYTES);
        self.prompts.clear();
        self.features.clear();
    }

    /// Sets what an engine said of the media: hash, offset and length in tokens, by offset.
    pub fn set_features(&mut self, features: &[(String, usize, usize)]) {
        self.features.clear();
        self.features.extend_from_slice(features);
    }

    /// The media among the tokens, by offset, if an engine told of them or they came with the request's token ids.
    pub fn features<'a>(&'a self, request: &'a InferenceRequest) -> &'a [(String, usize, usize)] {
        if self.features.is_empty() { &request.parsed.features } else { &self.features }
    }

    /// Adds a prompt whose tokens are these bytes of the request's token ids.
    pub fn push_given(&mut self, bytes: Range<usize>) {
        self.prompts.push(Prompt::Given(bytes));
    }

    /// Adds a prompt whose tokens `pack` appends; what is left of the last token is padded with zeros.
    pub fn push_packed(&mut self, pack: impl FnOnce(&mut Vec<u8>)) {
        let start = self.packed.len();
        pack(&mut self.packed);
        self.packed.resize(self.packed.len().next_multiple_of(4), 0);
        self.prompts.push(Prompt::Packed(start..self.packed.len()));
    }

    /// The tokens of each prompt of the request that this was made of.
    pub fn prompts<'a>(&'a self, request: &'a InferenceRequest) -> impl Iterator<Item = &'a [u8]> {
        self.prompts.iter().map(|prompt| match prompt {
            Prompt::Given(at) => request.parsed.ids.get(at.clone()).unwrap_or_default(),
            Prompt::Packed(at) => &self.packed[at.clone()],
        })
    }

    /// How many tokens the prompts have together.
    pub fn tokens(&self) -> usize {
        let bytes = |prompt: &Prompt| match prompt {
            Prompt::Given(at) | Prompt::Packed(at) => at.len(),
        };
        self.prompts.iter().map(bytes).sum::<usize>() / 4
    }
}
