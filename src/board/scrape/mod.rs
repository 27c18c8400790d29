//! Board, scraping: asks every endpoint for its metrics, each over its own kept connection, and keeps the last answer.
//!
//! One scrape is in flight for an endpoint and source at a time, each with a deadline and a cap on its bytes, and only so
//! many in all. An endpoint that cannot be reached is asked less and less often, up to once a second, and never takes the
//! place of one that answers. A scrape that fails changes nothing.

pub mod client;
pub mod metrics;
pub mod schedule;
pub mod standing;
pub mod target;
#[cfg(test)]
mod tests;
pub mod tls;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{EndpointMeta, Extraction, MetricHub, Observed, SourceSpec};
use http::Uri;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use self::metrics::ScrapeMetrics;
use self::standing::Warnings;
use self::target::TargetError;
use self::tls::TlsSetupError;
use self::worker::Worker;
use crate::board::reading::reader::Reader;
use crate::tasks::Tasks;

/// How many scrapes are in flight at once among endpoints whose last scrape worked, and as many among the others. What is
/// above waits for its turn.
const MOST_SCRAPES: usize = 256;

/// How many buffers are kept for the next scrapes, and how large a kept one may be.
const MOST_BUFFERS: usize = 64;
const LARGEST_BUFFER: usize = 1 << 20;

/// What is asked of every endpoint.
#[derive(Clone, Debug)]
pub struct ScrapeSettings {
    pub sources: Vec<SourceSettings>,
    /// How often, where a source does not say; at least 50 ms.
    pub interval: Duration,
}

/// One source and those that read its pages.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The plugin type, as the metrics name it.
    pub source_type: String,
    pub spec: SourceSpec,
    /// With the plugin type of each, as the metrics name it.
    pub extractors: Vec<(String, Extraction)>,
}

/// Why a source cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeSetupError {
    #[error("{source_type}: {error}")]
    Path { source_type: String, error: TargetError },
    #[error("{source_type}: {error}")]
    Tls { source_type: String, error: TlsSetupError },
}

/// Scrapes endpoints. Clones share their bounds.
#[derive(Clone, Debug)]
pub struct Scraper(Arc<Plan>);

impl Scraper {
    /// Makes everything ready; asks nobody yet.
    ///
    /// # Errors
    /// If a path cannot be asked for or a TLS file cannot be read.
    pub fn new(settings: ScrapeSettings, metrics: &MetricHub) -> Result<Self, ScrapeSetupError> {
        let metrics = metrics.families::<ScrapeMetrics>();
        let base = schedule::base_tick(settings.interval, settings.sources.iter().map(|s| s.spec.interval));
        let mut extractors = settings.sources.iter().flat_map(|s| &s.extractors);
        let any_engines = extractors.any(|(_, spec)| matches!(spec, Extraction::Engines(_)));
        let new = |s| Ok(Arc::new(Source::new(s, base, any_engines, &metrics)?));
        let sources = settings.sources.into_iter().map(new);
        Ok(Self(Arc::new(Plan {
            sources: sources.collect::<Result<_, _>>()?,
            base,
            bounds: Arc::new(Bounds::default()),
        })))
    }

    /// Scrapes an endpoint until what is returned is dropped or the tasks stop.
    pub fn watch(&self, meta: Arc<EndpointMeta>, tasks: &Tasks) -> Watched {
        let extractors = self.0.sources.iter().map(|s| s.extractors.len()).sum();
        let endpoint = Arc::new(Endpoint { meta: Mutex::new(meta), state: Mutex::new(State::new(extractors)) });
        let mut first_slot = 0;
        let mut running = Vec::with_capacity(self.0.sources.len());
        for source in &self.0.sources {
            let worker = Worker::new(source.clone(), endpoint.clone(), first_slot, self.0.bounds.clone());
            running.push(tasks.spawn("scrape", worker.run(self.0.base)));
            first_slot += source.extractors.len();
        }
        Watched { endpoint, running }
    }
}

/// An endpoint that is scraped for as long as this lives.
#[derive(Debug)]
pub struct Watched {
    endpoint: Arc<Endpoint>,
    running: Vec<AbortHandle>,
}

impl Watched {
    /// What the engine last said.
    pub fn observed(&self) -> Observed {
        self.endpoint.state.lock().observed.clone()
    }

    /// How the scrapes went.
    pub fn health(&self) -> ScrapeHealth {
        self.endpoint.state.lock().health.clone()
    }

    /// Takes up another address or other labels from the next scrape on; what was observed stays.
    pub fn update(&self, meta: Arc<EndpointMeta>) {
        *self.endpoint.meta.lock() = meta;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.iter().for_each(AbortHandle::abort);
    }
}

/// How the scrapes of an endpoint went, over all its sources.
#[derive(Clone, Debug, Default)]
pub struct ScrapeHealth {
    /// Scrapes that ended, well or not.
    pub scrapes: u64,
    /// Scrapes that gave no page, or one that lacked something.
    pub errors: u64,
    /// What was wrong with the last of them.
    pub last_error: Option<String>,
    /// When a scrape last gave everything that was wanted.
    pub last_ok: Option<Instant>,
}

#[derive(Debug)]
struct Plan {
    sources: Vec<Arc<Source>>,
    base: Duration,
    bounds: Arc<Bounds>,
}

/// A source, ready to be asked.
#[derive(Debug)]
struct Source {
    source_type: String,
    path: Uri,
    port: Option<u16>,
    /// `Some`: over TLS.
    tls: Option<Arc<ClientConfig>>,
    period: Duration,
    extractors: Vec<Extractor>,
    poll_errors: Counter,
}

#[derive(Debug)]
struct Extractor {
    reader: Reader,
    /// Whether an endpoint counts as heard of when it has read something.
    counts: bool,
    errors: Counter,
}

impl Source {
    fn new(
        settings: SourceSettings,
        base: Duration,
        any_engines: bool,
        metrics: &ScrapeMetrics,
    ) -> Result<Self, ScrapeSetupError> {
        let SourceSettings { source_type, spec, extractors } = settings;
        let path = target::path(&spec.path);
        let path = path.map_err(|error| ScrapeSetupError::Path { source_type: source_type.clone(), error })?;
        let tls = spec.tls.then(|| tls::client_config(&spec)).transpose();
        let tls = tls.map_err(|error| ScrapeSetupError::Tls { source_type: source_type.clone(), error })?;
        let extractors = extractors.iter().map(|(extractor_type, spec)| Extractor {
            counts: matches!(spec, Extraction::Engines(_)) || !any_engines,
            reader: Reader::new(spec),
            errors: metrics.extract_errors(&source_type, extractor_type),
        });
        Ok(Self {
            extractors: extractors.collect(),
            poll_errors: metrics.poll_errors(&source_type),
            source_type,
            path,
            port: spec.port,
            tls,
            period: schedule::period(spec.interval, base),
        })
    }
}

/// What all scrapes share.
#[derive(Debug)]
struct Bounds {
    /// For endpoints whose last scrape worked, so that the others never hold them up.
    proven: Semaphore,
    unproven: Semaphore,
    buffers: Mutex<Vec<Vec<u8>>>,
    warnings: Warnings,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            proven: Semaphore::new(MOST_SCRAPES),
            unproven: Semaphore::new(MOST_SCRAPES),
            buffers: Mutex::default(),
            warnings: Warnings::default(),
        }
    }
}

impl Bounds {
    fn buffer(&self) -> Vec<u8> {
        self.buffers.lock().pop().unwrap_or_default()
    }

    fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock();
        if buffers.len() < MOST_BUFFERS && buffer.capacity() <= LARGEST_BUFFER {
            buffers.push(buffer);
        }
    }
}

/// What is known of one endpoint.
#[derive(Debug)]
struct Endpoint {
    meta: Mutex<Arc<EndpointMeta>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What each extractor of each source last read.
    slots: Vec<Observed>,
    observed: Observed,
    health: ScrapeHealth,
}

impl State {
    fn new(extractors: usize) -> Self {
        Self {
            slots: vec![Observed::default(); extractors],
            observed: Observed::default(),
            health: ScrapeHealth::default(),
        }
    }

    fn put(&mut self, slot: usize, observed: Observed) {
        self.slots[slot] = observed;
        self.observed = if self.slots.len() == 1 { self.slots[0].clone() } else { overlay(&self.slots) };
    }
}

/// Of every value the newest.
fn overlay(slots: &[Observed]) -> Observed {
    let mut by_age: Vec<&Observed> = slots.iter().collect();
    by_age.sort_by_key(|o| o.at);
    let mut all = Observed::default();
    let mut custom: Vec<(String, f64)> = Vec::new();
    for o in by_age {
        all.waiting = o.waiting.or(all.waiting);
        all.running = o.running.or(all.running);
        all.kv_usage = o.kv_usage.or(all.kv_usage);
        all.block_tokens = o.block_tokens.or(all.block_tokens);
        all.blocks = o.blocks.or(all.blocks);
        all.adapters = o.adapters.clone().or(all.adapters);
        all.at = o.at.or(all.at);
        for (key, value) in o.custom.iter() {
            match custom.iter_mut().find(|(k, _)| k == key) {
                Some((_, known)) => *known = *value,
                None => custom.push((key.clone(), *value)),
            }
        }
    }
    all.custom = custom.into();
    all
}
