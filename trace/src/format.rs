//! The formats that there are readers for.

use std::fmt;
use std::str::FromStr;

/// What a trace is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Mooncake,
    Weka,
    Azure,
    Bailian,
    BurstGpt,
    Generator,
    Rollout,
    RequestLog,
    Batch,
    Decisions,
    Recording,
}

impl Format {
    pub const ALL: [Self; 11] = [
        Self::Mooncake,
        Self::Weka,
        Self::Azure,
        Self::Bailian,
        Self::BurstGpt,
        Self::Generator,
        Self::Rollout,
        Self::RequestLog,
        Self::Batch,
        Self::Decisions,
        Self::Recording,
    ];

    /// As `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake",
            Self::Weka => "weka",
            Self::Azure => "azure",
            Self::Bailian => "bailian",
            Self::BurstGpt => "burstgpt",
            Self::Generator => "generator",
            Self::Rollout => "rollout",
            Self::RequestLog => "request-log",
            Self::Batch => "openai-batch",
            Self::Decisions => "decisions",
            Self::Recording => "recording",
        }
    }

    /// All names, for messages.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Whether its records stand in the order of their arrivals, so that one that does not is worth a word.
    pub fn is_in_order(self) -> bool {
        match self {
            Self::Mooncake | Self::Azure | Self::Bailian | Self::BurstGpt | Self::Generator => true,
            // Several sessions, each from its beginning; answers and decisions in the order of their ends; the newest first.
            Self::Weka | Self::Rollout | Self::RequestLog | Self::Batch | Self::Decisions | Self::Recording => false,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| format!("expected one of {}", Self::names()))
    }
}
