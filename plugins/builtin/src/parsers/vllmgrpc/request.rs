//! The requests of vLLM's engine service.

use std::ops::Range;

use epp_plugin_api::{Parsed, Piece};

use super::super::grpc::wire::{Fields, Malformed, Value, text};

/// So many features are kept.
const MAX_FEATURES: usize = 1 << 16;

/// What the engine is to go on from; of several the last one counts.
#[derive(Default)]
enum Input {
    #[default]
    None,
    Tokenized,
    Text(Range<usize>),
}

/// Reads a `GenerateRequest`; `None` if it has no input.
pub fn generate(body: &[u8], message: Range<usize>) -> Result<Option<Parsed>, Malformed> {
    let mut parsed = Parsed::default();
    let mut input = Input::default();
    let mut features = Features::default();
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Bytes(at)) => drop(text(body, &at)?),
            (2, Value::Bytes(at)) => {
                if !matches!(input, Input::Tokenized) {
                    parsed.ids.clear();
                    input = Input::Tokenized;
                }
                tokenized(body, at, &mut parsed.ids)?;
            }
            (3, Value::Bytes(at)) => {
                text(body, &at)?;
                input = Input::Text(at);
            }
            (4, Value::Bytes(at)) => sampling(body, at, &mut parsed.max_output_tokens)?,
            (5, Value::Varint(on)) => parsed.stream = on != 0,
            (7, Value::Bytes(at)) => features.read(body, at)?,
            _ => {}
        }
        Ok(())
    })?;
    match input {
        Input::None => return Ok(None),
        Input::Text(at) => {
            parsed.ids.clear();
            parsed.pieces.push(Piece::Raw { at });
        }
        Input::Tokenized => {
            parsed.pieces.push(Piece::Ids { at: 0..parsed.ids.len() / 4 });
            parsed.features = features.paired();
        }
    }
    Ok(Some(parsed))
}

/// Reads an `EmbedRequest`; `None` if it has no tokens.
pub fn embed(body: &[u8], message: Range<usize>) -> Result<Option<Parsed>, Malformed> {
    let mut parsed = Parsed::default();
    let mut given = false;
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Bytes(at)) => drop(text(body, &at)?),
            (2, Value::Bytes(at)) => {
                given = true;
                tokenized(body, at, &mut parsed.ids)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    parsed.pieces.push(Piece::Ids { at: 0..parsed.ids.len() / 4 });
    Ok(given.then_some(parsed))
}

fn tokenized(body: &[u8], message: Range<usize>, ids: &mut Vec<u8>) -> Result<(), Malformed> {
    // An id has 32 bits, and what is beyond them is dropped, as every reader of this format does.
    let mut push = |id: u64| ids.extend_from_slice(&(id as u32).to_le_bytes());
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Bytes(at)) => drop(text(body, &at)?),
            (2, Value::Bytes(packed)) => Fields::new(body, packed).each_varint(&mut push)?,
            (2, Value::Varint(id)) => push(id),
            _ => {}
        }
        Ok(())
    })
}

fn sampling(body: &[u8], message: Range<usize>, cap: &mut Option<u64>) -> Result<(), Malformed> {
    Fields::new(body, message).each(|number, value| {
        if let (8, Value::Varint(n)) = (number, value) {
            *cap = Some(u64::from(n as u32));
        }
        Ok(())
    })
}

/// Multimodal features: the hash of each and the place of its tokens.
#[derive(Default)]
struct Features {
    places: Vec<(usize, usize)>,
    hashes: Vec<String>,
}

impl Features {
    fn read(&mut self, body: &[u8], message: Range<usize>) -> Result<(), Malformed> {
        Fields::new(body, message).each(|number, value| {
            match (number, value) {
                (5, Value::Bytes(at)) => {
                    let place = place(body, at)?;
                    if self.places.len() < MAX_FEATURES {
                        self.places.push(place);
                    }
                }
                (6, Value::Bytes(at)) => {
                    let hash = text(body, &at)?;
                    if self.hashes.len() < MAX_FEATURES {
                        self.hashes.push(hash.to_owned());
                    }
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Pairs hashes and places by index, sorted by offset. A place without a hash has an empty one.
    fn paired(self) -> Vec<(String, usize, usize)> {
        let hashes = self.hashes.into_iter().chain(std::iter::repeat_with(String::new));
        let mut features: Vec<_> = hashes.zip(self.places).map(|(hash, (offset, n))| (hash, offset, n)).collect();
        features.sort_by_key(|&(_, offset, _)| offset);
        features
    }
}

fn place(body: &[u8], message: Range<usize>) -> Result<(usize, usize), Malformed> {
    let mut place = (0, 0);
    Fields::new(body, message).each(|number, value| {
        match (number, value) {
            (1, Value::Varint(n)) => place.0 = n as u32 as usize,
            (2, Value::Varint(n)) => place.1 = n as u32 as usize,
            _ => {}
        }
        Ok(())
    })?;
    Ok(place)
}
