//! `mm-embeddings-cache-producer`: which endpoints have encoded the request's images, videos and sounds before, judged by
//! where earlier requests went.
//!
//! An item is known by the hash of its URL or data; one that a request holds twice counts once. Once the pick is made the
//! items are noted for all endpoints that the request may go to. An endpoint keeps its most recent items, one for every
//! two megabytes of its cache; what it held is gone with it. Writes the column `MultiModalEncoderCacheMatchInfoKey` for
//! requests that have items. Costs a hash and a look-up of each item, and a count for each endpoint that has it.
//!
//! ```yaml
//! - type: mm-embeddings-cache-producer
//!   parameters: {cacheSizeInMBPerServer: 4096}   # zero and less count as 4096
//! ```

use std::ops::Range;
use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointId, EndpointIdx, InferenceRequest,
    Instance, Kind, Picked, Piece, PluginType, Producer, RequestKey, Stability,
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

/// What is known of a request from before the pick to after it.
#[derive(Clone, Debug, Default)]
struct Items {
    /// Its distinct media by hash.
    media: Vec<(u64, Modality)>,
    /// By slot: how many of them an endpoint has, by modality.
    hits: Vec<[u32; Modality::ALL.len()]>,
}

impl Attribute for Items {
    const NAME: &'static str = "EncoderItems";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl Items {
    fn read(&mut self, request: &InferenceRequest) {
        self.media.clear();
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
        self.media.sort_unstable_by_key(|(hash, _)| *hash);
        self.media.dedup_by_key(|(hash, _)| *hash);
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
        if self.media.len() < MOST_ITEMS {
            self.media.push((hash, modality));
        }
    }

    /// Counts what each endpoint has.
    fn count(&mut self, caches: &EncoderCaches) {
        self.hits.clear();
        for (item, modality) in &self.media {
            for slot in caches.slots(*item) {
                let slot = *slot as usize;
                if self.hits.len() <= slot {
                    self.hits.resize(slot + 1, Default::default());
                }
                self.hits[slot][*modality as usize] += 1;
            }
        }
    }
}

impl MmEmbeddings {
    fn fill(&self, items: &mut Items, cx: &Cycle<'_>, column: &mut [EncoderMatch]) {
        items.media.iter().for_each(|(_, modality)| self.metrics.asked(*modality));
        let requested = items.media.len() as u32;
        column.fill(EncoderMatch { matched: 0, requested });
        let caches = self.caches.read();
        items.count(&caches);
        let has = |(row, id): (usize, &EndpointId)| {
            let items = *items.hits.get(id.slot())?;
            let matched = items.iter().sum();
            (matched > 0 && caches.is_in_its_slot(*id)).then(|| {
                column[row].matched = matched;
                let pod = &cx.snapshot.meta(EndpointIdx(row as u32)).name.name;
                Hits { id: *id, pod, items, share: f64::from(matched) / f64::from(requested) }
            })
        };
        let ids = cx.snapshot.ids();
        self.metrics.known(ids.len(), ids.iter().enumerate().filter_map(has));
    }
}

impl Producer for MmEmbeddings {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let mut items = std::mem::take(columns.write_request(self.items));
        items.read(cx.request);
        if !items.media.is_empty() {
            self.fill(&mut items, cx, columns.write(self.matches));
        }
        *columns.write_request(self.items) = items;
        Ok(())
    }

    fn learn(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) {
        let items = columns.read_request(self.items).map_or(&[][..], |items| &items.media);
        if items.is_empty() {
            return;
        }
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
