//! What engines say of their KV caches: a message is decoded whole, or not at all.
//!
//! A batch is an array of a time, a list of events and, often, a rank. An event is an array that begins with its name, or
//! a map that names its members; what is not known there is left out. Everything is decoded into one [`Batch`], whose
//! memory is used again, before anything is made of it, so that an event that cannot be read costs its batch and no more.

use super::msgpack::{Malformed, Reader};

/// A longer message is refused. Engines send some kilobytes.
const MOST_BYTES: usize = 16 << 20;
/// What is kept of a batch's memory, each list, once a larger batch is done with.
const KEPT: usize = 1 << 16;

/// Whose form events have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Arrays or maps, with cache groups; what follows the known fields of an array is left out.
    Vllm,
    /// Arrays of a known length.
    Sglang,
}

/// Why a message is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("expected a message of at most {MOST_BYTES} bytes, found {0}")]
    TooLarge(usize),
    #[error("expected a batch of a time and a list of events, found an array of {0}")]
    ShortBatch(usize),
    #[error("expected {name} with at least {least} fields, found {found}")]
    TooFew { name: &'static str, least: usize, found: usize },
    #[error("expected {name} with at most {most} fields, found {found}")]
    TooMany { name: &'static str, most: usize, found: usize },
    #[error("expected BlockStored, BlockRemoved or AllBlocksCleared, found another kind of event")]
    UnknownEvent,
    #[error("expected the member {0}, found none")]
    Missing(&'static str),
}

/// A part of one of the lists of a [`Batch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// From `start` to where a list ends now. A message is short enough for 32 bits.
    fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// How many items are in it.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    fn of<T>(self, list: &[T]) -> &[T] {
        &list[self.start as usize..self.end as usize]
    }
}

/// One thing that happened in an engine's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Stored(Stored),
    Removed(Removed),
    Cleared,
}

/// Blocks have come into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    hashes: Span,
    /// The hash of the block before the first.
    pub parent: Option<u64>,
    tokens: Span,
    /// Tokens of one of the engine's blocks; 0 and less if it does not say.
    pub block_tokens: i64,
    tier: Span,
    lora: Span,
    extras: Span,
    pub group: Option<u32>,
    kind: Span,
}

/// Blocks have left the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    hashes: Span,
    tier: Span,
    pub group: Option<u32>,
}

/// The events of one message, and the lists that they point into.
#[derive(Debug, Default)]
pub struct Batch {
    events: Vec<Event>,
    hashes: Vec<u64>,
    /// Four bytes a token, little endian.
    tokens: Vec<u8>,
    text: String,
    /// Parts of `text`.
    extra_texts: Vec<Span>,
    /// Parts of `extra_texts`, one a block of the engine.
    extra_blocks: Vec<Span>,
}

impl Batch {
    /// Reads a message in the place of the one before.
    ///
    /// # Errors
    /// If any of it cannot be read; the batch is empty then.
    pub fn decode(&mut self, dialect: Dialect, payload: &[u8]) -> Result<(), Undecodable> {
        self.clear();
        let read = self.read(dialect, payload);
        if read.is_err() {
            self.clear();
        }
        read
    }

    /// Forgets the message, and what memory an unusual one took.
    pub fn clear(&mut self) {
        self.events.clear();
        self.hashes.clear();
        self.tokens.clear();
        self.text.clear();
        self.extra_texts.clear();
        self.extra_blocks.clear();
        self.events.shrink_to(KEPT);
        self.hashes.shrink_to(KEPT);
        self.tokens.shrink_to(16 * KEPT);
        self.text.shrink_to(KEPT);
        self.extra_texts.shrink_to(KEPT);
        self.extra_blocks.shrink_to(KEPT);
    }

    /// What happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The blocks that have come.
    pub fn stored_hashes(&self, event: &Stored) -> &[u64] {
        event.hashes.of(&self.hashes)
    }

    /// The blocks that have left.
    pub fn removed_hashes(&self, event: &Removed) -> &[u64] {
        event.hashes.of(&self.hashes)
    }

    /// The tokens of the blocks, four bytes each, little endian.
    pub fn tokens(&self, event: &Stored) -> &[u8] {
        event.tokens.of(&self.tokens)
    }

    /// Where the blocks are, as the engine writes it; empty if it does not say.
    pub fn stored_tier(&self, event: &Stored) -> &str {
        self.text(event.tier)
    }

    /// Where the blocks were, as the engine writes it; empty if it does not say.
    pub fn removed_tier(&self, event: &Removed) -> &str {
        self.text(event.tier)
    }

    /// The adapter's name; empty if there is none.
    pub fn lora(&self, event: &Stored) -> &str {
        self.text(event.lora)
    }

    /// What kind of cache the group is; empty if it is not said.
    pub fn kind(&self, event: &Stored) -> &str {
        self.text(event.kind)
    }

    /// What the blocks of the engine stand for beside their tokens, block by block; empty if none stands for anything.
    /// The texts are read with [`Self::text`].
    pub fn extras(&self, event: &Stored) -> impl ExactSizeIterator<Item = &[Span]> {
        event.extras.of(&self.extra_blocks).iter().map(|block| block.of(&self.extra_texts))
    }

    /// A text.
    pub fn text(&self, at: Span) -> &str {
        &self.text[at.start as usize..at.end as usize]
    }

    fn read(&mut self, dialect: Dialect, payload: &[u8]) -> Result<(), Undecodable> {
        if payload.len() > MOST_BYTES {
            return Err(Undecodable::TooLarge(payload.len()));
        }
        let mut reader = Reader::new(payload);
        let fields = reader.array("a batch of events")?;
        if fields < 2 {
            return Err(Undecodable::ShortBatch(fields));
        }
        reader.skip()?;
        for _ in 0..reader.array("a list of events")? {
            let event = self.event(dialect, &mut reader)?;
            self.events.push(event);
        }
        (2..fields).try_for_each(|_| reader.skip())?;
        Ok(())
    }

    fn event(&mut self, dialect: Dialect, reader: &mut Reader<'_>) -> Result<Event, Undecodable> {
        if dialect == Dialect::Vllm && reader.is_map() {
            return self.named(reader);
        }
        let n = reader.array("an event")?;
        if n == 0 {
            return Err(Undecodable::Missing("type"));
        }
        let form = match reader.text("the name of an event")? {
            "BlockStored" => &STORED,
            "BlockRemoved" => &REMOVED,
            "AllBlocksCleared" => {
                (1..n).try_for_each(|_| reader.skip())?;
                return Ok(Event::Cleared);
            }
            _ => return Err(Undecodable::UnknownEvent),
        };
        form.check(dialect, n)?;
        let mut told = Told::default();
        for at in 1..n {
            match form.members.get(at - 1) {
                Some(&member) => self.member(member, reader, &mut told)?,
                None => reader.skip()?,
            }
        }
        (form.event)(told)
    }

    /// An event as a map. Its name may stand anywhere.
    fn named(&mut self, reader: &mut Reader<'_>) -> Result<Event, Undecodable> {
        let (mut name, mut told) = (None, Told::default());
        for _ in 0..reader.map("an event")? {
            if !reader.is_text() {
                reader.skip()?;
                reader.skip()?;
                continue;
            }
            match reader.text("the name of a member")? {
                "type" => name = Some(reader.text("the name of an event")?),
                key => match Member::named(key) {
                    Some(member) => self.member(member, reader, &mut told)?,
                    None => reader.skip()?,
                },
            }
        }
        match name {
            Some("BlockStored") => told.stored(),
            Some("BlockRemoved") => told.removed(),
            Some("AllBlocksCleared") => Ok(Event::Cleared),
            Some(_) => Err(Undecodable::UnknownEvent),
            None => Err(Undecodable::Missing("type")),
        }
    }

    fn member(&mut self, member: Member, reader: &mut Reader<'_>, told: &mut Told) -> Result<(), Undecodable> {
        if member == Member::LoraId {
            return Ok(reader.skip()?);
        }
        if reader.null() {
            return Ok(());
        }
        match member {
            Member::Hashes => {
                let start = self.hashes.len();
                for _ in 0..reader.array("a list of block hashes")? {
                    self.hashes.push(reader.hash("a block hash")?);
                }
                told.hashes = Some(Span::new(start, self.hashes.len()));
            }
            // 0 stands for no parent.
            Member::Parent => told.stored.parent = Some(reader.hash("the hash of the parent")?).filter(|&h| h != 0),
            Member::Tokens => told.stored.tokens = self.token_ids(reader)?,
            Member::BlockTokens => {
                let n = reader.integer("a block size")?;
                told.stored.block_tokens = i64::try_from(n).unwrap_or(i64::MAX);
            }
            Member::Tier => told.stored.tier = self.put(reader.text("the name of a medium")?),
            Member::Lora => told.stored.lora = self.put(reader.text("the name of an adapter")?),
            Member::Extras => told.stored.extras = self.extra_keys(reader)?,
            Member::Group => {
                let (what, found) = ("the index of a group", "a number outside of 0 to 2^32 - 1");
                let group = u32::try_from(reader.integer(what)?);
                told.stored.group = Some(group.map_err(|_| Malformed::Unexpected { what, found })?);
            }
            Member::Kind => told.stored.kind = self.put(reader.text("a kind of cache")?),
            Member::Window => drop(reader.integer("the size of a window")?),
            Member::LoraId => {}
        }
        Ok(())
    }

    fn token_ids(&mut self, reader: &mut Reader<'_>) -> Result<Span, Malformed> {
        let start = self.tokens.len();
        let n = reader.array("a list of token ids")?;
        // Not more than four times the bytes that are there.
        self.tokens.resize(start + n * 4, 0);
        for place in self.tokens[start..].as_chunks_mut().0 {
            *place = reader.token("a token id")?.to_le_bytes();
        }
        Ok(Span::new(start, self.tokens.len()))
    }

    /// A list a block. Of what is in one, texts count, and arrays that begin with a text.
    fn extra_keys(&mut self, reader: &mut Reader<'_>) -> Result<Span, Malformed> {
        let (first_block, first_text) = (self.extra_blocks.len(), self.extra_texts.len());
        for _ in 0..reader.array("a list of extra keys")? {
            let start = self.extra_texts.len();
            let n = if reader.null() { 0 } else { reader.array("the extra keys of a block")? };
            for _ in 0..n {
                self.extra_key(reader)?;
            }
            self.extra_blocks.push(Span::new(start, self.extra_texts.len()));
        }
        if self.extra_texts.len() == first_text {
            self.extra_blocks.truncate(first_block);
        }
        Ok(Span::new(first_block, self.extra_blocks.len()))
    }

    fn extra_key(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        const WHAT: &str = "an extra key";
        if !reader.is_array() && !reader.is_text() {
            return reader.skip();
        }
        let n = if reader.is_array() { reader.array(WHAT)? } else { 1 };
        for at in 0..n {
            if at == 0 && reader.is_text() {
                let text = self.put(reader.text(WHAT)?);
                self.extra_texts.push(text);
            } else {
                reader.skip()?;
            }
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> Span {
        let start = self.text.len();
        self.text.push_str(text);
        Span::new(start, self.text.len())
    }
}

/// What an event may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Hashes,
    Parent,
    Tokens,
    BlockTokens,
    LoraId,
    Tier,
    Lora,
    Extras,
    Group,
    Kind,
    Window,
}

/// An event as an array.
struct Form {
    name: &'static str,
    /// What stands where, after the name.
    members: &'static [Member],
    /// Fields that must be there, with the name.
    least: usize,
    /// Fields that SGLang may send, with the name.
    most: usize,
    event: fn(Told) -> Result<Event, Undecodable>,
}

const STORED: Form = Form {
    name: "BlockStored",
    members: &[
        Member::Hashes,
        Member::Parent,
        Member::Tokens,
        Member::BlockTokens,
        Member::LoraId,
        Member::Tier,
        Member::Lora,
        Member::Extras,
        Member::Group,
        Member::Kind,
        Member::Window,
    ],
    least: 5,
    most: 9,
    event: Told::stored,
};

const REMOVED: Form = Form {
    name: "BlockRemoved",
    members: &[Member::Hashes, Member::Tier, Member::Group],
    least: 2,
    most: 3,
    event: Told::removed,
};

impl Form {
    fn check(&self, dialect: Dialect, found: usize) -> Result<(), Undecodable> {
        let (name, least, most) = (self.name, self.least, self.most);
        if found < least {
            Err(Undecodable::TooFew { name, least, found })
        } else if dialect == Dialect::Sglang && found > most {
            Err(Undecodable::TooMany { name, most, found })
        } else {
            Ok(())
        }
    }
}

impl Member {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "block_hashes" => Self::Hashes,
            "parent_block_hash" => Self::Parent,
            "token_ids" => Self::Tokens,
            "block_size" => Self::BlockTokens,
            "lora_id" => Self::LoraId,
            "medium" => Self::Tier,
            "lora_name" => Self::Lora,
            "extra_keys" => Self::Extras,
            "group_idx" => Self::Group,
            "kv_cache_spec_kind" => Self::Kind,
            "kv_cache_spec_sliding_window" => Self::Window,
            _ => return None,
        })
    }
}

/// What an event has said so far.
#[derive(Debug, Default)]
struct Told {
    hashes: Option<Span>,
    stored: Stored,
}

impl Told {
    fn stored(self) -> Result<Event, Undecodable> {
        let hashes = self.hashes.ok_or(Undecodable::Missing("block_hashes"))?;
        Ok(Event::Stored(Stored { hashes, ..self.stored }))
    }

    fn removed(self) -> Result<Event, Undecodable> {
        let hashes = self.hashes.ok_or(Undecodable::Missing("block_hashes"))?;
        Ok(Event::Removed(Removed { hashes, tier: self.stored.tier, group: self.stored.group }))
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
