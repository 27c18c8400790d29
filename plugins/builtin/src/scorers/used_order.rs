//! In which order endpoints were last used.

use std::sync::Arc;

use epp_plugin_api::{EndpointId, EndpointMeta};

/// So many endpoints are told of.
const MOST_TOLD: usize = 100;

/// Endpoints, the least recently used first; bounded: the least recently used are forgotten.
#[derive(Debug)]
pub struct UsedOrder {
    most: usize,
    order: Vec<(EndpointId, Arc<EndpointMeta>)>,
    /// By slot: the serial of the endpoint there, and its place in `order`.
    places: Vec<Option<(u32, usize)>>,
}

impl UsedOrder {
    /// Remembers at most so many endpoints.
    pub fn new(most: usize) -> Self {
        Self { most, order: Vec::new(), places: Vec::new() }
    }

    /// How many endpoints were last used before this one; `None` if it is not remembered.
    pub fn place(&self, id: EndpointId) -> Option<usize> {
        let (serial, place) = (*self.places.get(id.slot())?)?;
        (serial == id.serial()).then_some(place)
    }

    /// The endpoint is used now.
    pub fn touch(&mut self, id: EndpointId, meta: &Arc<EndpointMeta>) {
        self.order.retain(|(other, _)| *other != id);
        self.order.push((id, meta.clone()));
        if self.order.len() > self.most {
            self.order.remove(0);
        }
        self.renumber();
    }

    /// The endpoint is gone for good.
    pub fn forget(&mut self, id: EndpointId) {
        self.order.retain(|(other, _)| *other != id);
        self.renumber();
    }

    fn renumber(&mut self) {
        self.places.fill(None);
        for (place, (id, _)) in self.order.iter().enumerate() {
            if self.places.len() <= id.slot() {
                self.places.resize(id.slot() + 1, None);
            }
            self.places[id.slot()] = Some((id.serial(), place));
        }
    }

    /// The order as JSON: the first endpoints by name, and how many there are.
    pub fn told(&self) -> String {
        let names: Vec<_> = self.order.iter().take(MOST_TOLD).map(|(_, meta)| meta.name.to_string()).collect();
        let told = serde_json::json!({
            "endpoints": names,
            "totalEndpoints": self.order.len(),
            "maxEndpoints": MOST_TOLD,
        });
        told.to_string()
    }
}
