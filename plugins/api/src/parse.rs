//! What a parser makes of a request body and of a response body.

use std::ops::Range;

use crate::Headers;

/// A piece of the prompt, in the order in which the engine's template would see it. Ranges are into the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// What follows belongs to another prompt of the same request.
    NextPrompt,
    /// The inside of a JSON string, without its quotes; `escaped` if it holds a backslash.
    Text { at: Range<usize>, escaped: bool },
    /// Bytes of the body that count as they are, such as the JSON of the tools.
    Raw { at: Range<usize> },
    /// Bytes that do not stand in the body.
    Literal(&'static str),
    /// Token ids, as a range of token indices of [`Parsed::ids`].
    Ids { at: Range<usize> },
    /// An image, known by its URL or data: the inside of a JSON string.
    Image { at: Range<usize>, escaped: bool },
    /// A video, known by its URL.
    Video { at: Range<usize>, escaped: bool },
    /// Sound, known by its data and its format.
    Audio { at: Range<usize>, escaped: bool, format: Range<usize> },
}

/// Which API a body is of, for those who hand it on to an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// One that no prompt can be rendered of, or whose body is no JSON.
    #[default]
    Other,
    /// Completions of OpenAI.
    Completions,
    /// Chat completions of OpenAI.
    Chat,
    /// Messages of Anthropic.
    Messages,
}

/// What a parser reads from a request body, without building a tree of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    pub api: Api,
    /// The model, if the body names one.
    pub model: Option<String>,
    /// Where the JSON value of the model stands in the body, quotes included; for a rewrite.
    pub model_at: Option<Range<usize>>,
    /// Where a missing `"model":…,` can be put in; right after the opening brace.
    pub insert_at: Option<usize>,
    pub stream: bool,
    /// The client's cap on the tokens of the answer.
    pub max_output_tokens: Option<u64>,
    pub cache_salt: String,
    /// The prompt; empty if there is none to be read.
    pub pieces: Vec<Piece>,
    /// Token ids that the body holds, four bytes each, little endian.
    pub ids: Vec<u8>,
    /// Multimodal features that came with token ids: hash, offset and length in tokens.
    pub features: Vec<(String, usize, usize)>,
    /// The engine's answer is of no interest: the stream ends with the pick.
    pub skip_response: bool,
    /// Whether the model can be rewritten in the body, and so must be known.
    pub model_aware: bool,
}

/// Why a body is refused; becomes a 400. Never holds anything of the body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// Tokens that a response reports. `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: Option<u64>,
    pub completion: Option<u64>,
    /// Prompt tokens that the engine had in its cache.
    pub cached: Option<u64>,
    pub total: Option<u64>,
}

/// How a response arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// One JSON document.
    Whole,
    /// Server-sent events.
    Events,
}

/// Reads the usage off one response. Fed with the bytes as they come; keeps what it needs between chunks, so that a
/// report that is split over two chunks is read, too.
pub trait ResponseParser: Send {
    /// Takes the next bytes of the response. Returns a report of usage when one is complete.
    fn feed(&mut self, chunk: &[u8]) -> Option<Usage>;
    /// The response is complete. Returns the last report if one was still open.
    fn finish(&mut self) -> Option<Usage>;
}

/// Reads one kind of API.
pub trait Parser: Send + Sync {
    /// The suffixes of the paths that it claims, without slashes at the ends; none makes it the fallback.
    fn paths(&self) -> &'static [&'static str];

    /// Reads a whole request body. `path` has no query.
    ///
    /// # Errors
    /// If the body is not what the API asks for.
    fn parse(&self, path: &str, headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError>;

    /// Makes a reader for one response to a request to `path`.
    fn response(&self, path: &str, kind: ResponseKind) -> Box<dyn ResponseParser>;
}
