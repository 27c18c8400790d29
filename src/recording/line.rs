//! The lines of a recording as they are read: JSON, one object a line, of one of four kinds.
//!
//! A line `{"config": …}` says what is in force, `{"endpoints": …}` which endpoints there are, and `{"observed": …}` what
//! engines say of themselves where that has changed; they hold for all lines `{"cycle": …}` behind them. Numbers with a
//! fraction stand in texts: each is read as exactly the number that it was.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The config in force.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigLine {
    /// Its number.
    pub config: u64,
    /// As YAML, with every default.
    pub text: String,
    /// `DATA/PRODUCER` of each of [`CycleLine::values`]. `None`: what plugins look at is not recorded.
    #[serde(default)]
    pub values: Option<Vec<String>>,
    /// The names of [`CycleLine::headers`].
    #[serde(default)]
    pub headers: Vec<String>,
}

/// The endpoints, by row.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointsLine {
    /// `host:port`.
    pub endpoints: Vec<String>,
    /// `namespace/name`.
    pub names: Vec<String>,
    /// None if it is missing.
    #[serde(default)]
    pub labels: Vec<BTreeMap<String, String>>,
    /// Data-parallel ranks; 0 if they are missing.
    #[serde(default)]
    pub ranks: Vec<u32>,
}

/// Engines that say something else than before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedLine {
    pub observed: Vec<ObservedRow>,
}

/// All that is known of one engine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedRow {
    pub row: usize,
    /// Whether it was not heard lately.
    #[serde(default)]
    pub stale: bool,
    /// Requests that wait, requests that run, and the share of the KV cache in use; `-` for what is not known.
    pub load: String,
    #[serde(default)]
    pub block_tokens: Option<u32>,
    #[serde(default)]
    pub blocks: Option<u32>,
    #[serde(default)]
    pub adapters: Option<AdaptersLine>,
    #[serde(default)]
    pub custom: BTreeMap<String, String>,
}

/// The LoRA adapters of an engine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptersLine {
    pub running: Vec<String>,
    pub waiting: Vec<String>,
    pub most: u32,
}

/// One cycle.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CycleLine {
    /// When, in microseconds since 1970.
    pub cycle: u64,
    /// The value of `x-request-id`.
    pub id: String,
    pub model: String,
    /// If it is another one than `model`.
    #[serde(default)]
    pub target: Option<String>,
    #[serde(default)]
    pub priority: i32,
    /// If it is not the default one.
    #[serde(default)]
    pub flow: Option<String>,
    /// Bytes of the body.
    #[serde(default)]
    pub body: Option<u64>,
    /// A value for each of [`ConfigLine::headers`].
    #[serde(default)]
    pub headers: Vec<Option<String>>,
    /// What its random choices began with.
    pub seed: u64,
    pub candidates: usize,
    /// The rows of the candidates; all of them if it is missing.
    #[serde(default)]
    pub among: Option<Vec<u32>>,
    /// Of each stale row how many requests were in flight there; none if it is missing.
    #[serde(default)]
    pub stale: Vec<i64>,
    /// What producers filled, a text for each of [`ConfigLine::values`]; `None`: they did not.
    #[serde(default)]
    pub values: Vec<Option<String>>,
    /// The status of the refusal.
    #[serde(default)]
    pub refused: Option<u16>,
    /// The place of the profile whose endpoints the request went to.
    #[serde(default)]
    pub primary: Option<usize>,
    #[serde(default)]
    pub runs: Vec<RunLine>,
}

/// One run of a profile.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLine {
    /// The place of the profile in the config.
    pub profile: usize,
    /// What the picker's random choices began with, if not with the seed of the cycle.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The row that another stage was given to.
    #[serde(default)]
    pub peer: Option<u32>,
    /// How many each filter that ran has left.
    #[serde(default)]
    pub kept: Vec<u32>,
    /// The rows that got past the filters; all of them if it is missing.
    #[serde(default)]
    pub left: Option<Vec<u32>>,
    /// Of each scorer the scores before clamping and weighting, as a column stands in a recording; or, in older ones, one
    /// for each row of `left`.
    #[serde(default)]
    pub scores: Vec<String>,
    /// The rows that were picked, best first.
    pub picked: Vec<u32>,
}
