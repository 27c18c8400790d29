//! LoRA adapters of an engine, in a shape in which a name is looked for in many engines quickly.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// LoRA adapters of an engine, as its newest series shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    pub running: Names,
    pub waiting: Names,
    /// How many adapters the engine can hold at once.
    pub most: u32,
}

/// A few names, each once, in their order. Their hashes lie side by side, so that a look-up reads no text but that of a
/// hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    hashes: Box<[u64]>,
    names: Box<[String]>,
}

impl Names {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names, lowest first.
    pub fn iter(&self) -> std::slice::Iter<'_, String> {
        self.names.iter()
    }

    /// Whether this is one of the names.
    pub fn contains(&self, name: &Name<'_>) -> bool {
        let mut hits = self.hashes.iter().zip(&self.names).filter(|(hash, _)| **hash == name.hash);
        hits.any(|(_, known)| known == name.text)
    }
}

impl FromIterator<String> for Names {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self { hashes: names.iter().map(|name| hash(name)).collect(), names: names.into() }
    }
}

/// A name to look for, hashed once.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    text: &'a str,
    hash: u64,
}

impl<'a> Name<'a> {
    /// Makes a name ready to be looked for.
    pub fn new(text: &'a str) -> Self {
        Self { text, hash: hash(text) }
    }
}

fn hash(name: &str) -> u64 {
    FixedState::default().hash_one(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_there_once_in_order_and_are_found() {
        let names: Names = ["b", "a", "b", ""].into_iter().map(str::to_owned).collect();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["", "a", "b"]);
        for (name, expected) in [("a", true), ("b", true), ("", true), ("A", false), ("ab", false)] {
            assert_eq!(names.contains(&Name::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn an_equal_hash_is_no_equal_name() {
        let names: Names = ["a".to_owned()].into_iter().collect();
        assert!(!names.contains(&Name { text: "b", ..Name::new("a") }));
    }
}
