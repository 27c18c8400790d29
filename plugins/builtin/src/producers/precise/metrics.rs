//! What the precise prefix producer shows of itself: what became of events, and what the index does.

use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct SkipLabels {
    cache_kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct DropLabels {
    reason: &'static str,
}

/// Why blocks that an engine tells of are not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// They follow a block that nobody holds.
    UnknownParent,
    /// They are fewer tokens than a block of the picker.
    ShortOfABlock,
    /// They have no tokens, and the hashes are not known.
    UnknownBlocks,
    /// The endpoint has too many tiers and groups, or has left.
    Refused,
}

impl Dropped {
    fn label(self) -> &'static str {
        match self {
            Self::UnknownParent => "unknown_parent",
            Self::ShortOfABlock => "short_of_a_block",
            Self::UnknownBlocks => "unknown_blocks",
            Self::Refused => "refused",
        }
    }
}

/// Why events of a cache group are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The group does not keep whole prefixes.
    UnsupportedKind,
    /// No block has come in the group.
    UnknownGroup,
    /// A block holds no tokens.
    InvalidBlockSize,
    /// The blocks do not span their tokens.
    NonDenseSpan,
}

impl Skipped {
    fn label(self) -> &'static str {
        match self {
            Self::UnsupportedKind => "unsupported_cache_kind",
            Self::UnknownGroup => "unknown_group",
            Self::InvalidBlockSize => "invalid_block_size",
            Self::NonDenseSpan => "non_dense_block_span",
        }
    }
}

#[derive(Default)]
struct EventFamilies {
    stores_skipped: Family<SkipLabels, Counter>,
    removals_skipped: Family<SkipLabels, Counter>,
    forwarded: Counter,
    suppressed: Counter,
    discarded: Counter,
    dropped: Family<DropLabels, Counter>,
}

impl MetricFamilies for EventFamilies {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = |what: &str| format!("llm_d_epp_kv_cache_events_{what}");
        let help = "Stores left out because their cache group keeps no whole prefixes or they do not span their tokens";
        registry.register(name("stores_skipped"), help, self.stores_skipped.clone());
        let help = "Removals left out because their cache group keeps no whole prefixes or is not known";
        registry.register(name("removals_skipped"), help, self.removals_skipped.clone());
        let forwarded = "Removed hashes that left the index, or were not there";
        registry.register(name("dedup_removed_hashes_forwarded"), forwarded, self.forwarded.clone());
        let suppressed = "Removed hashes that stay because they were stored more often than removed";
        registry.register(name("dedup_removed_hashes_suppressed"), suppressed, self.suppressed.clone());
        for (what, counter) in [("forwarded", &self.forwarded), ("suppressed", &self.suppressed)] {
            let (what, old) = (format!("dedup_removed_hashes_{what}"), "kvcache_kvevents_");
            registry.register_deprecated(format!("{old}{what}"), &name(&what), counter.clone());
        }
        let help = "Messages of engines that were discarded because an event in them could not be read";
        registry.register("epp_kv_batches_discarded", help, self.discarded.clone());
        let help = "Stores that were not taken in, by reason";
        registry.register("epp_kv_stores_dropped", help, self.dropped.clone());
    }
}

/// What became of events.
pub struct EventMetrics(Arc<EventFamilies>);

impl EventMetrics {
    /// Finds the families.
    pub fn new(hub: &MetricHub) -> Self {
        Self(hub.families())
    }

    /// A message cannot be read.
    pub fn discarded(&self) {
        self.0.discarded.inc();
    }

    /// A store was not taken in.
    pub fn dropped(&self, why: Dropped) {
        self.0.dropped.get_or_create_owned(&DropLabels { reason: why.label() }).inc();
    }

    /// A store in a group was left out.
    pub fn store_skipped(&self, kind: &'static str, why: Skipped) {
        let labels = SkipLabels { cache_kind: kind, reason: why.label() };
        self.0.stores_skipped.get_or_create_owned(&labels).inc();
    }

    /// A removal in a group was left out.
    pub fn removal_skipped(&self, kind: &'static str, why: Skipped) {
        let labels = SkipLabels { cache_kind: kind, reason: why.label() };
        self.0.removals_skipped.get_or_create_owned(&labels).inc();
    }

    /// Hashes were removed.
    pub fn removed(&self, forwarded: usize, suppressed: usize) {
        self.0.forwarded.inc_by(forwarded as u64);
        self.0.suppressed.inc_by(suppressed as u64);
    }
}

#[derive(Default)]
struct IndexFamilies {
    admissions: Counter,
    evictions: Counter,
    requests: Counter,
    hits: Counter,
}

impl MetricFamilies for IndexFamilies {
    fn register(&self, registry: &mut MetricRegistry) {
        let families = [
            ("admissions", "Blocks that came into the index, each counted once an endpoint and tier", &self.admissions),
            ("evictions", "Blocks that left the index because an engine said so", &self.evictions),
            ("lookup_requests", "Prompts that were looked up", &self.requests),
            ("lookup_hits", "Leading blocks found for prompts, at the endpoint that held the most", &self.hits),
            ("max_pod_hit_count", "Leading blocks found for prompts, at the endpoint that held the most", &self.hits),
        ];
        for (what, help, counter) in families {
            let now = format!("llm_d_epp_kv_cache_index_{what}");
            registry.register(&now, help, counter.clone());
            registry.register_deprecated(format!("kvcache_index_{what}"), &now, counter.clone());
        }
    }
}

/// What the index does.
pub struct IndexMetrics(Arc<IndexFamilies>);

impl IndexMetrics {
    /// Finds the families.
    pub fn new(hub: &MetricHub) -> Self {
        Self(hub.families())
    }

    /// Blocks came in.
    pub fn admitted(&self, blocks: usize) {
        self.0.admissions.inc_by(blocks as u64);
    }

    /// Blocks left.
    pub fn evicted(&self, blocks: usize) {
        self.0.evictions.inc_by(blocks as u64);
    }

    /// A prompt was looked up; the endpoint that holds most of it holds so many leading blocks.
    pub fn looked_up(&self, most: u32) {
        self.0.requests.inc();
        self.0.hits.inc_by(most.into());
    }
}
