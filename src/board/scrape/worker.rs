//! Board, scraping: the task of one endpoint and source: ask, read, wait.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::EndpointMeta;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::client::{Client, FetchError};
use super::schedule::Pacer;
use super::standing::{Record, Standing};
use super::target::{Place, Target, TargetError};
use super::{Bounds, Endpoint, Source};

/// How long a scrape may take, from connecting to the last byte.
const DEADLINE: Duration = Duration::from_secs(1);

/// The task of one endpoint and source.
pub struct Worker {
    source: Arc<Source>,
    endpoint: Arc<Endpoint>,
    bounds: Arc<Bounds>,
    client: Client,
    record: Record,
    /// Where the page is, by the entry that says so.
    target: Option<(Arc<EndpointMeta>, Target)>,
}

impl Worker {
    /// Makes the task; nothing happens before it runs.
    pub fn new(source: Arc<Source>, endpoint: Arc<Endpoint>, bounds: Arc<Bounds>) -> Self {
        let client = Client::new(source.tls.clone());
        Self { source, endpoint, bounds, client, record: Record::default(), target: None }
    }

    /// Scrapes for ever: first within one `base` interval, then at a phase of its own, so that endpoints spread out.
    pub async fn run(mut self, base: Duration) {
        let mut pacer = Pacer::new(self.source.period, Instant::now(), fastrand::f64());
        sleep(base.mul_f64(fastrand::f64())).await;
        loop {
            let next = match self.scrape().await {
                Err(e) if !e.was_an_answer() => pacer.unreachable(Instant::now()),
                Ok(()) | Err(_) => pacer.answered(Instant::now()),
            };
            sleep_until(next).await;
        }
    }

    async fn scrape(&mut self) -> Result<(), FetchError> {
        let bounds = self.bounds.clone();
        let turns = if self.record.is_proven() { &bounds.proven } else { &bounds.unproven };
        // The semaphores are never closed.
        let turn = turns.acquire().await;
        let mut page = bounds.buffer();
        let fetched = self.fetch(&mut page).await;
        drop(turn);
        match &fetched {
            Ok(meta) => self.read(&page, meta),
            Err(e) => {
                self.source.poll_errors.inc();
                self.note(Standing::Failing, e.to_string());
            }
        }
        bounds.keep(page);
        fetched.map(drop)
    }

    async fn fetch(&mut self, page: &mut Vec<u8>) -> Result<Arc<EndpointMeta>, FetchError> {
        let meta = self.endpoint.meta.lock().clone();
        if !self.target.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, &meta)) {
            self.target = Some((meta.clone(), target(&self.source, &meta)?));
        }
        let Some((_, target)) = &self.target else { return Ok(meta) };
        let fetched = timeout(DEADLINE, self.client.fetch(target, page)).await;
        fetched.unwrap_or(Err(FetchError::TimedOut(DEADLINE))).map(|()| meta)
    }

    fn read(&mut self, page: &[u8], meta: &EndpointMeta) {
        let now = Instant::now();
        let (mut lacks, mut news) = (Vec::new(), Vec::new());
        for (i, extractor) in self.source.extractors.iter().enumerate() {
            let previous = self.endpoint.state.lock().read(&self.source, i);
            let mut reading = extractor.reader.read(page, meta, &previous, now);
            if !extractor.counts {
                reading.observed.at = None;
            }
            if reading.found_any {
                news.push((i, reading.observed));
            }
            if !reading.missing.is_empty() {
                extractor.errors.inc();
                lacks.extend(reading.missing.iter().map(|f| f.to_string()));
            }
        }
        if !news.is_empty() {
            self.endpoint.state.lock().put(&self.source, news);
        }
        if lacks.is_empty() {
            self.note(Standing::Good, String::new());
        } else {
            self.note(Standing::Lacking, format!("the page lacks {}", lacks.join(", ")));
        }
    }

    fn note(&mut self, standing: Standing, error: String) {
        let now = Instant::now();
        let warn = self.record.note(standing, now, &self.bounds.warnings);
        let mut state = self.endpoint.state.lock();
        state.health.scrapes += 1;
        if standing == Standing::Good {
            state.health.last_ok = Some(now);
            return;
        }
        state.health.errors += 1;
        state.health.last_error = Some(error.clone());
        drop(state);
        let endpoint = self.endpoint.meta.lock().name.to_string();
        let source = self.source.settings.source_type.as_str();
        if warn {
            tracing::warn!(endpoint, source, error, "cannot read all metrics of an endpoint");
        } else {
            tracing::debug!(endpoint, source, error, "cannot read all metrics of an endpoint");
        }
    }
}

fn target(source: &Source, meta: &EndpointMeta) -> Result<Target, TargetError> {
    let (host, port) = match (source.settings.spec.port, &meta.metrics_at) {
        (Some(port), _) => (meta.host.clone(), port),
        (None, Some((host, port))) => (host.clone(), *port),
        (None, None) => (meta.host.clone(), meta.port),
    };
    let place = Place { tls: source.tls.is_some(), host, port };
    Target::new(place, source.path.clone())
}
