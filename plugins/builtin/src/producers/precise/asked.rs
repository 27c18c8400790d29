//! What requests asked for so far, as far as it helps to say why nothing is found.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

/// More models than this are not told apart, and none is called unknown then.
const MOST_MODELS: usize = 64;
/// A longer name is nobody's model.
const LONGEST_NAME: usize = 256;
/// Before so many requests nothing is concluded.
const ENOUGH: u64 = 32;

/// Requests so far.
#[derive(Debug, Default)]
pub struct Asked {
    requests: AtomicU64,
    found_any: AtomicBool,
    had_extras: AtomicBool,
    models: RwLock<Vec<String>>,
}

impl Asked {
    /// Notes a request that had a full block.
    pub fn note(&self, model: &str, extras: bool, found: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if found && !self.found_any.load(Ordering::Relaxed) {
            self.found_any.store(true, Ordering::Relaxed);
        }
        if extras && !self.had_extras.load(Ordering::Relaxed) {
            self.had_extras.store(true, Ordering::Relaxed);
        }
        let is_new = |models: &Vec<String>| models.len() < MOST_MODELS && !models.iter().any(|known| known == model);
        if is_new(&self.models.read()) && model.len() <= LONGEST_NAME {
            let mut models = self.models.write();
            if is_new(&models) {
                models.push(model.to_owned());
            }
        }
    }

    /// A model that requests asked for, if they were many, found nothing at all, and none was for this model.
    pub fn instead_of(&self, model: &str) -> Option<String> {
        if self.requests.load(Ordering::Relaxed) < ENOUGH || self.found_any.load(Ordering::Relaxed) {
            return None;
        }
        let models = self.models.read();
        let known = models.len() >= MOST_MODELS || models.iter().any(|known| known == model);
        if known { None } else { models.first().cloned() }
    }

    /// Whether there were many requests and none had media or a salt.
    pub fn never_had_extras(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= ENOUGH && !self.had_extras.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_concluded_from_few_requests_or_after_a_hit() {
        let asked = Asked::default();
        for _ in 0..ENOUGH - 1 {
            asked.note("base", false, false);
        }
        assert_eq!((asked.instead_of("served"), asked.never_had_extras()), (None, false));
        asked.note("base", false, false);
        assert_eq!((asked.instead_of("served"), asked.never_had_extras()), (Some("base".into()), true));
        assert_eq!(asked.instead_of("base"), None);
        asked.note("base", true, true);
        assert_eq!((asked.instead_of("served"), asked.never_had_extras()), (None, false));
    }

    #[test]
    fn very_many_models_are_not_told_apart() {
        let asked = Asked::default();
        for n in 0..1000 {
            asked.note(&format!("m{n}"), false, false);
        }
        assert_eq!(asked.instead_of("served"), None);
        assert_eq!(asked.models.read().len(), MOST_MODELS);
    }
}
