//! `recent-load-producer`: how many requests of this picker each endpoint had in flight in the mean, of late.
//!
//! mean = Σ wᵢ * countᵢ / Σ wᵢ over what was in flight whenever something was picked, where a moment weighs as much as the
//! time since the one before, and half of that each `halfLife` ago. Moments less than 10 ms apart count as one. An
//! endpoint that is new has the mean of the others, so that it is not taken for one to make up for. Reads the column
//! `InFlightLoadDataKey`, without which all have 0; writes the column `RecentLoadDataKey`. Costs two passes over the rows.
//!
//! ```yaml
//! - type: recent-load-producer
//!   parameters:
//!     halfLife: 20m                   # above 0
//!     inFlightLoadProducerName: ""    # default: inflight-load-producer
//! ```

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{
    BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointId, Instance, Kind, PluginType, Producer, Snapshot,
    Stability,
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::attributes::{InFlight, RecentLoad};
use crate::duration;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "recent-load-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "recent-load-producer",
    summary: "Knows how many requests each endpoint had in flight in the mean, of late.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// Counts are taken so often at most. It is nothing beside a half-life of minutes.
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// In what time a count weighs half. Above 0. Default 20m.
    #[schemars(schema_with = "crate::schema::duration")]
    half_life: String,
    /// The instance that counts. Default: `inflight-load-producer`.
    in_flight_load_producer_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { half_life: "20m".to_owned(), in_flight_load_producer_name: String::new() }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let half_life = duration::parse(&cfg.half_life).map_err(|why| BuildError::at("halfLife", why))?;
    if half_life.is_zero() {
        return Err(BuildError::at("halfLife", "expected a duration above 0, found 0"));
    }
    let producer = RecentLoadProducer {
        means: Mutex::new(Means::new(half_life)),
        in_flight: cx.reads(&cfg.in_flight_load_producer_name),
        recent: cx.writes(),
    };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

struct RecentLoadProducer {
    means: Mutex<Means>,
    in_flight: ColumnKey<InFlight>,
    recent: ColumnKey<RecentLoad>,
}

impl Producer for RecentLoadProducer {
    fn refresh(&self, cx: &Cycle<'_>, columns: &mut Columns) {
        let mut means = self.means.lock();
        means.meet(cx.snapshot);
        if let Some(counts) = columns.read(self.in_flight) {
            means.count(cx.now, cx.snapshot.ids(), |row| counts[row].requests as f64);
        }
        for (cell, id) in columns.write(self.recent).iter_mut().zip(cx.snapshot.ids()) {
            *cell = means.of(*id);
        }
    }
}

/// Weighted means by endpoint.
#[derive(Debug)]
struct Means {
    half_life: Duration,
    membership: Option<u64>,
    counted: Option<Instant>,
    /// What all that was counted weighs, from 0 to 1; the same for all endpoints.
    weight: f64,
    /// By slot: the serial of the endpoint there, and the weighted sum of what it had.
    sums: Vec<Option<(u32, f64)>>,
}

impl Means {
    fn new(half_life: Duration) -> Self {
        Self { half_life, membership: None, counted: None, weight: 0.0, sums: Vec::new() }
    }

    /// Gives endpoints that were not there before the mean of those that were.
    fn meet(&mut self, snapshot: &Snapshot) {
        if self.membership.replace(snapshot.membership()) == Some(snapshot.membership()) {
            return;
        }
        let known = || snapshot.ids().iter().filter_map(|id| self.sum(*id));
        let mean = known().sum::<f64>() / known().count().max(1) as f64;
        for id in snapshot.ids() {
            if self.sum(*id).is_none() {
                if self.sums.len() <= id.slot() {
                    self.sums.resize(id.slot() + 1, None);
                }
                self.sums[id.slot()] = Some((id.serial(), mean));
            }
        }
    }

    /// So much is in flight now, on the endpoints of a snapshot that has been met.
    fn count(&mut self, now: Instant, ids: &[EndpointId], in_flight: impl Fn(usize) -> f64) {
        let since = now.saturating_duration_since(*self.counted.get_or_insert(now));
        if since < TICK {
            return;
        }
        self.counted = Some(now);
        let keep = (-since.as_secs_f64() / self.half_life.as_secs_f64()).exp2();
        self.weight = self.weight * keep + (1.0 - keep);
        for (row, id) in ids.iter().enumerate() {
            if let Some(Some((_, sum))) = self.sums.get_mut(id.slot()) {
                *sum = *sum * keep + in_flight(row) * (1.0 - keep);
            }
        }
    }

    fn of(&self, id: EndpointId) -> RecentLoad {
        let mean = self.sum(id).map_or(0.0, |sum| sum / self.weight);
        // Nothing weighs anything before the first count.
        RecentLoad { milli_requests: if mean.is_finite() { (mean * 1000.0).round() as u32 } else { 0 } }
    }

    fn sum(&self, id: EndpointId) -> Option<f64> {
        let (serial, sum) = (*self.sums.get(id.slot())?)?;
        (serial == id.serial()).then_some(sum)
    }
}

#[cfg(test)]
#[path = "recent_load_tests.rs"]
mod tests;
