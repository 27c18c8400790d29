//! Why the events of an endpoint can never be matched to requests, as far as that shows: told once an endpoint and cause.

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The block size of the engine and that of the picker: neither divides the other.
    BlockSize,
    /// Events are of a model that no request asks for, while requests for others find nothing.
    Model,
    /// An engine's hash came with other tokens than before: engines with different seeds, or a hash that is used again.
    ReusedHash,
    /// Most blocks follow blocks that are not known: the picker joined in the middle, or lost messages.
    UnknownParents,
    /// None of the messages can be read.
    Undecodable,
    /// Blocks stand for something beside their tokens that no request has.
    Extras,
}

impl Cause {
    /// Its name in metrics, logs and the state.
    pub fn label(self) -> &'static str {
        match self {
            Self::BlockSize => "block_size",
            Self::Model => "model",
            Self::ReusedHash => "reused_hash",
            Self::UnknownParents => "unknown_parents",
            Self::Undecodable => "undecodable",
            Self::Extras => "extras",
        }
    }
}

#[derive(Clone, Debug, Default, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Labels {
    cause: &'static str,
}

#[derive(Default)]
struct Families {
    mismatches: Family<Labels, Counter>,
}

impl MetricFamilies for Families {
    fn register(&self, registry: &mut MetricRegistry) {
        registry.register(
            "epp_kv_mismatch",
            "[ALPHA] Endpoints whose KV events cannot be matched to requests, by cause",
            self.mismatches.clone(),
        );
    }
}

/// Tells of mismatches.
pub struct Teller {
    families: std::sync::Arc<Families>,
}

impl Teller {
    /// Finds the counters.
    pub fn new(hub: &MetricHub) -> Self {
        Self { families: hub.families() }
    }

    fn tell(&self, endpoint: &str, cause: Cause, detail: &str) {
        self.families.mismatches.get_or_create_owned(&Labels { cause: cause.label() }).inc();
        tracing::warn!(
            endpoint,
            cause = cause.label(),
            detail,
            "the KV events of an endpoint do not match the requests, which then find nothing cached there"
        );
    }
}

/// What is known to be wrong with one endpoint: each cause once, with what was found.
#[derive(Debug, Default)]
pub struct Mismatches(Vec<(Cause, String)>);

impl Mismatches {
    /// Whether the cause is known already.
    pub fn has(&self, cause: Cause) -> bool {
        self.0.iter().any(|(known, _)| *known == cause)
    }

    /// Tells of it, unless it was told before.
    pub fn found(
        &mut self,
        teller: &Teller,
        cause: Cause,
        endpoint: impl FnOnce() -> String,
        detail: impl FnOnce() -> String,
    ) {
        if !self.has(cause) {
            let detail = detail();
            teller.tell(&endpoint(), cause, &detail);
            self.0.push((cause, detail));
        }
    }

    /// All that was found.
    pub fn all(&self) -> impl Iterator<Item = (Cause, &str)> {
        self.0.iter().map(|(cause, detail)| (*cause, detail.as_str()))
    }
}

#[cfg(test)]
#[path = "mismatch_tests.rs"]
mod tests;
