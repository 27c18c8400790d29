//! How large the prefix index of a producer is, in blocks and in bytes.

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use epp_prefix_index::PrefixIndex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    plugin_name: String,
    plugin_type: &'static str,
}

#[derive(Default)]
struct Families {
    blocks: Family<Labels, Gauge>,
    bytes: Family<Labels, Gauge>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "[ALPHA] Blocks in the prefix index, each counted once a place that holds it";
        registry.register("epp_prefix_index_blocks", help, self.blocks.clone());
        let help = "[ALPHA] Bytes that the prefix index takes, without the slack of growing tables";
        registry.register("epp_prefix_index_bytes", help, self.bytes.clone());
    }
}

/// The gauges of one instance.
pub struct IndexSize {
    blocks: Gauge,
    bytes: Gauge,
}

impl IndexSize {
    /// Finds the instance's own series.
    pub fn new(hub: &MetricHub, name: &str, kind: &'static str) -> Self {
        let families = hub.families::<Families>();
        let labels = Labels { plugin_name: name.to_owned(), plugin_type: kind };
        Self {
            blocks: families.blocks.get_or_create_owned(&labels),
            bytes: families.bytes.get_or_create_owned(&labels),
        }
    }

    /// Shows how large the index is now.
    pub fn show(&self, index: &PrefixIndex) {
        self.blocks.set(i64::try_from(index.blocks()).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(index.bytes()).unwrap_or(i64::MAX));
    }
}
