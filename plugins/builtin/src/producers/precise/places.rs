//! Where endpoints keep blocks: one place for each tier and cache group of an endpoint, as the index knows it.

use epp_plugin_api::EndpointId;
use epp_prefix_index::Owner;

/// More places of one endpoint than any engine has.
const MOST_OF_ONE: usize = 64;

/// A place as a lookup needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub owner: Owner,
    /// What one of its blocks counts.
    pub weight: f64,
    /// Whether it is memory of the host.
    pub host: bool,
}

/// The places of all endpoints. Slots in the index are dense and used again; a serial never is.
#[derive(Debug, Default)]
pub struct Places {
    /// By the endpoint's slot.
    endpoints: Vec<Entry>,
    free: Vec<u32>,
    n_slots: u32,
    last_serial: u32,
}

#[derive(Debug, Default)]
struct Entry {
    /// Whose entry it is; 0: nobody's.
    serial: u32,
    /// Endpoints of this slot up to this serial are gone.
    gone: u32,
    places: Vec<Place>,
    /// Which of them is for what is only believed.
    speculative: Option<Owner>,
    name: Option<String>,
}

impl Places {
    /// The places of an endpoint; none if it is not known.
    pub fn of(&self, id: EndpointId) -> &[Place] {
        match self.endpoints.get(id.slot()) {
            Some(entry) if entry.serial == id.serial() => &entry.places,
            _ => &[],
        }
    }

    /// Whether the endpoint has left, so that what it says comes too late.
    pub fn is_gone(&self, id: EndpointId) -> bool {
        self.endpoints.get(id.slot()).is_some_and(|entry| id.serial() <= entry.gone)
    }

    /// Adds a place to an endpoint; `None` if the endpoint has left, is new at a slot whose last one has not, or has too
    /// many places already.
    pub fn add(&mut self, id: EndpointId, weight: f64, host: bool) -> Option<Owner> {
        let entry = self.entry(id)?;
        if entry.places.len() >= MOST_OF_ONE {
            return None;
        }
        let serial = self.last_serial.checked_add(1)?;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.n_slots += 1;
            self.n_slots - 1
        });
        self.last_serial = serial;
        let owner = Owner { slot, serial };
        self.endpoints[id.slot()].places.push(Place { owner, weight, host });
        Some(owner)
    }

    /// The place for what an endpoint is only believed to hold, if it has one.
    pub fn speculative(&self, id: EndpointId) -> Option<Owner> {
        self.endpoints.get(id.slot()).filter(|entry| entry.serial == id.serial())?.speculative
    }

    /// As [`Self::speculative`]; makes the place, where its blocks count in full, if there is none.
    pub fn add_speculative(&mut self, id: EndpointId) -> Option<Owner> {
        if let Some(owner) = self.speculative(id) {
            return Some(owner);
        }
        let owner = self.add(id, 1.0, false)?;
        self.endpoints[id.slot()].speculative = Some(owner);
        Some(owner)
    }

    /// The name of an endpoint, or its slot while it has none.
    pub fn name(&self, id: EndpointId) -> String {
        let entry = self.endpoints.get(id.slot()).filter(|entry| entry.serial == id.serial());
        entry.and_then(|entry| entry.name.clone()).unwrap_or_else(|| format!("endpoint in slot {}", id.slot()))
    }

    /// Notes what an endpoint is called.
    pub fn set_name(&mut self, id: EndpointId, name: String) {
        if let Some(entry) = self.entry(id) {
            entry.name = Some(name);
        }
    }

    /// Forgets an endpoint; the index must forget the places that are returned, and then [`Self::release`] be called.
    pub fn forget(&mut self, id: EndpointId) -> Vec<Owner> {
        self.grow(id);
        let entry = &mut self.endpoints[id.slot()];
        entry.gone = entry.gone.max(id.serial());
        if entry.serial != id.serial() {
            return Vec::new();
        }
        entry.serial = 0;
        entry.name = None;
        entry.speculative = None;
        std::mem::take(&mut entry.places).iter().map(|place| place.owner).collect()
    }

    /// Gives slots back that the index has forgotten.
    pub fn release(&mut self, owners: &[Owner]) {
        self.free.extend(owners.iter().map(|owner| owner.slot));
    }

    fn entry(&mut self, id: EndpointId) -> Option<&mut Entry> {
        self.grow(id);
        let entry = &mut self.endpoints[id.slot()];
        if id.serial() <= entry.gone || (entry.serial != 0 && entry.serial != id.serial()) {
            return None;
        }
        entry.serial = id.serial();
        Some(entry)
    }

    fn grow(&mut self, id: EndpointId) {
        if self.endpoints.len() <= id.slot() {
            self.endpoints.resize_with(id.slot() + 1, Entry::default);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(slot: u32, serial: u32) -> EndpointId {
        EndpointId::new(slot, serial)
    }

    #[test]
    fn slots_are_dense_and_used_again_under_a_new_serial() {
        let mut places = Places::default();
        let [a, b] = [1.0, 0.5].map(|weight| places.add(id(7, 1), weight, false).unwrap());
        let c = places.add(id(0, 2), 1.0, true).unwrap();
        assert_eq!([a.slot, b.slot, c.slot], [0, 1, 2]);
        assert_eq!(places.of(id(7, 1)).iter().map(|p| (p.owner, p.weight)).collect::<Vec<_>>(), [(a, 1.0), (b, 0.5)]);
        let left = places.forget(id(7, 1));
        assert_eq!(left, [a, b]);
        let d = places.add(id(0, 2), 1.0, false).unwrap();
        assert_eq!(d.slot, 3, "a slot is not free before the index has forgotten it");
        places.release(&left);
        let e = places.add(id(7, 3), 1.0, false).unwrap();
        assert!(e.slot < 2 && e.serial > d.serial);
    }

    #[test]
    fn who_has_left_gets_no_place() {
        let mut places = Places::default();
        places.add(id(0, 1), 1.0, false).unwrap();
        assert_eq!(places.add(id(0, 2), 1.0, false), None, "the slot is still another's");
        places.forget(id(0, 1));
        assert!(places.is_gone(id(0, 1)) && !places.is_gone(id(0, 2)));
        assert_eq!(places.add(id(0, 1), 1.0, false), None);
        assert!(places.add(id(0, 2), 1.0, false).is_some());
        assert_eq!(places.forget(id(0, 1)), []);
        assert_eq!(places.of(id(0, 2)).len(), 1);
        places.forget(id(9, 5));
        assert_eq!(places.add(id(9, 5), 1.0, false), None);
    }

    #[test]
    fn an_endpoint_has_so_many_places_and_no_more() {
        let mut places = Places::default();
        let n = (0..100).filter(|_| places.add(id(0, 1), 1.0, false).is_some()).count();
        assert_eq!(n, MOST_OF_ONE);
    }

    #[test]
    fn there_is_one_place_for_what_is_only_believed() {
        let mut places = Places::default();
        let owner = places.add_speculative(id(0, 1)).unwrap();
        assert_eq!((places.add_speculative(id(0, 1)), places.speculative(id(0, 1))), (Some(owner), Some(owner)));
        assert_eq!(places.of(id(0, 1)).len(), 1);
        places.forget(id(0, 1));
        assert_eq!((places.speculative(id(0, 1)), places.add_speculative(id(0, 1))), (None, None));
    }

    #[test]
    fn an_endpoint_is_called_by_its_slot_until_its_name_is_known() {
        let mut places = Places::default();
        assert_eq!(places.name(id(3, 1)), "endpoint in slot 3");
        places.set_name(id(3, 1), "default/e3".into());
        assert_eq!(places.name(id(3, 1)), "default/e3");
        places.forget(id(3, 1));
        assert_eq!(places.name(id(3, 2)), "endpoint in slot 3");
    }
}
