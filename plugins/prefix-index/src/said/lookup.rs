//! The walk that a lookup takes.

use crate::Owner;
use crate::matches::Matches;
use crate::outcome::Combined;
use crate::run::{ROOT, common};
use crate::said::Said;
use crate::said::run::Run;

impl Said {
    /// Walks the runs of a prompt: (run, blocks before it, how many of its blocks are the prompt's).
    fn way<'a>(&'a self, keys: &'a [u64]) -> impl Iterator<Item = (&'a Run, usize, usize)> {
        let (mut at, mut start) = (ROOT, 0);
        std::iter::from_fn(move || {
            let &first = keys.get(start)?;
            let id = self.children.find(at, first)?;
            let run = &self.runs[id];
            let (before, n) = (start, common(&run.keys, &keys[start..]));
            (at, start) = (id, if n < run.keys.len() { keys.len() } else { start + n });
            Some((run, before, n))
        })
    }

    /// Counts the leading blocks of a prompt at every place. Writes each place's count once, where its way ends.
    pub(crate) fn lookup(&self, keys: &[u64], matches: &mut Matches) {
        matches.reset(&self.serials);
        let mut alive = std::mem::take(&mut matches.alive);
        alive.clear();
        let mut end = 0;
        for (run, before, n) in self.way(keys) {
            if alive.is_empty() {
                alive.extend((0..self.lanes.len().div_ceil(64)).map(|index| run.set.word(index)));
            } else {
                for (index, alive) in alive.iter_mut().enumerate().filter(|(_, alive)| **alive != 0) {
                    let here = run.set.word(index);
                    put_word(matches, index, *alive & !here, before);
                    *alive &= here;
                }
            }
            for part in run.parts.iter().filter(|p| (p.lead as usize) < n) {
                let (word, bit) = (part.slot as usize / 64, 1 << (part.slot % 64));
                if alive[word] & bit != 0 {
                    alive[word] &= !bit;
                    matches.put(part.slot as usize, before + part.lead as usize);
                }
            }
            end = before + n;
            if alive.iter().all(|w| *w == 0) {
                break;
            }
        }
        alive.iter().enumerate().for_each(|(index, &word)| put_word(matches, index, word, end));
        matches.alive = alive;
    }

    /// As [`crate::PrefixIndex::combined`].
    pub(crate) fn combined(&self, keys: &[u64], places: &[(Owner, f64)]) -> Combined {
        let mut combined = Combined::default();
        for (run, _, n) in self.way(keys) {
            let mut at = 0;
            while at < n {
                // The stretch in which nothing changes at any of the places.
                let (mut weight, mut end) = (None, n);
                for &(place, w) in places.iter().filter(|(place, _)| self.lane(*place).is_some()) {
                    let (held, until) = stretch(run, place.slot as usize, at);
                    end = end.min(until);
                    if held {
                        weight = Some(weight.map_or(w, |best: f64| best.max(w)));
                    }
                }
                let Some(weight) = weight else { return combined };
                combined.blocks += (end - at) as u32;
                combined.weight += weight * (end - at) as f64;
                at = end;
            }
        }
        combined
    }
}

fn put_word(matches: &mut Matches, index: usize, word: u64, blocks: usize) {
    if word != 0 {
        matches.put_word(index, word, blocks);
    }
}

/// Whether the place holds the block of the run, and up to where that stays so.
fn stretch(run: &Run, slot: usize, at: usize) -> (bool, usize) {
    let len = run.keys.len();
    match run.part(slot) {
        Some(part) => part.stretch(at, len),
        None => (run.set.contains(slot), len),
    }
}
