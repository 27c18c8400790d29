//! Takes in what engines say of their caches.
//!
//! Blocks get the keys that a request's blocks would get: they follow the block that the engine names as their parent, or
//! begin a prompt of the model. What cannot be placed is counted and left out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epp_plugin_api::{EndpointId, EndpointName, KvSink};
use epp_prefix_index::Owner;
use epp_prefix_index::outcome::StoredBlocks;
use parking_lot::Mutex;

use super::events::{Batch, Event, Removed, Span, Stored};
use super::metrics::{Dropped, Skipped};
use super::mismatch::Cause;
use super::told::{GroupKind, Told};
use super::{Precise, extras};

/// Before so many events or messages of a kind nothing is concluded from them.
const ENOUGH: u64 = 32;
/// So many messages that cannot be read, and no other, make an endpoint undecodable.
const UNDECODABLE: u64 = 8;

/// After so many stores only every so manieth is looked at for hashes that are used again, as that may take a look at
/// every endpoint.
const CLOSE_LOOKS: u64 = 64;
/// Keys that a desk has room for once a larger message is done with.
const KEPT: usize = 1 << 16;

/// What a message is worked on with; kept from message to message.
#[derive(Debug, Default)]
pub struct Desk {
    batch: Batch,
    keys: Vec<u64>,
    extras: Vec<(u32, Span)>,
}

/// Desks that nobody sits at, as many as messages were ever worked on at once.
#[derive(Debug, Default)]
pub struct Desks(Mutex<Vec<Desk>>);

impl Desks {
    fn with<T>(&self, work: impl FnOnce(&mut Desk) -> T) -> T {
        let mut desk = self.0.lock().pop().unwrap_or_default();
        let done = work(&mut desk);
        desk.batch.clear();
        desk.keys.clear();
        desk.keys.shrink_to(KEPT);
        self.0.lock().push(desk);
        done
    }
}

/// Which models are told of, as a hash of the first one's name; whether there are several.
#[derive(Debug, Default)]
pub struct ModelsTold(AtomicU64);

impl ModelsTold {
    const SEVERAL: u64 = u64::MAX;

    fn note(&self, root: u64) {
        let root = root.clamp(1, Self::SEVERAL - 1);
        let known = self.0.compare_exchange(0, root, Ordering::Relaxed, Ordering::Relaxed);
        if known.is_err_and(|known| known != root) {
            self.0.store(Self::SEVERAL, Ordering::Relaxed);
        }
    }

    fn is_one(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::SEVERAL
    }
}

/// Blocks on their way into the index.
struct Incoming<'a> {
    from: EndpointId,
    batch: &'a Batch,
    event: &'a Stored,
    model: &'a str,
}

impl KvSink for Precise {
    fn begins(&self, from: EndpointId, name: &EndpointName) {
        self.places.write().set_name(from, name.to_string());
    }

    fn message(&self, from: EndpointId, topic: &[u8], payload: &[u8]) {
        let Some(told) = self.told(from) else { return };
        let mut told = told.lock();
        told.counts.messages += 1;
        self.desks.with(|desk| {
            let Desk { batch, keys, extras } = desk;
            if let Err(e) = batch.decode(self.dialect, payload) {
                self.discard(from, &mut told, e.to_string());
                return;
            }
            for event in batch.events() {
                match event {
                    Event::Stored(event) => {
                        let lora = batch.lora(event);
                        let model = if lora.is_empty() { model_of(topic) } else { lora };
                        self.stored(&mut told, &Incoming { from, batch, event, model }, keys, extras);
                    }
                    Event::Removed(event) => self.removed(&mut told, batch, event),
                    Event::Cleared => {
                        told.counts.cleared += 1;
                        self.clear(from);
                    }
                }
            }
        });
        self.size.show(&self.index);
    }

    fn lost(&self, from: EndpointId) {
        if let Some(told) = self.told(from) {
            let mut told = told.lock();
            told.counts.lost += 1;
            told.owners().iter().for_each(|&owner| self.index.clear(owner));
            self.size.show(&self.index);
        }
    }
}

impl Precise {
    /// What the endpoint told so far; `None` if it has left.
    fn told(&self, from: EndpointId) -> Option<Arc<Mutex<Told>>> {
        if let Some(told) = self.told.read().get(&from) {
            return Some(told.clone());
        }
        // Under this lock the endpoint cannot leave.
        let mut all = self.told.write();
        if self.places.read().is_gone(from) {
            return None;
        }
        Some(all.entry(from).or_default().clone())
    }

    /// Empties every place of the endpoint, also what was only believed.
    fn clear(&self, from: EndpointId) {
        let owners: Vec<Owner> = self.places.read().of(from).iter().map(|place| place.owner).collect();
        owners.into_iter().for_each(|owner| self.index.clear(owner));
    }

    fn discard(&self, from: EndpointId, told: &mut Told, why: String) {
        told.counts.discarded += 1;
        self.metrics.discarded();
        if told.counts.discarded == told.counts.messages && told.counts.discarded >= UNDECODABLE {
            let detail =
                || format!("none of {UNDECODABLE} messages could be read: {why}; is kvEventsConfig.engineType right?");
            told.mismatches.found(&self.teller, Cause::Undecodable, || self.name(from), detail);
        }
        told.last_discarded = Some(why);
    }

    fn stored(&self, told: &mut Told, it: &Incoming<'_>, keys: &mut Vec<u64>, extras: &mut Vec<(u32, Span)>) {
        told.counts.stored += 1;
        told.add_model(it.model);
        if self.skips(told, it) {
            return;
        }
        match self.take_in(told, it, keys, extras) {
            Ok(new_blocks) => {
                if let Some(metrics) = &self.index_metrics {
                    metrics.admitted(new_blocks);
                }
            }
            Err(why) => {
                told.counts.unknown_parents += u64::from(why == Dropped::UnknownParent);
                self.metrics.dropped(why);
            }
        }
        self.look_for_mismatches(told, it);
    }

    /// Whether the blocks are of a cache group that is of no use; counts it then.
    fn skips(&self, told: &mut Told, it: &Incoming<'_>) -> bool {
        let Some(group) = it.event.group else { return false };
        let kind = told.group(group, it.batch.kind(it.event));
        let label = kind.map_or(GroupKind::UNKNOWN, GroupKind::label);
        let (tokens, size) = (it.batch.tokens(it.event).len() as i64 / 4, it.event.block_tokens);
        let hashes = it.batch.stored_hashes(it.event).len() as i64;
        let why = if !kind.is_some_and(GroupKind::keeps_prefixes) {
            Skipped::UnsupportedKind
        } else if tokens > 0 && size <= 0 {
            Skipped::InvalidBlockSize
        } else if tokens > 0 && size.checked_mul(hashes) != Some(tokens) {
            Skipped::NonDenseSpan
        } else {
            return false;
        };
        self.metrics.store_skipped(label, why);
        true
    }

    /// Puts the blocks into the index; says how many the place did not hold before.
    fn take_in(
        &self,
        told: &mut Told,
        it: &Incoming<'_>,
        keys: &mut Vec<u64>,
        extras: &mut Vec<(u32, Span)>,
    ) -> Result<usize, Dropped> {
        let (tokens, hashes) = (it.batch.tokens(it.event), it.batch.stored_hashes(it.event));
        if tokens.is_empty() {
            let place = self.place(told, it)?;
            let known = self.index.store_known(place, told.owners(), hashes);
            return if known > 0 { Ok(known) } else { Err(Dropped::UnknownBlocks) };
        }
        // Where the block before is not known, the blocks cannot be told from those of another prompt.
        let parent = match it.event.parent {
            None => {
                let root = self.chain.root(it.model);
                self.models_told.note(root);
                root
            }
            Some(hash) => self.index.key_of(hash, told.owners()).ok_or(Dropped::UnknownParent)?,
        };
        let blocks = self.chain.full_blocks(tokens.len());
        if blocks == 0 {
            return Err(Dropped::ShortOfABlock);
        }
        self.extras_of(it, blocks, extras);
        told.counts.with_extras += u64::from(!extras.is_empty());
        keys.clear();
        self.chain.extend(parent, tokens, extras, |at| it.batch.text(at), blocks, keys);
        self.look_for_reused_hash(told, it, keys);
        let place = self.place(told, it)?;
        self.store(place, told.owners(), it.event.parent, hashes, keys)
    }

    fn store(
        &self,
        place: Owner,
        near: &[Owner],
        parent: Option<u64>,
        hashes: &[u64],
        keys: &[u64],
    ) -> Result<usize, Dropped> {
        match self.index.store_blocks(place, near, parent, hashes, keys) {
            StoredBlocks::Stored { new_blocks } => Ok(new_blocks),
            StoredBlocks::UnknownParent => Err(Dropped::UnknownParent),
            StoredBlocks::Refused => Err(Dropped::Refused),
        }
    }

    /// The extras of the engine's blocks, for blocks of ours. Engines list an adapter's name first among them, which is
    /// the model already.
    fn extras_of(&self, it: &Incoming<'_>, blocks: usize, extras: &mut Vec<(u32, Span)>) {
        let lora = it.batch.lora(it.event);
        let without_lora = |block: &'_ [Span]| -> usize {
            usize::from(!lora.is_empty() && block.first().is_some_and(|&at| it.batch.text(at) == lora))
        };
        let engine = it.batch.extras(it.event).map(|block| &block[without_lora(block)..]);
        extras::fitted(engine, blocks, |at| it.batch.text(at), extras);
    }

    /// The place that the blocks come to; made when it is first named.
    fn place(&self, told: &mut Told, it: &Incoming<'_>) -> Result<Owner, Dropped> {
        let (tier, group) = (it.batch.stored_tier(it.event), it.event.group);
        if let Some(owner) = told.place(tier, group) {
            return Ok(owner);
        }
        let (weight, host) = self.tier(tier);
        let owner = self.places.write().add(it.from, weight, host).ok_or(Dropped::Refused)?;
        told.add_place(tier, group, owner);
        Ok(owner)
    }

    fn removed(&self, told: &mut Told, batch: &Batch, event: &Removed) {
        told.counts.removed += 1;
        if let Some(group) = event.group {
            match told.group(group, "") {
                None => return self.metrics.removal_skipped(GroupKind::UNKNOWN, Skipped::UnknownGroup),
                Some(kind) if !kind.keeps_prefixes() => {
                    return self.metrics.removal_skipped(kind.label(), Skipped::UnsupportedKind);
                }
                Some(_) => {}
            }
        }
        let hashes = batch.removed_hashes(event);
        match told.place(batch.removed_tier(event), event.group) {
            // Nothing was ever stored there.
            None => self.metrics.removed(hashes.len(), 0),
            Some(place) => {
                let removed = self.index.remove_blocks(place, hashes);
                self.metrics.removed(removed.forwarded, removed.suppressed);
                if let Some(metrics) = &self.index_metrics {
                    metrics.evicted(removed.blocks);
                }
            }
        }
    }

    fn look_for_mismatches(&self, told: &mut Told, it: &Incoming<'_>) {
        let name = || self.name(it.from);
        let (ours, theirs) = (self.chain.block_tokens() as i64, it.event.block_tokens);
        if theirs > 0 && ours % theirs != 0 && theirs % ours != 0 {
            let detail = || {
                format!(
                    "the engine's blocks hold {theirs} tokens, those of the picker {ours}: neither divides the other; \
                     set tokenProcessorConfig.blockSizeTokens to {theirs}"
                )
            };
            told.mismatches.found(&self.teller, Cause::BlockSize, name, detail);
        }
        if !told.mismatches.has(Cause::Model)
            && let Some(asked) = self.asked.instead_of(it.model)
        {
            let detail = || {
                format!(
                    "events are of the model {:?}, requests ask for {asked:?} and find nothing; name the model alike in \
                     the engine's topic, kv@NAME@MODEL, and in requests",
                    it.model
                )
            };
            told.mismatches.found(&self.teller, Cause::Model, name, detail);
        }
        let counts = told.counts;
        if counts.unknown_parents >= ENOUGH && counts.unknown_parents * 2 > counts.stored {
            let detail = || {
                format!(
                    "{} of {} stores follow blocks that are not known: the picker joined in the middle or lost \
                     messages; set podDiscoveryConfig.replaySocketPort, if the engine has such a port",
                    counts.unknown_parents, counts.stored
                )
            };
            told.mismatches.found(&self.teller, Cause::UnknownParents, name, detail);
        }
        if counts.with_extras >= ENOUGH && self.asked.never_had_extras() {
            let detail =
                || "blocks have extra keys, such as hashes of media or a cache salt, and no request has any".into();
            told.mismatches.found(&self.teller, Cause::Extras, name, detail);
        }
    }

    /// Looks at the last of the blocks only, which stands for all.
    fn look_for_reused_hash(&self, told: &mut Told, it: &Incoming<'_>, keys: &[u64]) {
        let hashes = it.batch.stored_hashes(it.event);
        let n = told.counts.stored;
        if n > CLOSE_LOOKS && !n.is_multiple_of(CLOSE_LOOKS) {
            return;
        }
        // Blocks of other sizes, and engines that name one model differently, give one hash several keys.
        if hashes.len() != keys.len() || !self.models_told.is_one() || told.mismatches.has(Cause::ReusedHash) {
            return;
        }
        let (Some(&hash), Some(&key)) = (hashes.last(), keys.last()) else { return };
        if self.index.key_of(hash, told.owners()).is_some_and(|known| known != key) {
            let detail = || {
                "a block hash came with other tokens than before: engines with different hash seeds, or a hash that is \
                 used again; give all engines one PYTHONHASHSEED"
                    .into()
            };
            told.mismatches.found(&self.teller, Cause::ReusedHash, || self.name(it.from), detail);
        }
    }

    fn name(&self, id: EndpointId) -> String {
        self.places.read().name(id)
    }
}

/// The model of a topic `kv@ENDPOINT@MODEL`; empty if it has another form.
fn model_of(topic: &[u8]) -> &str {
    let mut parts = topic.split(|&byte| byte == b'@');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(_), Some(model), None) => std::str::from_utf8(model).unwrap_or_default(),
        _ => "",
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
