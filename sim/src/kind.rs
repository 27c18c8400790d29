//! The kinds of engine that can be played.

use std::fmt;
use std::str::FromStr;

/// Which engine is played. The kind decides the words of the metrics page; every kind answers on every route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Vllm,
    Sglang,
    Trtllm,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Vllm, Self::Sglang, Self::Trtllm];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
        }
    }

    /// The value of the label `llm-d.ai/engine-type` that goes with the metrics page.
    pub fn engine_type(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm-serve",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Says that a name is that of no kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected vllm, sglang or trtllm, found {0}")]
pub struct UnknownKind(String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}
