//! A store of things under small numbers that grows by a chunk at a time, so that no growth moves all there is.

use std::ops::{Index, IndexMut};

const CHUNK: usize = 1024;

/// Things by number. A freed number is given again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Makes an empty one.
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new() }
    }

    /// Keeps a thing and gives its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = thing;
            return id;
        }
        if self.chunks.last().is_none_or(|c| c.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let n_before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("a chunk with room was just made sure of");
        chunk.push(thing);
        u32::try_from(n_before + chunk.len() - 1).expect("the byte limit keeps the number of runs far below 2^32")
    }

    /// Takes a thing out; its number will be given again.
    pub(crate) fn remove(&mut self, id: u32) -> T {
        self.free.push(id);
        std::mem::take(&mut self[id])
    }

    /// How many things there are.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum::<usize>() - self.free.len()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_freed_numbers_again() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..3000u32).map(|n| slab.insert(n)).collect();
        assert!(ids.iter().enumerate().all(|(n, &id)| slab[id] as usize == n));
        assert_eq!(slab.remove(ids[1500]), 1500);
        assert_eq!(slab.len(), 2999);
        assert_eq!(slab.insert(9), ids[1500]);
        assert_eq!(slab[ids[1500]], 9);
        assert_eq!(slab.len(), 3000);
    }
}
