//! Plugins that do their work at the board: what their parameters ask for. The board does it; these only say what.

use std::time::Duration;

/// Where endpoints are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoverySpec {
    /// The endpoints file; relative to the working directory.
    pub path: String,
    /// Whether changes of the file are taken up.
    pub watch: bool,
    /// Endpoints are gateways of clusters: host names are passed on as they are, and labels say where metrics are.
    pub clusters: bool,
}

/// What a source's pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Metrics as text.
    Metrics,
    /// A list of models as JSON.
    Models,
}

/// How engines are asked for their metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    pub gives: Payload,
    /// `https` rather than `http`.
    pub tls: bool,
    /// The path of the page, percent-encoded.
    pub path: String,
    /// Overrides the endpoint's own port.
    pub port: Option<u16>,
    /// Accept any certificate.
    pub skip_verify: bool,
    pub ca_cert_path: String,
    pub client_cert_path: String,
    pub client_key_path: String,
    /// How often; `None`: at the base interval.
    pub interval: Option<Duration>,
}

/// One series of a page: a family, and labels that the series must carry.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Selector {
    pub family: String,
    pub labels: Vec<(String, String)>,
}

/// A number that an engine shows under a name of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomMetric {
    pub attribute_key: String,
    pub metric: Selector,
}

/// Under which names one kind of engine shows its load. `None`: it does not show that.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EngineMapping {
    pub name: String,
    pub queued: Option<Selector>,
    pub running: Option<Selector>,
    pub kv_usage: Option<Selector>,
    /// Tried when `kv_usage` is not on the page.
    pub kv_usage_fallback: Option<Selector>,
    pub lora: Option<Selector>,
    /// An info series whose labels hold the block size and the number of blocks.
    pub cache_info: Option<Selector>,
    pub cache_block_size_label: String,
    pub cache_num_blocks_label: String,
    pub cache_block_size: Option<Selector>,
    pub cache_num_blocks: Option<Selector>,
    pub custom: Vec<CustomMetric>,
}

/// How the pages of one kind of source are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extraction {
    /// By the engine that an endpoint runs.
    Engines(ExtractorSpec),
    /// Each pair is a family whose newest value is kept, and the key that it is kept under.
    Gauges(Vec<(String, String)>),
    /// The busiest of the endpoint's GPUs, 0 to 1, by a gauge of this family in percent.
    Gpus { family: String, key: String },
    /// The list is looked at and nothing of it is kept.
    Models,
}

impl Extraction {
    /// What it can read.
    pub fn reads(&self) -> Payload {
        match self {
            Self::Engines(_) | Self::Gauges(_) | Self::Gpus { .. } => Payload::Metrics,
            Self::Models => Payload::Models,
        }
    }
}

/// How pages of engines are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtractorSpec {
    /// The endpoint label that names the engine.
    pub engine_label: String,
    /// The mapping for endpoints whose label names no known engine.
    pub default_engine: String,
    pub engines: Vec<EngineMapping>,
}

impl ExtractorSpec {
    /// The label that named the engine before `llm-d.ai/engine-type` did; read when that one is absent or empty.
    pub const LEGACY_ENGINE_LABEL: &'static str = "inference.networking.k8s.io/engine-type";
}
