//! `p2p-source-producer`: names the engine from which the prompt's cached beginning can be fetched.
//!
//! Of the endpoints that have within one block of the most, in host memory where the tiers are known, one is drawn by
//! the request's id with the weights `1 / (1 + waiting requests)`. Sets `x-kv-cache-source-host-port` to it, unless the
//! endpoint that computes the prompt (the first choice of the profile `prefillProfileName`, or else the request's) is
//! that one, or has all of it but `minCachedTokenDelta` tokens. A header of that name from the client is never passed
//! on. Reads the column `PrefixCacheMatchInfoDataKey` and the queues. Costs two passes over the rows.
//!
//! ```yaml
//! - type: p2p-source-producer
//!   parameters:
//!     prefixMatchInfoProducerName: ""   # default: approx-prefix-cache-producer
//!     minCachedTokenDelta: 1            # 1 or more: what must be saved, in tokens
//!     prefillProfileName: prefill
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, ColumnKey, Columns, Cycle, EndpointIdx, HeaderEdits, Held, Hooks, Instance, Kind, Picked,
    PluginType, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::PrefixMatch;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "p2p-source-producer",
    kinds: &[Kind::Hooks],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "p2p-source-producer",
    summary: "Names the engine from which the cached beginning of the prompt can be fetched.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

const HEADER: &str = "x-kv-cache-source-host-port";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The instance that knows what is cached. Default: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// A source is named only if it has so many tokens more than the endpoint that computes the prompt. 1 or more.
    /// Default 1.
    #[schemars(range(min = 1))]
    min_cached_token_delta: i64,
    /// The profile whose first choice computes the prompt. Default `prefill`.
    prefill_profile_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: String::new(),
            min_cached_token_delta: 1,
            prefill_profile_name: "prefill".into(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let Some(least_saved) = u64::try_from(cfg.min_cached_token_delta).ok().filter(|&delta| delta > 0) else {
        let message = format!("expected 1 or more, found {}", cfg.min_cached_token_delta);
        return Err(BuildError::at("minCachedTokenDelta", message));
    };
    let hooks = Sources {
        matches: cx.reads(&cfg.prefix_match_info_producer_name),
        least_saved,
        prefill: cfg.prefill_profile_name,
    };
    Ok(Instance { hooks: Some(Arc::new(hooks)), ..Instance::default() })
}

struct Sources {
    matches: ColumnKey<PrefixMatch>,
    least_saved: u64,
    prefill: String,
}

/// Tokens that others can fetch from an endpoint: where the tiers are known, only host memory can be read from outside.
fn fetchable(known: &PrefixMatch) -> u64 {
    u64::from(known.host_blocks.unwrap_or(known.cached_blocks)) * u64::from(known.block_tokens)
}

/// The 32-bit FNV-1a hash as a share of 1: the same for the same text, in every process.
fn share(text: &str) -> f64 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    f64::from(hash) / 4_294_967_296.0
}

impl Sources {
    fn source(&self, cx: &Cycle<'_>, matches: &[PrefixMatch]) -> Option<EndpointIdx> {
        let most = matches.iter().map(fetchable).max().filter(|&most| most > 0)?;
        let near = |idx: &EndpointIdx| {
            let known = &matches[idx.row()];
            let tokens = fetchable(known);
            tokens > 0 && tokens + u64::from(known.block_tokens) >= most
        };
        let weight = |idx: EndpointIdx| 1.0 / (1.0 + cx.load.waiting[idx.row()].max(0.0));
        let among = || cx.snapshot.indices().filter(near);
        let mut left = share(&cx.request.id) * among().map(weight).sum::<f64>();
        let mut last = None;
        for idx in among() {
            if left < weight(idx) {
                return Some(idx);
            }
            left -= weight(idx);
            last = Some(idx);
        }
        last
    }

    /// The source that the request is to be told, if it is worth it.
    fn named(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) -> Option<EndpointIdx> {
        let matches = columns.read(self.matches)?;
        let source = self.source(cx, matches)?;
        let prefill = picked.firsts().find(|(name, _)| *name == self.prefill).map(|(_, idx)| idx);
        let computing = prefill.or_else(|| picked.target())?;
        let host_port = |idx| &cx.snapshot.meta(idx).host_port;
        let saved = fetchable(&matches[source.row()]).saturating_sub(matches[computing.row()].cached_tokens());
        (host_port(source) != host_port(computing) && saved >= self.least_saved).then_some(source)
    }
}

impl Hooks for Sources {
    fn picked(
        &self,
        cx: &Cycle<'_>,
        columns: &Columns,
        picked: &Picked<'_>,
        headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        match self.named(cx, columns, picked) {
            Some(source) => headers.set.push((HEADER.into(), cx.snapshot.meta(source).host_port.clone())),
            None if cx.request.headers.find(HEADER).is_some() => headers.remove.push(HEADER.into()),
            None => {}
        }
        None
    }
}

#[cfg(test)]
#[path = "p2p_source_tests.rs"]
mod tests;
