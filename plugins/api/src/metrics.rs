//! Metric families: each is defined beside the code that moves it and is put on the page when it is first asked for.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

/// A group of families that belong together.
pub trait MetricFamilies: Default + Send + Sync + 'static {
    /// Puts the families on the page.
    fn register(&self, registry: &mut Registry);
}

/// Every family of the process, each group once.
#[derive(Default)]
pub struct MetricHub {
    registry: Mutex<Registry>,
    known: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl MetricHub {
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
    pub fn with_registry<T>(&self, f: impl FnOnce(&mut Registry) -> T) -> T {
        f(&mut self.registry.lock())
    }
}

impl fmt::Debug for MetricHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricHub({} groups)", self.known.lock().len())
    }
}
