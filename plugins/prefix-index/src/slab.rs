//! A store of things under small numbers that grows by a chunk at a time, so that no growth moves all there is, and gives
//! a chunk back once nothing is left in it.

use std::ops::{Index, IndexMut};

const CHUNK: usize = 1024;

#[derive(Debug, Default)]
struct Chunk<T> {
    things: Vec<T>,
    /// Freed places within `things`.
    free: Vec<u16>,
}

/// Things by number. A freed number is given again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks that have room, in no order.
    open: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Makes an empty one.
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new(), open: Vec::new() }
    }

    /// Keeps a thing and gives its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        let at = match self.open.last() {
            Some(&at) => at,
            None => {
                let at = u32::try_from(self.chunks.len()).expect("the byte limit keeps the number far below 2^32");
                self.chunks.push(Chunk { things: Vec::new(), free: Vec::new() });
                self.open.push(at);
                at
            }
        };
        let chunk = &mut self.chunks[at as usize];
        let place = match chunk.free.pop() {
            Some(place) => {
                chunk.things[usize::from(place)] = thing;
                usize::from(place)
            }
            None => {
                if chunk.things.is_empty() {
                    chunk.things.reserve_exact(CHUNK);
                }
                chunk.things.push(thing);
                chunk.things.len() - 1
            }
        };
        if chunk.free.is_empty() && chunk.things.len() == CHUNK {
            self.open.pop();
        }
        u32::try_from(at as usize * CHUNK + place).expect("the byte limit keeps the number far below 2^32")
    }

    /// Takes a thing out; its number will be given again.
    pub(crate) fn remove(&mut self, id: u32) -> T {
        let thing = std::mem::take(&mut self[id]);
        let (at, place) = (id as usize / CHUNK, id as usize % CHUNK);
        let chunk = &mut self.chunks[at];
        if chunk.free.is_empty() && chunk.things.len() == CHUNK {
            self.open.push(at as u32);
        }
        chunk.free.push(place as u16);
        if chunk.free.len() == chunk.things.len() {
            *chunk = Chunk { things: Vec::new(), free: Vec::new() };
        }
        thing
    }

    /// The thing, if the number was ever given; a freed one gives nothing or the default.
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.chunks.get(id as usize / CHUNK)?.things.get(id as usize % CHUNK)
    }

    /// How many things there are.
    #[cfg(any(test, feature = "model"))]
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|c| c.things.len() - c.free.len()).sum()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK].things[id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK].things[id as usize % CHUNK]
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

    #[test]
    fn gives_a_chunk_back_once_it_is_empty() {
        let mut slab = Slab::new();
        let ids: Vec<u32> = (0..3000u32).map(|n| slab.insert(n)).collect();
        ids[..2048].iter().for_each(|&id| {
            slab.remove(id);
        });
        assert_eq!(slab.chunks.iter().map(|c| c.things.capacity()).collect::<Vec<_>>(), [0, 0, CHUNK]);
        let again: Vec<u32> = (0..2100u32).map(|n| slab.insert(n)).collect();
        assert!(again.iter().enumerate().all(|(n, &id)| slab[id] as usize == n));
        assert_eq!((slab.len(), slab.chunks.len()), (3052, 3));
    }
}
