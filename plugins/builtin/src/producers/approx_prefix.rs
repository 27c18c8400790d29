//! `approx-prefix-cache-producer`: which endpoints have the beginning of the prompt in their KV cache, judged by where
//! earlier prompts went. Among clusters it is called `multicluster-approx-prefix-cache-producer`.
//!
//! Cuts each prompt into blocks, gives each block a key that stands for it and all before it (and for the model and the
//! cache salt), and counts for every endpoint how many leading blocks it was sent before. Once the pick is made the
//! blocks are noted for the endpoint that the request goes to, and for the first choice of a profile named `prefill`.
//! An endpoint keeps its most recent blocks; what it held is gone with it. Reads the value `TokenizedPrompt`, writes the
//! column `PrefixCacheMatchInfoDataKey`. Costs one hash of the prompt and one lookup.
//!
//! ```yaml
//! - type: approx-prefix-cache-producer
//!   parameters:
//!     autoTune: true                   # take block size and capacity from what engines say
//!     blockSizeTokens: 16              # where they do not; less than 64 counts as 64
//!     maxPrefixTokensToMatch: 131072   # 0: maxPrefixBlocksToMatch counts instead
//!     lruCapacityPerServer: 31250      # blocks, where engines do not say
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    Attribute, BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointId, EndpointIdx, Instance, Kind, NodeError,
    Picked, PluginType, Producer, RequestKey, Snapshot, Stability,
};
use epp_prefix_index::keys::{chain_keys, chain_seed};
use epp_prefix_index::matches::Matches;
use epp_prefix_index::{Limits, Owner, PrefixIndex};
use schemars::JsonSchema;
use serde::Deserialize;

use super::block_keys::{BlockKeys, MOST_PROMPTS};
use super::index_size::IndexSize;
use super::prefix_metrics::PrefixMetrics;
use crate::attributes::{PrefixMatch, TokenizedPrompt};

/// The registry's line for this plugin.
pub static TYPE: PluginType =
    plugin_type("approx-prefix-cache-producer", Stability::Beta, |cx| build(cx, TYPE.reported));

/// The registry's line for the producer of clusters.
pub static MULTICLUSTER: PluginType =
    plugin_type("multicluster-approx-prefix-cache-producer", Stability::Alpha, |cx| build(cx, MULTICLUSTER.reported));

const fn plugin_type(
    name: &'static str,
    stability: Stability,
    build: fn(&mut BuildContext<'_>) -> Result<Instance, BuildError>,
) -> PluginType {
    PluginType {
        name,
        kinds: &[Kind::Producer],
        stability,
        replaced_by: None,
        reported: name,
        summary: "Knows which endpoints were sent the beginning of the prompt before.",
        schema: Some(crate::schema::of::<Config>),
        build,
    }
}

const DEFAULT_BLOCK_TOKENS: i64 = 16;
/// Smaller blocks would make the index many times as large and find little more.
const LEAST_BLOCK_TOKENS: usize = 64;
const DEFAULT_CAPACITY: i64 = 31_250;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Whether block size and capacity are what engines say, where they do. Default true.
    auto_tune: bool,
    /// Tokens of a block otherwise. Above 0 unless `autoTune` is set; less than 64 counts as 64. Default 16.
    block_size_tokens: i64,
    /// The old name of `blockSizeTokens`; counts where that is not set.
    block_size: i64,
    /// At most so many blocks of a prompt count, if `maxPrefixTokensToMatch` is 0; 0: all. Default 2048.
    #[schemars(range(min = 0))]
    max_prefix_blocks_to_match: i64,
    /// At most so many tokens of a prompt count, in whole blocks. Default 131072.
    #[schemars(range(min = 0))]
    max_prefix_tokens_to_match: i64,
    /// How many blocks an endpoint keeps otherwise. 0 and less count as the default. Default 31250.
    lru_capacity_per_server: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            auto_tune: true,
            block_size_tokens: DEFAULT_BLOCK_TOKENS,
            block_size: 0,
            max_prefix_blocks_to_match: 2048,
            max_prefix_tokens_to_match: 131_072,
            lru_capacity_per_server: DEFAULT_CAPACITY,
        }
    }
}

impl Config {
    fn block_tokens(&self) -> i64 {
        let renamed = self.block_size > 0 && self.block_size_tokens == DEFAULT_BLOCK_TOKENS;
        if renamed { self.block_size } else { self.block_size_tokens }
    }

    fn mistakes(&self) -> Vec<NodeError> {
        let mistake = |path: &str, message| NodeError { place: None, path: path.into(), message };
        let mut mistakes = Vec::new();
        if !self.auto_tune && self.block_tokens() <= 0 {
            let message = format!("expected a number above 0 where autoTune is off, found {}", self.block_tokens());
            mistakes.push(mistake("blockSizeTokens", message));
        }
        for (path, value) in [
            ("maxPrefixTokensToMatch", self.max_prefix_tokens_to_match),
            ("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match),
        ] {
            if value < 0 {
                mistakes.push(mistake(path, format!("expected 0 or more, found {value}")));
            }
        }
        mistakes
    }
}

fn build(cx: &mut BuildContext<'_>, reported: &'static str) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mistakes = cfg.mistakes();
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let size = |n: i64| usize::try_from(n).unwrap_or(0);
    let producer = ApproxPrefix {
        auto_tune: cfg.auto_tune,
        block_tokens: size(cfg.block_tokens()),
        most_tokens: size(cfg.max_prefix_tokens_to_match),
        most_blocks: size(cfg.max_prefix_blocks_to_match),
        capacity: if cfg.lru_capacity_per_server > 0 {
            size(cfg.lru_capacity_per_server)
        } else {
            DEFAULT_CAPACITY as usize
        },
        index: PrefixIndex::new(Limits::default()),
        prompt: cx.reads_request(""),
        work: cx.writes_request(),
        matches: cx.writes(),
        metrics: PrefixMetrics::new(cx.metrics, cx.name, reported),
        size: IndexSize::new(cx.metrics, cx.name, reported),
    };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

struct ApproxPrefix {
    auto_tune: bool,
    block_tokens: usize,
    most_tokens: usize,
    most_blocks: usize,
    capacity: usize,
    index: PrefixIndex,
    prompt: RequestKey<TokenizedPrompt>,
    work: RequestKey<Work>,
    matches: ColumnKey<PrefixMatch>,
    metrics: PrefixMetrics,
    size: IndexSize,
}

/// The keys of one request's blocks, from before the pick to after it.
#[derive(Clone, Debug, Default)]
struct Work {
    blocks: BlockKeys,
    matches: Matches,
    /// By row, summed over the prompts.
    counts: Vec<u32>,
}

impl Attribute for Work {
    const NAME: &'static str = "PrefixCacheBlockKeys";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

impl ApproxPrefix {
    /// The block size of the first engine that says one, or the configured one.
    fn block_tokens(&self, snapshot: &Snapshot) -> usize {
        let said = |idx: EndpointIdx| snapshot.observed(idx).block_tokens.filter(|&n| n > 0);
        let tuned = if self.auto_tune { snapshot.indices().find_map(said) } else { None };
        tuned.map_or(self.block_tokens, |n| n as usize).max(LEAST_BLOCK_TOKENS)
    }

    fn most_blocks(&self, block_tokens: usize) -> usize {
        match (self.most_tokens, self.most_blocks) {
            (0, 0) => usize::MAX,
            (0, blocks) => blocks,
            (tokens, _) => tokens / block_tokens,
        }
    }

    fn capacity(&self, snapshot: &Snapshot, idx: EndpointIdx) -> usize {
        let said = snapshot.observed(idx).blocks.filter(|&n| n > 0 && self.auto_tune);
        said.map_or(self.capacity, |n| n as usize)
    }

    fn hash(&self, cx: &Cycle<'_>, prompt: Option<&TokenizedPrompt>, block_tokens: usize, blocks: &mut BlockKeys) {
        blocks.clear();
        let Some(prompt) = prompt else { return };
        let seed = chain_seed(&cx.request.target_model, &cx.request.parsed.cache_salt);
        for tokens in prompt.prompts(cx.request).take(MOST_PROMPTS) {
            chain_keys(seed, tokens, block_tokens, self.most_blocks(block_tokens), &mut blocks.keys);
            blocks.end_prompt();
        }
    }

    fn count(&self, snapshot: &Snapshot, work: &mut Work) {
        work.counts.clear();
        work.counts.resize(snapshot.rows(), 0);
        for keys in work.blocks.prompts() {
            self.index.matches(keys, &mut work.matches);
            if work.matches.longest() > 0 {
                for (count, &id) in work.counts.iter_mut().zip(snapshot.ids()) {
                    *count += work.matches.of(owner(id)) as u32;
                }
            }
        }
    }
}

fn owner(id: EndpointId) -> Owner {
    Owner { slot: id.slot() as u32, serial: id.serial() }
}

impl Producer for ApproxPrefix {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        let block_tokens = self.block_tokens(cx.snapshot);
        let mut work = std::mem::take(columns.write_request(self.work));
        self.hash(cx, columns.read_request(self.prompt), block_tokens, &mut work.blocks);
        self.count(cx.snapshot, &mut work);
        let total = work.blocks.keys.len() as u32;
        for (known, &blocks) in columns.write(self.matches).iter_mut().zip(&work.counts) {
            *known = PrefixMatch {
                match_blocks: blocks,
                total_blocks: total,
                block_tokens: block_tokens as u32,
                cached_blocks: blocks,
                host_blocks: None,
            };
        }
        *columns.write_request(self.work) = work;
        Ok(())
    }

    fn has_cached(&self, columns: &Columns, idx: EndpointIdx) -> Option<bool> {
        columns.read(self.matches).map(|matches| matches[idx.row()].match_blocks > 0)
    }

    fn cached_tokens(&self, columns: &Columns, idx: EndpointIdx) -> Option<u64> {
        columns.read(self.matches).map(|matches| matches[idx.row()].cached_tokens())
    }

    fn learn(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) {
        let (Some(work), Some(matches), Some(target)) =
            (columns.read_request(self.work), columns.read(self.matches), picked.target())
        else {
            return;
        };
        for idx in picked.holders() {
            let capacity = self.capacity(cx.snapshot, idx);
            work.blocks.prompts().for_each(|keys| self.index.store(owner(cx.snapshot.id(idx)), keys, capacity));
        }
        self.metrics.hit(&matches[target.row()]);
        self.show_size();
    }

    fn forget(&self, id: EndpointId) {
        self.index.forget(owner(id));
        self.show_size();
    }
}

impl ApproxPrefix {
    fn show_size(&self) {
        self.metrics.size(self.index.blocks());
        self.size.show(&self.index);
    }
}

#[cfg(test)]
#[path = "approx_prefix_tests.rs"]
mod tests;
