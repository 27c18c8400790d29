//! What each endpoint has encoded: the most recent items by hash, bounded.

use std::collections::{BTreeMap, HashMap};

use epp_plugin_api::EndpointId;

/// The items of every endpoint.
#[derive(Debug, Default)]
pub struct EncoderCaches {
    /// By slot: the serial of the endpoint there, and what it has.
    by_slot: Vec<Option<(u32, Recent)>>,
}

/// The most recent items of one endpoint.
#[derive(Debug, Default)]
struct Recent {
    used: HashMap<u64, u64, foldhash::fast::RandomState>,
    /// The items by when they were last used.
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl Recent {
    fn add(&mut self, item: u64, most: usize) {
        self.clock += 1;
        if let Some(before) = self.used.insert(item, self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, item);
        if self.used.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }
}

impl EncoderCaches {
    /// Whether the endpoint has the item.
    pub fn has(&self, id: EndpointId, item: u64) -> bool {
        let known = self.by_slot.get(id.slot()).and_then(Option::as_ref);
        known.is_some_and(|(serial, recent)| *serial == id.serial() && recent.used.contains_key(&item))
    }

    /// The endpoint has the items now, and at most `most` in all.
    pub fn add(&mut self, id: EndpointId, items: impl IntoIterator<Item = u64>, most: usize) {
        if self.by_slot.len() <= id.slot() {
            self.by_slot.resize_with(id.slot() + 1, || None);
        }
        let (serial, recent) = self.by_slot[id.slot()].get_or_insert_with(|| (id.serial(), Recent::default()));
        if *serial != id.serial() {
            *serial = id.serial();
            *recent = Recent::default();
        }
        items.into_iter().for_each(|item| recent.add(item, most));
    }

    /// The endpoint is gone for good.
    pub fn forget(&mut self, id: EndpointId) {
        if let Some(slot) =
            self.by_slot.get_mut(id.slot()).filter(|slot| slot.as_ref().is_some_and(|s| s.0 == id.serial()))
        {
            *slot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(caches: &EncoderCaches, id: EndpointId) -> Vec<u64> {
        (0..10).filter(|item| caches.has(id, *item)).collect()
    }

    #[test]
    fn the_least_recently_used_items_go_first() {
        let (mut caches, id) = (EncoderCaches::default(), EndpointId::new(1, 1));
        caches.add(id, [1, 2, 1, 3], 2);
        assert_eq!(held(&caches, id), [1, 3]);
        caches.add(id, [4], 2);
        assert_eq!(held(&caches, id), [3, 4]);
        assert!(held(&caches, EndpointId::new(0, 1)).is_empty());
    }

    #[test]
    fn an_endpoint_that_came_back_has_nothing() {
        let (mut caches, old, new) = (EncoderCaches::default(), EndpointId::new(0, 1), EndpointId::new(0, 2));
        caches.add(old, [1], 9);
        assert!(held(&caches, new).is_empty());
        caches.add(new, [2], 9);
        caches.forget(old);
        assert_eq!((held(&caches, old), held(&caches, new)), (vec![], vec![2]));
        caches.forget(new);
        assert!(held(&caches, new).is_empty());
    }
}
