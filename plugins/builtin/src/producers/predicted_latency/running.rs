//! The objectives of the requests that run on each endpoint: the strictest one binds those that join them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use epp_plugin_api::EndpointId;
use parking_lot::Mutex;

/// By endpoint: how many requests run there with which objective, by its bits, which sort as the numbers do.
type Objectives = HashMap<EndpointId, BTreeMap<u64, usize>>;

/// Objectives per output token of running requests, in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<Mutex<Objectives>>);

impl Running {
    /// Counts a request with this objective as running until what is returned is dropped. 0 is no objective.
    pub fn join(&self, id: EndpointId, objective: f64) -> Option<Joined> {
        let bits = Some(objective).filter(|ms| *ms > 0.0)?.to_bits();
        *self.0.lock().entry(id).or_default().entry(bits).or_default() += 1;
        Some(Joined { all: self.clone(), id, bits })
    }

    /// The strictest objective on the endpoint.
    pub fn strictest(&self, id: EndpointId) -> Option<f64> {
        self.0.lock().get(&id)?.keys().next().copied().map(f64::from_bits)
    }
}

/// One request's place.
#[derive(Debug)]
pub struct Joined {
    all: Running,
    id: EndpointId,
    bits: u64,
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let Some(objectives) = all.get_mut(&self.id) else { return };
        if let Some(count) = objectives.get_mut(&self.bits) {
            *count -= 1;
            if *count == 0 {
                objectives.remove(&self.bits);
            }
        }
        if objectives.is_empty() {
            all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_objective_binds_as_long_as_its_request_runs() {
        let (running, id) = (Running::default(), EndpointId::new(0, 1));
        let loose = running.join(id, 50.0);
        let strict = [running.join(id, 20.0), running.join(id, 20.0)];
        assert!(running.join(id, 0.0).is_none());
        assert_eq!(running.strictest(id), Some(20.0));
        drop(strict);
        assert_eq!(running.strictest(id), Some(50.0));
        drop(loose);
        assert_eq!(running.strictest(id), None);
        assert!(running.0.lock().is_empty());
    }
}
