//! Board: what it needs of whoever asks the engines, so that it runs without any.

use std::sync::Arc;

use epp_plugin_api::{EndpointMeta, Observed};
use tokio::time::Instant;

/// Begins to ask an endpoint's engine how it is.
pub trait Watch: Send + Sync {
    /// Asks until what is returned is dropped.
    fn watch(&self, meta: Arc<EndpointMeta>) -> Box<dyn Watched>;
}

/// An endpoint whose engine is asked.
pub trait Watched: Send + Sync {
    /// What the engine last said.
    fn observed(&self) -> Observed;
    /// How asking went.
    fn health(&self) -> Health;
    /// Takes up another address or other labels; what was observed stays.
    fn update(&self, meta: Arc<EndpointMeta>);
    /// Takes up what engines are asked for now; what was observed stays until it is read anew.
    fn renew(&self);
}

/// How asking an engine went.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Scrapes that ended, well or not.
    pub scrapes: u64,
    /// Scrapes that gave no page, or one that lacked something.
    pub errors: u64,
    /// What was wrong with the last of them.
    pub last_error: Option<String>,
    /// When a scrape last gave everything that was wanted.
    pub last_ok: Option<Instant>,
}

/// Engines that say what a test tells them to.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    /// What an engine says, and the entry that it is asked by; `None` once it is asked no more.
    #[derive(Default)]
    struct Said {
        observed: Observed,
        meta: Option<Arc<EndpointMeta>>,
    }

    type Shared = Arc<Mutex<BTreeMap<String, Said>>>;

    #[derive(Clone, Default)]
    pub(crate) struct Engines(Shared);

    struct Engine {
        name: String,
        engines: Shared,
    }

    impl Engines {
        pub(crate) fn say(&self, name: &str, observed: Observed) {
            self.0.lock().entry(name.to_owned()).or_default().observed = observed;
        }

        /// `name@host:port` of every engine that is asked.
        pub(crate) fn asked(&self) -> Vec<String> {
            let shown = |(name, said): (&String, &Said)| Some(format!("{name}@{}", said.meta.as_ref()?.host_port));
            self.0.lock().iter().filter_map(shown).collect()
        }
    }

    impl Watch for Engines {
        fn watch(&self, meta: Arc<EndpointMeta>) -> Box<dyn Watched> {
            let engine = Engine { name: meta.name.name.clone(), engines: self.0.clone() };
            engine.update(meta);
            Box::new(engine)
        }
    }

    impl Watched for Engine {
        fn observed(&self) -> Observed {
            self.engines.lock()[&self.name].observed.clone()
        }

        fn health(&self) -> Health {
            Health { scrapes: 3, errors: 1, last_error: Some("connection refused".into()), last_ok: None }
        }

        fn update(&self, meta: Arc<EndpointMeta>) {
            self.engines.lock().entry(self.name.clone()).or_default().meta = Some(meta);
        }

        fn renew(&self) {}
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            if let Some(said) = self.engines.lock().get_mut(&self.name) {
                *said = Said::default();
            }
        }
    }
}
