//! Board, report: everything that is known of the endpoints, for the debug page.

use std::collections::BTreeMap;

use epp_plugin_api::{EndpointMeta, ExtractorSpec, Ledger, Observed};
use serde::Serialize;
use tokio::time::Instant;

use super::discovery::Problem;
use super::membership::Member;

/// As many endpoints, and as many problems, are shown.
pub const MOST: usize = 1000;

/// The label that names the kind of an endpoint's engine.
const ENGINE_LABEL: &str = "llm-d.ai/engine-type";

/// All endpoints and the state of the file that they come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub file: FileReport,
    /// How many endpoints there are, shown or not.
    pub total: usize,
    /// The first [`MOST`], in the order of the file.
    pub endpoints: Vec<EndpointReport>,
}

/// The state of the endpoints file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileReport {
    pub path: String,
    /// Why its newest content is not in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How many entries are not used as they stand, shown or not.
    pub bad_total: usize,
    /// The first [`MOST`], in the order of the file.
    pub bad: Vec<BadEntryReport>,
}

/// An entry that is not used as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadEntryReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub line: u32,
    pub reason: String,
    /// Whether its last good version is in use.
    pub last_good_version_in_use: bool,
}

impl From<&Problem> for BadEntryReport {
    fn from(problem: &Problem) -> Self {
        let name = problem.name.as_ref();
        Self {
            namespace: name.map(|n| n.namespace.clone()),
            name: name.map(|n| n.name.clone()),
            line: problem.line,
            reason: problem.reason.clone(),
            last_good_version_in_use: problem.kept,
        }
    }
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EndpointReport {
    pub namespace: String,
    pub name: String,
    pub address: String,
    pub labels: BTreeMap<String, String>,
    pub rank: u32,
    /// What its label says of its engine; absent where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    pub fresh: bool,
    /// For how long nothing was heard of its engine; absent if nothing ever was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<f64>,
    /// What its engine last said.
    pub last: LastReport,
    pub in_flight: InFlightReport,
    pub scrapes: ScrapeReport,
}

/// What an engine last said; what it never said is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LastReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_usage: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapters: Option<AdaptersReport>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, f64>,
}

/// LoRA adapters of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdaptersReport {
    pub running: Vec<String>,
    pub waiting: Vec<String>,
    pub most: u32,
}

/// What this process has in flight on an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InFlightReport {
    pub requests: i64,
    pub tokens: i64,
}

/// How the scrapes of an endpoint went.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ScrapeReport {
    pub total: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// How long ago a scrape last gave everything that was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good_seconds_ago: Option<f64>,
}

impl EndpointReport {
    /// Reports on one endpoint as of `now`.
    pub fn of(member: &Member, ledger: &Ledger, fresh: bool, now: Instant) -> Self {
        let seconds = |at: Instant| now.saturating_duration_since(at).as_secs_f64();
        let (observed, health) = (member.watched.observed(), member.watched.health());
        let (requests, tokens) = ledger.of(member.id);
        let meta = &member.meta;
        Self {
            namespace: meta.name.namespace.clone(),
            name: meta.name.name.clone(),
            address: meta.host_port.clone(),
            labels: meta.labels.clone(),
            rank: meta.rank,
            engine: engine(meta).map(str::to_owned),
            fresh,
            age_seconds: observed.at.map(seconds),
            last: LastReport::of(&observed),
            in_flight: InFlightReport { requests, tokens },
            scrapes: ScrapeReport {
                total: health.scrapes,
                errors: health.errors,
                last_error: health.last_error,
                last_good_seconds_ago: health.last_ok.map(seconds),
            },
        }
    }
}

impl LastReport {
    fn of(observed: &Observed) -> Self {
        Self {
            waiting: observed.waiting,
            running: observed.running,
            kv_usage: observed.kv_usage,
            block_tokens: observed.block_tokens,
            blocks: observed.blocks,
            adapters: observed.adapters.as_ref().map(|a| AdaptersReport {
                running: a.running.iter().cloned().collect(),
                waiting: a.waiting.iter().cloned().collect(),
                most: a.most,
            }),
            custom: observed.custom.iter().cloned().collect(),
        }
    }
}

fn engine(meta: &EndpointMeta) -> Option<&str> {
    let named = |label: &str| meta.label(label).filter(|v| !v.is_empty());
    named(ENGINE_LABEL).or_else(|| named(ExtractorSpec::LEGACY_ENGINE_LABEL))
}
