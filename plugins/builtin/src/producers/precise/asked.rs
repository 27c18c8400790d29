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
    had_extras: AtomicBool,
    models: RwLock<Vec<Model>>,
}

#[derive(Debug, Default)]
struct Model {
    name: String,
    requests: AtomicU64,
    /// Whether one of them found a block somewhere.
    found: AtomicBool,
}

impl Asked {
    /// Notes a request that had a full block.
    pub fn note(&self, model: &str, extras: bool, found: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if extras && !self.had_extras.load(Ordering::Relaxed) {
            self.had_extras.store(true, Ordering::Relaxed);
        }
        if !self.note_model(model, found) && model.len() <= LONGEST_NAME {
            let mut models = self.models.write();
            if models.len() < MOST_MODELS && !models.iter().any(|known| known.name == model) {
                let (requests, found) = (AtomicU64::new(1), AtomicBool::new(found));
                models.push(Model { name: model.to_owned(), requests, found });
            }
        }
    }

    /// Whether the model is known, or there are too many to know it.
    fn note_model(&self, model: &str, found: bool) -> bool {
        let models = self.models.read();
        let Some(known) = models.iter().find(|known| known.name == model) else { return models.len() >= MOST_MODELS };
        known.requests.fetch_add(1, Ordering::Relaxed);
        if found && !known.found.load(Ordering::Relaxed) {
            known.found.store(true, Ordering::Relaxed);
        }
        true
    }

    /// A model that many requests asked for and never found a block of, if none asked for this one.
    pub fn instead_of(&self, model: &str) -> Option<String> {
        if self.requests.load(Ordering::Relaxed) < ENOUGH {
            return None;
        }
        let models = self.models.read();
        if models.len() >= MOST_MODELS || models.iter().any(|known| known.name == model) {
            return None;
        }
        let in_vain = |m: &&Model| m.requests.load(Ordering::Relaxed) >= ENOUGH && !m.found.load(Ordering::Relaxed);
        models.iter().find(in_vain).map(|m| m.name.clone())
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
    fn hits_of_one_model_do_not_speak_for_another() {
        let asked = Asked::default();
        for _ in 0..ENOUGH {
            asked.note("good", false, true);
            asked.note("bad", false, false);
        }
        assert_eq!(asked.instead_of("served"), Some("bad".into()));
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
