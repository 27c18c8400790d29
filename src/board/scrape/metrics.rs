//! Board, scraping: counters of scrapes that failed and of pages that lacked something.

use epp_plugin_api::{MetricFamilies, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct PollLabels {
    source_type: String,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct ExtractLabels {
    source_type: String,
    extractor_type: String,
}

/// Counts failures by the source's name; also under the prefix that was used before.
#[derive(Debug, Default)]
pub struct ScrapeMetrics {
    poll_errors: Family<PollLabels, Counter>,
    extract_errors: Family<ExtractLabels, Counter>,
}

impl ScrapeMetrics {
    /// Counts the scrapes of a source that gave no page.
    pub fn poll_errors(&self, source_type: &str) -> Counter {
        self.poll_errors.get_or_create_owned(&PollLabels { source_type: source_type.to_owned() })
    }

    /// Counts the pages of a source that lacked something which an extractor wants.
    pub fn extract_errors(&self, source_type: &str, extractor_type: &str) -> Counter {
        let labels = ExtractLabels { source_type: source_type.to_owned(), extractor_type: extractor_type.to_owned() };
        self.extract_errors.get_or_create_owned(&labels)
    }
}

impl MetricFamilies for ScrapeMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
        let name = |what| format!("llm_d_epp_datalayer_{what}");
        let help = "[ALPHA] Pages that lacked a wanted value, by data source and extractor";
        registry.register(name("extract_errors"), help, self.extract_errors.clone());
        let help = "[ALPHA] Scrapes that failed, by data source";
        registry.register(name("poll_errors"), help, self.poll_errors.clone());
        let old = |what| format!("llm_d_inference_scheduler_datalayer_{what}");
        registry.register_deprecated(old("poll_errors"), &name("poll_errors"), self.poll_errors.clone());
        registry.register_deprecated(old("extract_errors"), &name("extract_errors"), self.extract_errors.clone());
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::MetricHub;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn both_names_show_the_same() {
        let hub = MetricHub::default();
        let metrics = hub.families::<ScrapeMetrics>();
        metrics.poll_errors("source").inc();
        metrics.extract_errors("source", "extractor").inc();
        let mut page = String::new();
        hub.with_registry(|r| encode(&mut page, r)).expect("a page can be written to memory");
        for prefix in ["llm_d_epp", "llm_d_inference_scheduler"] {
            for line in [
                format!("{prefix}_datalayer_poll_errors_total{{source_type=\"source\"}} 1"),
                format!(
                    "{prefix}_datalayer_extract_errors_total{{source_type=\"source\",extractor_type=\"extractor\"}} 1"
                ),
            ] {
                assert!(page.lines().any(|l| l == line), "{line}\n{page}");
            }
        }
    }
}
