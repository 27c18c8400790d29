//! What a prefix producer shows of itself: the size of its index, and how much of each prompt was known where it went.

use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::attributes::PrefixMatch;

/// What a token is taken to be in bytes.
const BYTES_PER_TOKEN: f64 = 4.0;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    plugin_name: String,
    plugin_type: String,
}

struct Families {
    size: Family<Labels, Gauge>,
    hit_ratio: Family<Labels, Histogram, fn() -> Histogram>,
    hit_bytes: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Default for Families {
    fn default() -> Self {
        Self {
            size: Family::default(),
            hit_ratio: Family::new_with_constructor(ratios),
            hit_bytes: Family::new_with_constructor(bytes),
        }
    }
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = |what| format!("llm_d_epp_prefix_indexer_{what}");
        registry.register(name("size"), "Blocks in the prefix index, each counted once an endpoint", self.size.clone());
        registry.register(
            name("hit_ratio"),
            "Share of a prompt's blocks that the endpoint it went to was believed to hold",
            self.hit_ratio.clone(),
        );
        registry.register(
            name("hit_bytes"),
            "Bytes of a prompt that the endpoint it went to was believed to hold, at 4 bytes a token",
            self.hit_bytes.clone(),
        );
    }
}

/// The same families under their old names, without labels; all instances share them.
struct Twins {
    size: Gauge,
    hit_ratio: Histogram,
    hit_bytes: Histogram,
}

impl Default for Twins {
    fn default() -> Self {
        Self { size: Gauge::default(), hit_ratio: ratios(), hit_bytes: bytes() }
    }
}

impl MetricFamilies for Twins {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = |what| format!("inference_extension_prefix_indexer_{what}");
        let now = |what| format!("llm_d_epp_prefix_indexer_{what}");
        registry.register_deprecated(name("size"), &now("size"), self.size.clone());
        registry.register_deprecated(name("hit_ratio"), &now("hit_ratio"), self.hit_ratio.clone());
        registry.register_deprecated(name("hit_bytes"), &now("hit_bytes"), self.hit_bytes.clone());
    }
}

fn ratios() -> Histogram {
    Histogram::new((0..=10).map(|tenths| f64::from(tenths) / 10.0))
}

fn bytes() -> Histogram {
    Histogram::new(std::iter::once(0.0).chain((4..=16).map(|power| f64::from(1 << power))))
}

/// The metrics of one instance.
pub struct PrefixMetrics {
    size: Gauge,
    hit_ratio: Histogram,
    hit_bytes: Histogram,
    twins: Arc<Twins>,
}

impl PrefixMetrics {
    /// Finds the instance's own series.
    pub fn new(hub: &MetricHub, name: &str, kind: &str) -> Self {
        let families = hub.families::<Families>();
        let labels = Labels { plugin_name: name.to_owned(), plugin_type: kind.to_owned() };
        Self {
            size: families.size.get_or_create_owned(&labels),
            hit_ratio: families.hit_ratio.get_or_create_owned(&labels),
            hit_bytes: families.hit_bytes.get_or_create_owned(&labels),
            twins: hub.families(),
        }
    }

    /// Notes how many blocks the index holds.
    pub fn size(&self, blocks: usize) {
        let blocks = i64::try_from(blocks).unwrap_or(i64::MAX);
        self.size.set(blocks);
        self.twins.size.set(blocks);
    }

    /// Notes what was known of one prompt where it went.
    pub fn hit(&self, known: &PrefixMatch) {
        let blocks = f64::from(known.match_blocks);
        let bytes = blocks * f64::from(known.block_tokens) * BYTES_PER_TOKEN;
        self.hit_bytes.observe(bytes);
        self.twins.hit_bytes.observe(bytes);
        if known.total_blocks > 0 {
            let ratio = blocks / f64::from(known.total_blocks);
            self.hit_ratio.observe(ratio);
            self.twins.hit_ratio.observe(ratio);
        }
    }
}
