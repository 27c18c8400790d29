//! The request as plugins see it, and what they may change about its headers.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::Parsed;

/// Request headers: keys in lower case; of a repeated key the last value counts.
#[derive(Clone, Debug, Default)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Adds a header; it takes the place of an earlier one of the same key.
    pub fn set(&mut self, key: impl Into<String>, value: String) {
        let mut key = key.into();
        key.make_ascii_lowercase();
        self.0.push((key, value));
    }

    /// The value of a header, by its lower-case key.
    pub fn find(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The value under the new name if that is present, even empty; else under the deprecated one.
    pub fn find_either(&self, new: &str, deprecated: &str) -> Option<&str> {
        self.find(new).or_else(|| self.find(deprecated))
    }

    /// Every header in the order of arrival, repeated ones too.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// Changes to the headers of the request on its way to the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    pub set: Vec<(String, String)>,
    pub remove: Vec<String>,
}

/// One request, read.
#[derive(Clone, Debug)]
pub struct InferenceRequest {
    /// The value of `x-request-id`, or a generated one.
    pub id: String,
    pub headers: Headers,
    /// The request path without its query.
    pub path: String,
    /// The model that the client asked for; empty if the parser knows none.
    pub model: String,
    /// The model after rewriting; what the engine is asked for.
    pub target_model: String,
    /// The flow that the request belongs to.
    pub fairness_id: String,
    pub priority: i32,
    /// The body as it came.
    pub body: Bytes,
    pub parsed: Parsed,
    pub received: Instant,
    /// How long it waited to be let in.
    pub waited: Duration,
}
