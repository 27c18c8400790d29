//! Metric families: each is defined beside the code that moves it and is put on the page when it is first asked for.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// A group of families that belong together.
pub trait MetricFamilies: Default + Send + Sync + 'static {
    /// Puts the families on the page.
    fn register(&self, registry: &mut MetricRegistry);
}

/// A metric that can be made to show, though nothing has moved it.
pub trait ShowOne {
    /// Makes sure that there is a series. Families make one whose labels are empty.
    fn show_one(&self);
}

impl<N, A> ShowOne for Counter<N, A> {
    fn show_one(&self) {}
}

impl<N, A> ShowOne for Gauge<N, A> {
    fn show_one(&self) {}
}

impl ShowOne for Histogram {
    fn show_one(&self) {}
}

impl<S: Clone + Default + Hash + Eq, M, C: MetricConstructor<M>> ShowOne for Family<S, M, C> {
    fn show_one(&self) {
        drop(self.get_or_create(&S::default()));
    }
}

/// What is on the page.
#[derive(Debug, Default)]
pub struct MetricRegistry {
    page: Registry,
    /// Whether families show before they have moved.
    shows_all: bool,
}

impl MetricRegistry {
    /// Puts a family on the page. Counters get `_total` after the name, and every help text a full stop.
    pub fn register(&mut self, name: impl Into<String>, help: impl Into<String>, metric: impl Metric + ShowOne) {
        if self.shows_all {
            metric.show_one();
        }
        self.page.register(name, help, metric);
    }

    /// Puts a family on the page under the name that it had before it was called `instead`.
    pub fn register_deprecated(&mut self, name: impl Into<String>, instead: &str, metric: impl Metric + ShowOne) {
        let suffix = match EncodeMetric::metric_type(&metric) {
            MetricType::Counter => "_total",
            MetricType::Gauge | MetricType::Histogram | MetricType::Info | MetricType::Unknown => "",
        };
        let help = format!("[ALPHA] [Deprecated: Use {instead}{suffix}] The same under an older name");
        self.register(name, help, metric);
    }

    /// Puts families on the page that are made when it is written.
    pub fn register_collector(&mut self, collector: Box<dyn Collector>) {
        self.page.register_collector(collector);
    }
}

impl Deref for MetricRegistry {
    type Target = Registry;

    /// To write the page.
    fn deref(&self) -> &Registry {
        &self.page
    }
}

/// Every family of the process, each group once.
#[derive(Default)]
pub struct MetricHub {
    registry: Mutex<MetricRegistry>,
    known: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl MetricHub {
    /// Makes a hub whose page shows every family that is put on it, moved or not: to list them.
    pub fn that_shows_all() -> Self {
        let registry = MetricRegistry { shows_all: true, ..MetricRegistry::default() };
        Self { registry: Mutex::new(registry), ..Self::default() }
    }

    /// Whether families show that have not moved: then those that a config would have to ask for are wanted, too.
    pub fn shows_all(&self) -> bool {
        self.registry.lock().shows_all
    }

    /// The group of families of this type; made and put on the page at the first call.
    pub fn families<F: MetricFamilies>(&self) -> Arc<F> {
        let mut known = self.known.lock();
        let group = known.entry(TypeId::of::<F>()).or_insert_with(|| {
            let group = Arc::new(F::default());
            group.register(&mut self.registry.lock());
            group
        });
        group.clone().downcast().expect("a group is kept under its own type")
    }

    /// Lends the registry, to put a collector on the page or to write the page.
    pub fn with_registry<T>(&self, f: impl FnOnce(&mut MetricRegistry) -> T) -> T {
        f(&mut self.registry.lock())
    }
}

impl fmt::Debug for MetricHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricHub({} groups)", self.known.lock().len())
    }
}
