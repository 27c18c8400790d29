//! What each endpoint has encoded: the most recent items by hash, bounded.

use std::collections::{BTreeMap, HashMap};

use epp_plugin_api::EndpointId;

type Map<V> = HashMap<u64, V, foldhash::fast::RandomState>;

/// The items of every endpoint, and the endpoints of every item.
#[derive(Debug, Default)]
pub struct EncoderCaches {
    /// By slot: the serial of the endpoint there, and what it has.
    by_slot: Vec<Option<(u32, Recent)>>,
    /// By item: the slots of those that have it, lowest first; never empty.
    holders: Map<Vec<u32>>,
}

/// The most recent items of one endpoint.
#[derive(Debug, Default)]
struct Recent {
    used: Map<u64>,
    /// The items by when they were last used.
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl Recent {
    /// Whether the item is new, and the one that had to make room for it.
    fn add(&mut self, item: u64, most: usize) -> (bool, Option<u64>) {
        self.clock += 1;
        let before = self.used.insert(item, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, item);
        let oldest = if self.used.len() > most { self.order.pop_first() } else { None };
        if let Some((_, oldest)) = oldest {
            self.used.remove(&oldest);
        }
        (before.is_none(), oldest.map(|(_, item)| item))
    }
}

impl EncoderCaches {
    /// The slots of the endpoints that have the item, lowest first.
    pub fn slots(&self, item: u64) -> &[u32] {
        self.holders.get(&item).map_or(&[], Vec::as_slice)
    }

    /// Whether what the slot of this endpoint has is its own, and not that of one that was there before or is there now.
    pub fn is_in_its_slot(&self, id: EndpointId) -> bool {
        self.by_slot.get(id.slot()).and_then(Option::as_ref).is_some_and(|(serial, _)| *serial == id.serial())
    }

    /// The endpoint has the items now, and at most `most` in all.
    pub fn add(&mut self, id: EndpointId, items: impl IntoIterator<Item = u64>, most: usize) {
        if self.by_slot.len() <= id.slot() {
            self.by_slot.resize_with(id.slot() + 1, || None);
        }
        if !self.is_in_its_slot(id) {
            self.empty(id.slot());
        }
        let (_, recent) = self.by_slot[id.slot()].get_or_insert_with(|| (id.serial(), Recent::default()));
        for item in items {
            let (is_new, gone) = recent.add(item, most);
            if is_new {
                hold(&mut self.holders, item, id.slot());
            }
            if let Some(gone) = gone {
                let_go(&mut self.holders, gone, id.slot());
            }
        }
    }

    /// The endpoint is gone for good.
    pub fn forget(&mut self, id: EndpointId) {
        if self.is_in_its_slot(id) {
            self.empty(id.slot());
        }
    }

    fn empty(&mut self, slot: usize) {
        let Some((_, recent)) = self.by_slot.get_mut(slot).and_then(Option::take) else { return };
        recent.used.keys().for_each(|item| let_go(&mut self.holders, *item, slot));
    }
}

fn hold(holders: &mut Map<Vec<u32>>, item: u64, slot: usize) {
    let (slots, slot) = (holders.entry(item).or_default(), slot as u32);
    if let Err(at) = slots.binary_search(&slot) {
        slots.insert(at, slot);
    }
}

fn let_go(holders: &mut Map<Vec<u32>>, item: u64, slot: usize) {
    let Some(slots) = holders.get_mut(&item) else { return };
    slots.retain(|held| *held as usize != slot);
    if slots.is_empty() {
        holders.remove(&item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(caches: &EncoderCaches, id: EndpointId) -> Vec<u64> {
        let has = |item: &u64| caches.is_in_its_slot(id) && caches.slots(*item).contains(&(id.slot() as u32));
        (0..10).filter(has).collect()
    }

    #[test]
    fn the_least_recently_used_items_go_first() {
        let (mut caches, id) = (EncoderCaches::default(), EndpointId::new(1, 1));
        caches.add(id, [1, 2, 1, 3], 2);
        assert_eq!(held(&caches, id), [1, 3]);
        caches.add(id, [4], 2);
        assert_eq!(held(&caches, id), [3, 4]);
        assert!(held(&caches, EndpointId::new(0, 1)).is_empty());
        assert_eq!(caches.holders.len(), 2, "an item that nobody has is forgotten");
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
        assert!(held(&caches, new).is_empty() && caches.holders.is_empty());
    }

    #[test]
    fn an_item_knows_who_has_it() {
        let mut caches = EncoderCaches::default();
        [5, 2, 9, 2].into_iter().for_each(|slot| caches.add(EndpointId::new(slot, 1), [7], 9));
        assert_eq!(caches.slots(7), [2, 5, 9]);
        caches.forget(EndpointId::new(5, 1));
        assert_eq!(caches.slots(7), [2, 9]);
        assert_eq!(caches.slots(8), [0; 0]);
    }
}
