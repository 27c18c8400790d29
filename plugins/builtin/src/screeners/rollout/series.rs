//! What `disaggregatedset-rollout-screener` shows of itself: shares of revisions, and headers that nobody answers to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::config::HeaderSelector;
use crate::screeners::shares::Mode;

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct NoMatchLabels {
    plugin_type: &'static str,
    plugin_name: String,
    selector: String,
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct ShareLabels {
    plugin_type: &'static str,
    plugin_name: String,
    mode: &'static str,
    revision: String,
}

#[derive(Default)]
struct Families {
    no_match: Family<NoMatchLabels, Counter>,
    shares: Family<ShareLabels, Gauge<f64, AtomicU64>>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "llm_d_epp_disaggregatedset_strict_header_no_match",
            "Requests whose strict header no endpoint answers to",
            self.no_match.clone(),
        );
        registry.register(
            "llm_d_epp_disaggregatedset_revision_gating_share",
            "Share of the requests that a revision is given",
            self.shares.clone(),
        );
    }
}

/// The series of one instance.
pub struct Series {
    families: Arc<Families>,
    name: String,
    no_match: Vec<Counter>,
    /// Revisions that have a series.
    shown: Mutex<Vec<ShareLabels>>,
}

impl Series {
    /// Makes the series; those of strict headers begin at 0.
    pub fn new(metrics: &MetricHub, name: &str, selectors: &[HeaderSelector]) -> Self {
        let families = metrics.families::<Families>();
        let counter = |selector: &HeaderSelector| {
            let (plugin_name, selector) = (name.to_owned(), selector.name.clone());
            let labels = NoMatchLabels { plugin_type: super::TYPE.name, plugin_name, selector };
            families.no_match.get_or_create_owned(&labels)
        };
        let no_match = selectors.iter().map(counter).collect();
        Self { families, name: name.to_owned(), no_match, shown: Mutex::default() }
    }

    /// Counts a request whose header, that of the selector at this place, nobody answers to.
    pub fn no_match(&self, selector: usize) {
        self.no_match[selector].inc();
    }

    /// Shows these shares and no others.
    pub fn set(&self, mode: Mode, shares: &BTreeMap<String, f64>) {
        let mode = match mode {
            Mode::Sum => "sum",
            Mode::MaxRole => "max-role",
        };
        let mut shown = self.shown.lock();
        let labels = |revision: &String| {
            let (plugin_name, revision) = (self.name.clone(), revision.clone());
            ShareLabels { plugin_type: super::TYPE.name, plugin_name, mode, revision }
        };
        let now: Vec<ShareLabels> = shares.keys().map(labels).collect();
        for gone in shown.iter().filter(|labels| !now.contains(labels)) {
            self.families.shares.remove(gone);
        }
        for (labels, share) in now.iter().zip(shares.values()) {
            self.families.shares.get_or_create_owned(labels).set(*share);
        }
        *shown = now;
    }
}
