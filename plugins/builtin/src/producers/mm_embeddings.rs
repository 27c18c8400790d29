//! `mm-embeddings-cache-producer`: which endpoints have encoded the request's images, videos and sounds before, judged by
//! where earlier requests went.
//!
//! An item is known by the hash of its URL or data; one that a request holds twice counts once. Once the pick is made the
//! items are noted for all endpoints that the request may go to. An endpoint keeps its most recent items, one for every
//! two megabytes of its cache; what it held is gone with it. Writes the column `MultiModalEncoderCacheMatchInfoKey` for
//! requests that have items. Costs a hash of each item and a look-up for each item and endpoint.
//!
//! ```yaml
//! - type: mm-embeddings-cache-producer
//!   parameters: {cacheSizeInMBPerServer: 4096}   # zero and less count as 4096
//! ```

use std::ops::Range;
use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointId, InferenceRequest, Instance, Kind,
    Picked, Piece, PluginType, Producer, RequestKey, Stability,
};
use parking_lot::RwLock;
use schemars::JsonSchema;
use serde::Deserialize;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::encoder_cache::EncoderCaches;
use super::encoder_metrics::{EncoderMetrics, Hits, Modality};
use super::token::text::unescape;
use crate::attributes::EncoderMatch;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "mm-embeddings-cache-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "mm-embeddings-cache-producer",
    summary: "Knows which endpoints have encoded the request's images, videos and sounds before.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

const DEFAULT_MEGABYTES: i64 = 4096;
const MEGABYTES_PER_ITEM: i64 = 2;
/// So many items an endpoint keeps at most, whatever its cache.
const MOST_KEPT: i64 = 1 << 20;
/// So many items of one request count.
const MOST_ITEMS: usize = 4096;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How large the encoder cache of an endpoint is. Default, and for zero and less, 4096.
    #[serde(rename = "cacheSizeInMBPerServer")]
    cache_size_in_mb_per_server: i64,
}

impl Config {
    /// How many items an endpoint keeps.
    fn most(&self) -> usize {
        let megabytes = self.cache_size_in_mb_per_server;
        let megabytes = if megabytes > 0 { megabytes } else { DEFAULT_MEGABYTES };
        (megabytes / MEGABYTES_PER_ITEM).clamp(1, MOST_KEPT) as usize
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let producer = MmEmbeddings {
        most: cfg.most(),
        caches: RwLock::default(),
        items: cx.writes_request(),
        matches: cx.writes(),
        metrics: EncoderMetrics::new(cx.metrics, cx.name, TYPE.reported),
    };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

struct MmEmbeddings {
    most: usize,
    caches: RwLock<EncoderCaches>,
    items: RequestKey<Items>,
    matches: ColumnKey<EncoderMatch>,
    metrics: EncoderMetrics,
}

/// The distinct media of a request by hash, from before the pick to after it.
#[derive(Clone, Debug, Default)]
struct Items(Vec<(u64, Modality)>);

impl Attribute for Items {
    const NAME: &'static str = "EncoderItems";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl Items {
    fn read(&mut self, request: &InferenceRequest) {
        self.0.clear();
        let body = |at: &Range<usize>| request.body.get(at.clone()).unwrap_or_default();
        for piece in &request.parsed.pieces {
            match piece {
                Piece::Image { at, escaped } => self.push(body(at), *escaped, &[], Modality::Image),
                Piece::Video { at, escaped } => self.push(body(at), *escaped, &[], Modality::Video),
                Piece::Audio { at, escaped, format } => self.push(body(at), *escaped, body(format), Modality::Audio),
                Piece::NextPrompt | Piece::Text { .. } | Piece::Raw { .. } | Piece::Literal(_) | Piece::Ids { .. } => {}
            }
        }
        for (hash, ..) in request.parsed.features.iter().filter(|(hash, ..)| !hash.is_empty()) {
            self.add(xxh3_64(hash.as_bytes()), Modality::Unknown);
        }
        self.0.sort_unstable_by_key(|(hash, _)| *hash);
        self.0.dedup_by_key(|(hash, _)| *hash);
    }

    fn push(&mut self, content: &[u8], escaped: bool, format: &[u8], modality: Modality) {
        let mut hash = Xxh3::new();
        unescape(content, escaped, |piece| hash.update(piece));
        hash.update(format);
        if !content.is_empty() {
            self.add(hash.digest(), modality);
        }
    }

    fn add(&mut self, hash: u64, modality: Modality) {
        if self.0.len() < MOST_ITEMS {
            self.0.push((hash, modality));
        }
    }
}

impl Producer for MmEmbeddings {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let mut items = std::mem::take(columns.write_request(self.items));
        items.read(cx.request);
        if !items.0.is_empty() {
            items.0.iter().for_each(|(_, modality)| self.metrics.asked(*modality));
            let requested = items.0.len() as u32;
            let caches = self.caches.read();
            let column = columns.write(self.matches);
            self.metrics.known(cx.snapshot.indices().zip(column).map(|(idx, known)| {
                let (id, mut hits) = (cx.snapshot.id(idx), [0; Modality::ALL.len()]);
                for (_, modality) in items.0.iter().filter(|(item, _)| caches.has(id, *item)) {
                    hits[*modality as usize] += 1;
                }
                let matched = hits.iter().sum::<u64>() as u32;
                *known = EncoderMatch { matched, requested };
                let share = f64::from(matched) / f64::from(requested);
                Hits { id, pod: &cx.snapshot.meta(idx).name.name, items: hits, share }
            }));
        }
        *columns.write_request(self.items) = items;
        Ok(())
    }

    fn learn(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) {
        let Some(Items(items)) = columns.read_request(self.items).filter(|items| !items.0.is_empty()) else { return };
        let targets = picked.runs.runs[picked.primary].targets().unwrap_or_default();
        let mut caches = self.caches.write();
        for idx in targets {
            caches.add(cx.snapshot.id(*idx), items.iter().map(|(item, _)| *item), self.most);
        }
    }

    fn forget(&self, id: EndpointId) {
        self.caches.write().forget(id);
        self.metrics.forget(id);
    }
}

#[cfg(test)]
#[path = "mm_embeddings_tests.rs"]
mod tests;
