//! What is wrong with a trace, and where.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// One record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The file, if the trace has several.
    pub file: Option<Arc<str>>,
    /// From 1; `None` if the format has no lines.
    pub line: Option<u64>,
    /// Empty if it is the record as a whole.
    pub field: String,
    /// What was expected, and what was found.
    pub what: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.what)
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record is bad; those after it may be read.
    #[error("{0}")]
    Bad(Bad),
    /// Nothing comes after this.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable { path: PathBuf, why: std::io::Error },
    #[error("expected a trace, found {0}")]
    NoTrace(String),
    #[error(
        "expected a known format, found one that no reader is sure of: say which by --format ({})",
        crate::format::Format::names()
    )]
    UnknownFormat,
    #[error("expected at least one request, found none{}", first_of(.0))]
    Empty(Skipped),
}

fn first_of(skipped: &Skipped) -> String {
    match skipped.first.first() {
        Some(bad) => format!("; {} bad, the first of them: {bad}", skipped.n_records),
        None => String::new(),
    }
}

/// What to do about a bad record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBad {
    /// Read no further.
    #[default]
    Stop,
    /// Count it, and go on.
    Skip,
}

impl FromStr for OnBad {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "stop" => Ok(Self::Stop),
            "skip" => Ok(Self::Skip),
            _ => Err("expected stop or skip".into()),
        }
    }
}

impl fmt::Display for OnBad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Skip => "skip",
        })
    }
}

/// The bad records that were left out.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    pub n_records: u64,
    /// The first few.
    pub first: Vec<Bad>,
}

/// How many are kept to be shown.
const SHOWN: usize = 5;

impl Skipped {
    pub(crate) fn push(&mut self, bad: Bad) {
        self.n_records += 1;
        if self.first.len() < SHOWN {
            self.first.push(bad);
        }
    }
}

/// What is wrong with a piece of the input, before it is known where that piece is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub field: String,
    pub what: String,
}

impl Complaint {
    pub fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self { field: field.into(), what: what.into() }
    }

    /// About something inside of what `outer` names.
    pub fn inside(mut self, outer: &str) -> Self {
        self.field = if self.field.is_empty() { outer.into() } else { format!("{outer}.{}", self.field) };
        self
    }
}
