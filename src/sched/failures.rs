//! How often each producer had nothing to give.

use epp_plugin_api::{MetricFamilies, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    plugin_type: &'static str,
    plugin_name: String,
}

/// Failures by producer.
#[derive(Debug, Default)]
pub struct ProducerFailures(Family<Labels, Counter>);

impl MetricFamilies for ProducerFailures {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "[ALPHA] Requests for which a producer gave no data, so that what it owns read as missing";
        registry.register("epp_produce_failures", help, self.0.clone());
    }
}

impl ProducerFailures {
    /// The counter of one producer.
    pub fn of(&self, plugin_type: &'static str, plugin_name: &str) -> Counter {
        self.0.get_or_create_owned(&Labels { plugin_type, plugin_name: plugin_name.to_owned() })
    }
}
