//! Remembers the tokens of prompts, within bounds; what was used longest ago is forgotten first.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;

use super::config::Cache as Bounds;
use super::rendered::Rendered;

/// What a question is known by: a hash of all that the answer depends on.
pub type Key = u128;

/// The prompts that are remembered.
pub struct Prompts {
    most: usize,
    most_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_key: HashMap<Key, Entry>,
    /// Keys by when they were last used.
    by_use: BTreeMap<u64, Key>,
    n_uses: u64,
    bytes: usize,
}

struct Entry {
    rendered: Arc<Rendered>,
    used: u64,
}

impl Prompts {
    /// Remembers nothing yet.
    pub fn new(bounds: Bounds) -> Self {
        let most_bytes = bounds.max_megabytes.saturating_mul(1 << 20);
        Self { most: bounds.max_prompts, most_bytes, kept: Mutex::default() }
    }

    /// The prompt of this key, if it is remembered.
    pub fn find(&self, key: Key) -> Option<Arc<Rendered>> {
        self.kept.lock().touch(key)
    }

    /// Remembers a prompt, unless it alone is too large.
    pub fn insert(&self, key: Key, rendered: Arc<Rendered>) {
        let bytes = rendered.bytes();
        if self.most == 0 || bytes > self.most_bytes {
            return;
        }
        let mut kept = self.kept.lock();
        kept.forget(key);
        while kept.by_key.len() >= self.most || kept.bytes + bytes > self.most_bytes {
            let Some((_, &oldest)) = kept.by_use.first_key_value() else { break };
            kept.forget(oldest);
        }
        kept.bytes += bytes;
        kept.by_key.insert(key, Entry { rendered, used: 0 });
        kept.touch(key);
    }
}

impl Kept {
    fn touch(&mut self, key: Key) -> Option<Arc<Rendered>> {
        let entry = self.by_key.get_mut(&key)?;
        self.by_use.remove(&entry.used);
        self.n_uses += 1;
        entry.used = self.n_uses;
        self.by_use.insert(self.n_uses, key);
        Some(entry.rendered.clone())
    }

    fn forget(&mut self, key: Key) {
        let Some(entry) = self.by_key.remove(&key) else { return };
        self.by_use.remove(&entry.used);
        self.bytes -= entry.rendered.bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(tokens: usize) -> Arc<Rendered> {
        let mut rendered = Rendered::default();
        rendered.push(|into| into.resize(4 * tokens, 1));
        Arc::new(rendered)
    }

    fn known(prompts: &Prompts, keys: std::ops::Range<u128>) -> Vec<u128> {
        keys.filter(|key| prompts.kept.lock().by_key.contains_key(key)).collect()
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten_first() {
        let prompts = Prompts::new(Bounds { max_prompts: 3, max_megabytes: 1 });
        (0..3).for_each(|key| prompts.insert(key, rendered(1)));
        assert!(prompts.find(0).is_some());
        prompts.insert(3, rendered(1));
        assert_eq!(known(&prompts, 0..4), [0, 2, 3]);
        assert!(prompts.find(1).is_none());
    }

    #[test]
    fn keeps_no_more_bytes_than_it_may() {
        let prompts = Prompts::new(Bounds { max_prompts: 100, max_megabytes: 1 });
        (0..10).for_each(|key| prompts.insert(key, rendered(50_000)));
        assert_eq!(known(&prompts, 0..10), [5, 6, 7, 8, 9]);
        assert!(prompts.kept.lock().bytes <= 1 << 20);
        // One that is too large alone takes the place of none.
        prompts.insert(10, rendered(1 << 20));
        assert_eq!(known(&prompts, 0..11), [5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_key_that_comes_again_counts_once() {
        let prompts = Prompts::new(Bounds { max_prompts: 2, max_megabytes: 1 });
        (0..9).for_each(|_| prompts.insert(7, rendered(10)));
        let kept = prompts.kept.lock();
        assert_eq!((kept.by_key.len(), kept.by_use.len(), kept.bytes), (1, 1, rendered(10).bytes()));
    }

    #[test]
    fn remembers_nothing_if_told_so() {
        for (max_prompts, max_megabytes) in [(0, 64), (1024, 0)] {
            let prompts = Prompts::new(Bounds { max_prompts, max_megabytes });
            prompts.insert(1, rendered(1));
            assert!(prompts.find(1).is_none());
        }
    }
}
