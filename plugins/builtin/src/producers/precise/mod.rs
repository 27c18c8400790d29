//! `precise-prefix-cache-producer`: which endpoints have the beginning of the prompt in their KV cache, as the engines
//! themselves tell.
//!
//! Engines publish which blocks come into their caches and which leave (vLLM with `--kv-events-config`, SGLang alike).
//! Their blocks get the keys that the blocks of a request get: for the model or adapter, the tokens, the hashes of media,
//! and the cache salt. For every endpoint it is counted how many leading full blocks of the prompt it holds on any tier;
//! `matchBlocks` is the sum of what they weigh there, rounded down, the largest weight where a block is on several tiers.
//! With `speculativeIndexing` the target of a pick, and the first choice of a profile named `prefill`, count as holding
//! the prompt for a while. Reads the value `TokenizedPrompt`, which must be real token ids, not an estimate; writes the
//! column `PrefixCacheMatchInfoDataKey`, unless the prompt has no full block. At most 65,536 blocks of a request count.
//! Costs one hash of the prompt, one lookup, and one more for every endpoint that holds some of it on several tiers.
//!
//! `precise-prefix-cache-scorer` takes the same parameters, keeps an index of its own and scores by it as
//! `prefix-cache-scorer` does; where the config lists one producer of this type it scores by that one instead.
//!
//! List it below an `endpoint-notification-source` as an extractor, or nobody is listened to. Engines and picker must
//! agree on the model's name and should on the block size; where an endpoint's events cannot be matched, a warning says
//! so once with the reason, `epp_kv_mismatch_total` counts it and the debug page shows it.
//!
//! The index is in the picker's own memory, so `redisConfig` is refused, and any number of endpoints may hold a block
//! unless `podCacheSize` is given. What an engine lists of an adapter's name among the extra keys of its blocks is left
//! out, as the adapter is the model already.
//!
//! ```yaml
//! - type: precise-prefix-cache-producer
//!   parameters:
//!     tokenProcessorConfig: {blockSizeTokens: 16, hashSeed: ""}
//!     indexerConfig:
//!       kvBlockIndexConfig: {costAwareMemoryConfig: {size: 2GiB}, enableMetrics: false}
//!       kvCacheBackendConfigs: [{name: gpu, weight: 1.0}, {name: cpu, weight: 0.8}]
//!     kvEventsConfig:
//!       engineType: vllm
//!       topicFilter: kv@
//!       discoverPods: true
//!       podDiscoveryConfig: {socketPort: 5557, replaySocketPort: 0}
//!     speculativeIndexing: false
//!     speculativeTTL: 2s
//! ```

mod apply;
mod asked;
mod config;
// Open to the fuzz targets and benches.
pub mod events;
mod extras;
mod keys;
mod metrics;
mod mismatch;
mod msgpack;
mod places;
mod produce;
mod speculation;
mod state;
#[cfg(test)]
mod testing;
mod told;

use std::collections::HashMap;
use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, ColumnKey, EndpointId, Instance, Kind, KvSubscription, PluginType, RequestKey, Stability,
};
use epp_prefix_index::PrefixIndex;
use parking_lot::{Mutex, RwLock};

use self::apply::{Desks, ModelsTold};
use self::asked::Asked;
use self::config::Config;
use self::events::Dialect;
use self::keys::Chain;
use self::metrics::{EventMetrics, IndexMetrics};
use self::mismatch::Teller;
use self::places::Places;
use self::produce::Work;
use self::speculation::Speculation;
use self::told::Told;
use super::index_size::IndexSize;
use crate::attributes::{PrefixMatch, TokenizedPrompt};
use crate::scorers::prefix_cache;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "precise-prefix-cache-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "precise-prefix-cache-producer",
    summary: "Knows from the engines which endpoints hold the beginning of the prompt.",
    schema: Some(crate::schema::of::<Config>),
    build: |cx| build(cx).map(|(instance, _)| instance),
};

/// The registry's line for the scorer that keeps an index of its own.
pub static SCORER: PluginType = PluginType {
    name: "precise-prefix-cache-scorer",
    kinds: &[Kind::Scorer, Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "precise-prefix-cache-scorer",
    summary: "Knows from the engines which endpoints hold the beginning of the prompt, and prefers them.",
    schema: Some(crate::schema::of::<Config>),
    build: build_scorer,
};

fn build(cx: &mut BuildContext<'_>) -> Result<(Instance, ColumnKey<PrefixMatch>), BuildError> {
    let settings = cx.config::<Config>()?.settings()?;
    let matches = cx.writes();
    let precise = Arc::new(Precise {
        chain: Chain::new(settings.algorithm, &settings.seed, settings.block_tokens.get()),
        index: PrefixIndex::new(settings.limits),
        dialect: settings.dialect,
        weights: settings.weights,
        speculation: settings.speculative_ttl.map(Speculation::new),
        places: RwLock::default(),
        told: RwLock::default(),
        desks: Desks::default(),
        asked: Asked::default(),
        models_told: ModelsTold::default(),
        prompt: cx.reads_request(""),
        work: cx.writes_request(),
        matches,
        metrics: EventMetrics::new(cx.metrics),
        size: IndexSize::new(cx.metrics, cx.name, TYPE.name),
        index_metrics: (settings.index_metrics || cx.metrics.shows_all()).then(|| IndexMetrics::new(cx.metrics)),
        teller: Teller::new(cx.metrics),
    });
    let kv =
        KvSubscription { topic: settings.topic, bind: settings.bind, connect: settings.connect, sink: precise.clone() };
    let state = precise.clone();
    let instance = Instance {
        producer: Some(precise),
        kv: Some(kv),
        state: Some(Arc::new(move || state.state())),
        ..Instance::default()
    };
    Ok((instance, matches))
}

/// Where the config lists one producer the scorer reads that, whatever its own parameters say.
fn build_scorer(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    match cx.listed_of(TYPE.name).as_slice() {
        [] => {
            let (instance, matches) = build(cx)?;
            Ok(Instance { scorer: Some(prefix_cache::by_ratio(matches)), ..instance })
        }
        [producer] => {
            cx.plugin("", producer)?;
            let matches = cx.reads(producer);
            Ok(Instance { scorer: Some(prefix_cache::by_ratio(matches)), ..Instance::default() })
        }
        several => Err(BuildError::new(format!(
            "expected at most one {} beside it, found {}; use prefix-cache-scorer with prefixMatchInfoProducerName",
            TYPE.name,
            several.join(" and ")
        ))),
    }
}

/// The index, and who speaks to it.
struct Precise {
    chain: Chain,
    index: PrefixIndex,
    dialect: Dialect,
    /// Tiers in lower case, and what a block there counts.
    weights: Vec<(String, f64)>,
    speculation: Option<Speculation>,
    /// Taken after `told` where both are.
    places: RwLock<Places>,
    told: RwLock<HashMap<EndpointId, Arc<Mutex<Told>>>>,
    desks: Desks,
    asked: Asked,
    models_told: ModelsTold,
    prompt: RequestKey<TokenizedPrompt>,
    work: RequestKey<Work>,
    matches: ColumnKey<PrefixMatch>,
    metrics: EventMetrics,
    size: IndexSize,
    index_metrics: Option<IndexMetrics>,
    teller: Teller,
}

impl Precise {
    /// What a block on a tier counts, and whether the tier is memory of the host.
    fn tier(&self, tier: &str) -> (f64, bool) {
        let tier = told::tier_or_gpu(tier);
        let known = self.weights.iter().rev().find(|(name, _)| told::same_tier(name, tier));
        (known.map_or(1.0, |(_, weight)| *weight), told::same_tier("cpu", tier))
    }
}

#[cfg(test)]
mod tests;
