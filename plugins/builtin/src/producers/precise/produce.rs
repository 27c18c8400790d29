//! What requests see of the index, and what it learns from picks.

use epp_plugin_api::{Attribute, Columns, Cycle, EndpointId, EndpointIdx, Picked, Producer, Snapshot};
use epp_prefix_index::Owner;
use epp_prefix_index::matches::Matches;
use tokio::time::Instant;

use super::Precise;
use super::extras::{self, Extra};
use super::places::Place;
use crate::attributes::{PrefixMatch, TokenizedPrompt};
use crate::producers::block_keys::{BlockKeys, MOST_PROMPTS};

/// So many blocks of one request count: a million tokens at the default size.
const MOST_BLOCKS: usize = 1 << 16;
/// Weights such as 0.8 are no binary fractions: their sums may fall short of a whole number by so much.
const ROUNDING: f64 = 1e-6;

/// The keys of one request's blocks, and what is made of them; from before the pick to after it.
#[derive(Clone, Debug, Default)]
pub struct Work {
    blocks: BlockKeys,
    extras: Vec<(u32, Extra)>,
    had_extras: bool,
    matches: Matches,
    /// By row, summed over the prompts.
    held: Vec<Held>,
    /// Places of one endpoint with what their blocks count.
    weighed: Vec<(Owner, f64)>,
}

impl Attribute for Work {
    const NAME: &'static str = "PrecisePrefixBlockKeys";
    const DEFAULT_PRODUCER: Option<&'static str> = None;
}

/// Leading blocks of a prompt that an endpoint holds.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    blocks: u32,
    weight: f64,
    /// Of them, leading ones in the host's memory.
    host: u32,
}

impl Held {
    fn add(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.weight += more.weight;
        self.host += more.host;
    }
}

impl Producer for Precise {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        self.end_beliefs(cx.now);
        let mut work = std::mem::take(columns.write_request(self.work));
        self.hash(cx, columns.read_request(self.prompt), &mut work);
        if !work.blocks.keys.is_empty() {
            let most = self.count(cx.snapshot, &mut work);
            self.write(columns.write(self.matches), &work);
            self.asked.note(&cx.request.target_model, work.had_extras, most > 0);
        }
        *columns.write_request(self.work) = work;
        Ok(())
    }

    fn has_cached(&self, columns: &Columns, idx: EndpointIdx) -> Option<bool> {
        columns.read(self.matches).map(|matches| matches[idx.row()].cached_blocks > 0)
    }

    fn cached_tokens(&self, columns: &Columns, idx: EndpointIdx) -> Option<u64> {
        columns.read(self.matches).map(|matches| matches[idx.row()].cached_tokens())
    }

    fn learn(&self, cx: &Cycle<'_>, columns: &Columns, picked: &Picked<'_>) {
        let (Some(_), Some(work)) = (&self.speculation, columns.read_request(self.work)) else { return };
        if work.blocks.keys.is_empty() {
            return;
        }
        for idx in picked.holders() {
            self.believe(cx.now, cx.snapshot.id(idx), work);
        }
        self.size.show(&self.index);
    }

    fn forget(&self, id: EndpointId) {
        let mut told = self.told.write();
        told.remove(&id);
        let owners = self.places.write().forget(id);
        drop(told);
        owners.iter().for_each(|&owner| self.index.forget(owner));
        self.places.write().release(&owners);
        self.size.show(&self.index);
    }
}

impl Precise {
    fn hash(&self, cx: &Cycle<'_>, prompt: Option<&TokenizedPrompt>, work: &mut Work) {
        work.blocks.clear();
        work.had_extras = false;
        let Some(prompt) = prompt else { return };
        let (parsed, block_tokens) = (&cx.request.parsed, self.chain.block_tokens());
        let root = self.chain.root(&cx.request.target_model);
        // Where there are several prompts nothing says to which of them media belong.
        let media = !parsed.features.is_empty() && prompt.prompts(cx.request).nth(1).is_none();
        for tokens in prompt.prompts(cx.request).take(MOST_PROMPTS) {
            let most = MOST_BLOCKS - work.blocks.keys.len();
            let blocks = self.chain.full_blocks(tokens.len()).min(most);
            if blocks == 0 {
                continue;
            }
            extras::of_request(parsed, media, block_tokens, blocks, &mut work.extras);
            work.had_extras |= !work.extras.is_empty();
            self.chain.extend(root, tokens, &work.extras, |extra| extra.text(parsed), blocks, &mut work.blocks.keys);
            work.blocks.end_prompt();
        }
    }

    /// Counts for every row; gives the most blocks of a prompt that any holds.
    fn count(&self, snapshot: &Snapshot, work: &mut Work) -> u32 {
        let Work { blocks, matches, held, weighed, .. } = work;
        held.clear();
        held.resize(snapshot.rows(), Held::default());
        let mut most_of_all = 0;
        for keys in blocks.prompts() {
            self.index.matches(keys, matches);
            let mut most = 0;
            if matches.longest() > 0 {
                let places = self.places.read();
                for (held, &id) in held.iter_mut().zip(snapshot.ids()) {
                    let more = self.held(keys, places.of(id), matches, weighed);
                    most = most.max(more.blocks);
                    held.add(more);
                }
            }
            if let Some(metrics) = &self.index_metrics {
                metrics.looked_up(most);
            }
            most_of_all = most_of_all.max(most);
        }
        most_of_all
    }

    /// What the places of one endpoint hold of a prompt.
    fn held(&self, keys: &[u64], places: &[Place], matches: &Matches, weighed: &mut Vec<(Owner, f64)>) -> Held {
        let leading = |place: &Place| matches.of(place.owner) as u32;
        if let [place] = places {
            let blocks = leading(place);
            let host = if place.host { blocks } else { 0 };
            return Held { blocks, weight: f64::from(blocks) * place.weight, host };
        }
        // Who holds no first block holds no prefix, whatever else there is.
        if places.iter().all(|place| leading(place) == 0) {
            return Held::default();
        }
        // A place that holds nothing leading may still hold what follows on another.
        let holding = |place: &&Place| leading(place) > 0 || self.index.blocks_of(place.owner) > 0;
        let together = |of: &dyn Fn(&&Place) -> bool, weighed: &mut Vec<(Owner, f64)>| {
            weighed.clear();
            weighed.extend(places.iter().filter(holding).filter(of).map(|place| (place.owner, place.weight)));
            match weighed.as_slice() {
                [] => (0, 0.0),
                [(owner, weight)] => {
                    let blocks = matches.of(*owner) as u32;
                    (blocks, f64::from(blocks) * weight)
                }
                several => {
                    let combined = self.index.combined(keys, several);
                    (combined.blocks, combined.weight)
                }
            }
        };
        let (blocks, weight) = together(&|_| true, weighed);
        let has_host = places.iter().any(|place| place.host);
        let host = if has_host { together(&|place| place.host, weighed).0 } else { 0 };
        Held { blocks, weight, host }
    }

    fn write(&self, column: &mut [PrefixMatch], work: &Work) {
        let (total, block_tokens) = (work.blocks.keys.len() as u32, self.chain.block_tokens() as u32);
        for (known, held) in column.iter_mut().zip(&work.held) {
            *known = PrefixMatch {
                match_blocks: (held.weight + ROUNDING) as u32,
                total_blocks: total,
                block_tokens,
                cached_blocks: held.blocks,
                host_blocks: Some(held.host),
            };
        }
    }

    /// Lets the endpoint count as holding the prompts for a while.
    fn believe(&self, now: Instant, id: EndpointId, work: &Work) {
        let Some(speculation) = &self.speculation else { return };
        let Some(owner) = self.speculative_place(id) else { return };
        for keys in work.blocks.prompts() {
            self.index.store_blocks(owner, &[], None, keys, keys);
        }
        speculation.believe(now, owner, &work.blocks.keys);
    }

    /// The place of what is only believed; made when it is first needed.
    fn speculative_place(&self, id: EndpointId) -> Option<Owner> {
        if let Some(owner) = self.places.read().speculative(id) {
            return Some(owner);
        }
        self.places.write().add_speculative(id)
    }

    fn end_beliefs(&self, now: Instant) {
        if let Some(speculation) = &self.speculation {
            while let Some(belief) = speculation.ended(now) {
                self.index.remove_blocks(belief.owner, &belief.keys);
            }
        }
    }
}
