//! `no-hit-lru-scorer`: spreads prompts that nobody has cached over the endpoints, the longest unused first.
//!
//! A request is cold if no candidate has any of its prompt cached. For a cold one the endpoints that never took a cold
//! request come first, in row order, then the others, the least recently used first; the i-th of n scores 1 - i / (n - 1),
//! where the place among the used ones counts every used endpoint. For any other request all score 0.5. The pick of a
//! cold request, and that of a profile named `prefill`, become the most recently used. Reads the column
//! `PrefixCacheMatchInfoDataKey`. Costs two passes over it, and for cold requests a look-up an endpoint.
//!
//! ```yaml
//! - type: no-hit-lru-scorer
//!   parameters:
//!     lruSize: 1024                      # endpoints that are remembered; zero and less count as 1024
//!     prefixMatchInfoProducerName: ""    # default: approx-prefix-cache-producer
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, Candidates, ColumnKey, Columns, Cycle, EndpointId, Held, Instance, Kind,
    Picked, PluginType, Producer, RequestKey, Scorer, Stability,
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::used_order::UsedOrder;
use crate::attributes::PrefixMatch;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "no-hit-lru-scorer",
    kinds: &[Kind::Scorer, Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "no-hit-lru-scorer",
    summary: "Spreads prompts that nobody has cached over the endpoints, the longest unused first.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

const DEFAULT_SIZE: i64 = 1024;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How many endpoints are remembered. Default, and for zero and less, 1024.
    lru_size: i64,
    /// The instance that knows what is cached. Default: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// Not used any more.
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: String,
    /// Not used any more.
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let size = if cfg.lru_size > 0 { cfg.lru_size } else { DEFAULT_SIZE };
    let plugin = Arc::new(NoHitLru {
        used: Mutex::new(UsedOrder::new(usize::try_from(size).unwrap_or(usize::MAX))),
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
        cold: cx.writes_request(),
    });
    let told = plugin.clone();
    Ok(Instance {
        scorer: Some(plugin.clone()),
        producer: Some(plugin),
        state: Some(Arc::new(move || told.used.lock().told())),
        ..Instance::default()
    })
}

struct NoHitLru {
    used: Mutex<UsedOrder>,
    matches: ColumnKey<PrefixMatch>,
    cold: RequestKey<Cold>,
}

/// Whether the request was cold when it was last scored.
#[derive(Debug, Default)]
struct Cold(AtomicBool);

impl Clone for Cold {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Relaxed)))
    }
}

impl Attribute for Cold {
    const NAME: &'static str = "ColdRequest";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl Scorer for NoHitLru {
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        let matches = columns.read(self.matches);
        let is_cold = matches.is_none_or(|matches| among.iter().all(|idx| matches[idx.row()].match_blocks == 0));
        if let Some(cold) = columns.read_request(self.cold) {
            cold.0.store(is_cold, Relaxed);
        }
        if !is_cold {
            return super::fill(among, scores, |_| 0.5);
        }
        let steps = among.count().saturating_sub(1).max(1) as f64;
        let used = self.used.lock();
        let place = |row: usize| used.place(cx.snapshot.ids()[row]);
        let n_unused = among.iter().filter(|idx| place(idx.row()).is_none()).count();
        let mut n_before = 0;
        for idx in among.iter() {
            let behind = place(idx.row()).map_or_else(
                || {
                    n_before += 1;
                    n_before - 1
                },
                |place| n_unused + place,
            );
            scores[idx.row()] = (1.0 - behind as f64 / steps).max(0.0);
        }
        if among.count() == 1 {
            super::fill(among, scores, |_| 1.0);
        }
    }
}

impl Producer for NoHitLru {
    fn refresh(&self, _cx: &Cycle<'_>, columns: &mut Columns) {
        *columns.write_request(self.cold).0.get_mut() = false;
    }

    fn picked(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<Box<dyn Held>> {
        if columns.read_request(self.cold).is_some_and(|cold| cold.0.load(Relaxed)) {
            let mut used = self.used.lock();
            for idx in picked.holders() {
                used.touch(cx.snapshot.id(idx), cx.snapshot.meta(idx));
            }
        }
        None
    }

    fn forget(&self, id: EndpointId) {
        self.used.lock().forget(id);
    }
}

#[cfg(test)]
#[path = "no_hit_lru_tests.rs"]
mod tests;
