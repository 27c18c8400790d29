//! Board, scraping: asks every endpoint for its metrics, each over its own kept connection, and keeps the last answer.
//!
//! One scrape is in flight for an endpoint and source at a time, each with a deadline and a cap on its bytes, and only so
//! many in all. An endpoint that cannot be reached is asked less and less often, up to once a second, and never takes the
//! place of one that answers. A scrape that fails changes nothing.
//!
//! What is asked can change while endpoints are scraped: sources that stay as they are go on undisturbed, and what the
//! others have read is kept until those in their place have read something.

pub mod client;
pub mod metrics;
pub mod schedule;
mod standing;
mod state;
pub mod target;
#[cfg(test)]
mod tests;
pub mod tls;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
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
use self::state::State;
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
#[derive(Clone, Debug, PartialEq)]
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

/// Scrapes endpoints. Clones share what is asked, and their bounds.
#[derive(Clone, Debug)]
pub struct Scraper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    plan: ArcSwap<Plan>,
    bounds: Arc<Bounds>,
    metrics: Arc<ScrapeMetrics>,
}

impl Scraper {
    /// Makes everything ready; asks nobody yet.
    ///
    /// # Errors
    /// If a path cannot be asked for or a TLS file cannot be read.
    pub fn new(settings: ScrapeSettings, metrics: &MetricHub) -> Result<Self, ScrapeSetupError> {
        let metrics = metrics.families::<ScrapeMetrics>();
        let plan = Plan::new(settings, &Plan::default(), &metrics)?;
        Ok(Self(Arc::new(Shared { plan: ArcSwap::from_pointee(plan), bounds: Arc::default(), metrics })))
    }

    /// Asks for something else from now on: endpoints that are scraped take it up when they are told to. False: it is
    /// what is asked for already.
    ///
    /// # Errors
    /// As for [`Self::new`]; then nothing changes.
    pub fn change(&self, settings: ScrapeSettings) -> Result<bool, ScrapeSetupError> {
        let before = self.0.plan.load_full();
        let plan = Plan::new(settings, &before, &self.0.metrics)?;
        let same = plan.sources.len() == before.sources.len();
        if same && plan.sources.iter().zip(&before.sources).all(|(new, old)| Arc::ptr_eq(new, old)) {
            return Ok(false);
        }
        self.0.plan.store(Arc::new(plan));
        Ok(true)
    }

    /// Scrapes an endpoint until what is returned is dropped or the tasks stop.
    pub fn watch(&self, meta: Arc<EndpointMeta>, tasks: &Tasks) -> Watched {
        let endpoint = Arc::new(Endpoint { meta: Mutex::new(meta), state: Mutex::default() });
        let watched = Watched { scraper: self.clone(), tasks: tasks.clone(), endpoint, running: Mutex::default() };
        watched.renew();
        watched
    }
}

/// An endpoint that is scraped for as long as this lives.
#[derive(Debug)]
pub struct Watched {
    scraper: Scraper,
    tasks: Tasks,
    endpoint: Arc<Endpoint>,
    running: Mutex<Vec<Running>>,
}

/// A source that is asked.
#[derive(Debug)]
struct Running {
    source: Arc<Source>,
    task: AbortHandle,
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

    /// Takes up what the scraper asks for now; what was observed stays until it is read anew.
    pub fn renew(&self) {
        let plan = self.scraper.0.plan.load_full();
        let mut running = self.running.lock();
        let mut before = std::mem::take(&mut *running);
        self.endpoint.state.lock().renew(&plan.sources);
        for source in &plan.sources {
            let kept = before.iter().position(|r| Arc::ptr_eq(&r.source, source)).map(|at| before.swap_remove(at));
            running.push(kept.unwrap_or_else(|| {
                let worker = Worker::new(source.clone(), self.endpoint.clone(), self.scraper.0.bounds.clone());
                Running { source: source.clone(), task: self.tasks.spawn("scrape", worker.run(plan.base)) }
            }));
        }
        before.iter().for_each(|gone| gone.task.abort());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.get_mut().iter().for_each(|running| running.task.abort());
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

/// Every source, and the interval that theirs are multiples of.
#[derive(Debug, Default)]
struct Plan {
    sources: Vec<Arc<Source>>,
    base: Duration,
}

impl Plan {
    /// Makes the sources ready; one that is as in `before` is the same.
    fn new(settings: ScrapeSettings, before: &Self, metrics: &ScrapeMetrics) -> Result<Self, ScrapeSetupError> {
        let base = schedule::base_tick(settings.interval, settings.sources.iter().map(|s| s.spec.interval));
        let mut extractors = settings.sources.iter().flat_map(|s| &s.extractors);
        let any_engines = extractors.any(|(_, spec)| matches!(spec, Extraction::Engines(_)));
        let mut before = before.sources.clone();
        let source = |settings: SourceSettings| {
            let period = schedule::period(settings.spec.interval, base);
            let same = |s: &Arc<Source>| s.settings == settings && s.period == period && s.any_engines == any_engines;
            match before.iter().position(same) {
                Some(at) => Ok(before.swap_remove(at)),
                None => Ok(Arc::new(Source::new(settings, period, any_engines, metrics)?)),
            }
        };
        Ok(Self { sources: settings.sources.into_iter().map(source).collect::<Result<_, _>>()?, base })
    }
}

/// A source, ready to be asked.
#[derive(Debug)]
struct Source {
    settings: SourceSettings,
    path: Uri,
    /// `Some`: over TLS.
    tls: Option<Arc<ClientConfig>>,
    period: Duration,
    /// Whether any source is read by the engine that an endpoint runs.
    any_engines: bool,
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
        period: Duration,
        any_engines: bool,
        metrics: &ScrapeMetrics,
    ) -> Result<Self, ScrapeSetupError> {
        let SourceSettings { source_type, spec, extractors } = &settings;
        let path = target::path(&spec.path);
        let path = path.map_err(|error| ScrapeSetupError::Path { source_type: source_type.clone(), error })?;
        let tls = spec.tls.then(|| tls::client_config(spec)).transpose();
        let tls = tls.map_err(|error| ScrapeSetupError::Tls { source_type: source_type.clone(), error })?;
        let extractors = extractors.iter().map(|(extractor_type, spec)| Extractor {
            counts: matches!(spec, Extraction::Engines(_)) || !any_engines,
            reader: Reader::new(spec),
            errors: metrics.extract_errors(source_type, extractor_type),
        });
        Ok(Self {
            extractors: extractors.collect(),
            poll_errors: metrics.poll_errors(source_type),
            path,
            tls,
            period,
            any_engines,
            settings,
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
