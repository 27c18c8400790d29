//! The engines of a simulation, and what the picker hears of them.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{EndpointId, EndpointMeta, EndpointName, Observed, Snapshot, SnapshotRow};
use epp_sim::model::{Event, Load, Model, ModelSettings, Refusal, Request, RequestId};
use tokio::time::Instant;

/// All engines, by the row of their endpoint.
pub(super) struct Pool {
    pub engines: Vec<Model>,
    rows: Vec<SnapshotRow>,
    /// Requests that were sent there and have not ended.
    pub in_flight: Vec<u32>,
}

impl Pool {
    /// Makes idle engines.
    ///
    /// # Panics
    /// If such an engine cannot run.
    pub fn new(settings: &[ModelSettings]) -> Self {
        let engine = |settings: &ModelSettings| Model::brief(settings.clone()).expect("settings are checked");
        let rows = (0..settings.len() as u32).map(|i| {
            let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
            let host = format!("10.{}.{}.{}", i >> 16 & 255, i >> 8 & 255, i & 255);
            let meta = EndpointMeta::new(name, host, 8000, Default::default(), 0);
            SnapshotRow { id: EndpointId::new(i, i + 1), meta: Arc::new(meta), observed: Observed::default() }
        });
        Self {
            engines: settings.iter().map(engine).collect(),
            rows: rows.collect(),
            in_flight: vec![0; settings.len()],
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the engine does not take it.
    pub fn send(&mut self, row: usize, now: Duration, request: &Request) -> Result<RequestId, Refusal> {
        self.engines[row].arrive(now, request)
    }

    /// Lets an engine work until then.
    pub fn work(&mut self, row: usize, now: Duration) -> Vec<Event> {
        self.engines[row].advance(now)
    }

    /// What all engines would say of themselves now.
    pub fn observe(&self) -> Vec<Load> {
        self.engines.iter().map(Model::load).collect()
    }

    /// Mean requests in flight.
    pub fn mean_in_flight(&self) -> f64 {
        self.in_flight.iter().map(|n| f64::from(*n)).sum::<f64>() / self.in_flight.len().max(1) as f64
    }

    /// The board after what engines said at `at`.
    pub fn snapshot(&self, said: &[Load], at: Instant, now: Instant, staleness: Duration) -> Snapshot {
        let rows = self.rows.iter().zip(said).zip(&self.engines).map(|((row, load), engine)| {
            let settings = engine.settings();
            let observed = Observed {
                waiting: Some(load.waiting as f64),
                running: Some(load.running as f64),
                kv_usage: Some(load.used_blocks as f64 / settings.blocks as f64),
                block_tokens: u32::try_from(settings.block_size).ok(),
                blocks: u32::try_from(settings.blocks).ok(),
                at: Some(at),
                ..row.observed.clone()
            };
            SnapshotRow { observed, ..row.clone() }
        });
        Snapshot::new(1, rows, now, staleness)
    }

    /// Forgets all caches, as new weights do. Returns how many engines were busy and kept theirs.
    pub fn reset_caches(&mut self) -> usize {
        self.engines.iter_mut().map(|engine| usize::from(!engine.reset_prefix_cache())).sum()
    }
}
