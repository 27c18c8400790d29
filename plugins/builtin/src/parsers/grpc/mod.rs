//! What the parsers of gRPC share: the frames that messages come in, on the way to the engine and back.

pub mod wire;

use std::ops::Range;

/// One flag byte and four bytes of length.
const HEADER: usize = 5;
/// A longer message of a response is passed over.
const MAX_MESSAGE: usize = 8 << 20;

/// Finds the message in the first frame of a request's body.
///
/// # Errors
/// Says why there is none that can be read.
pub fn first_message(body: &[u8]) -> Result<Range<usize>, &'static str> {
    let Some((header, rest)) = body.split_first_chunk::<HEADER>() else {
        return Err("expected a frame of at least 5 bytes");
    };
    let (compressed, length) = read_header(*header);
    match usize::try_from(length) {
        _ if compressed => Err("expected a message that is not compressed"),
        Ok(length) if length <= rest.len() => Ok(HEADER..HEADER + length),
        Ok(_) | Err(_) => Err("expected as many bytes as the frame announces"),
    }
}

fn read_header(header: [u8; HEADER]) -> (bool, u32) {
    let [flag, length @ ..] = header;
    (flag != 0, u32::from_be_bytes(length))
}

/// Takes a response apart into its messages, however it is cut into chunks. Never keeps more than one message.
#[derive(Debug, Default)]
pub struct Frames {
    /// The frame's header and its message as far as they have come.
    partial: Vec<u8>,
    /// So many bytes of a message that is not read are still to come.
    skip: u64,
}

impl Frames {
    /// Takes the next bytes; hands on every message that is complete with them. Passes over messages that are compressed
    /// or too long.
    pub fn feed(&mut self, mut chunk: &[u8], mut message: impl FnMut(&[u8])) {
        loop {
            let skipped = chunk.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= skipped as u64;
            chunk = &chunk[skipped..];
            if self.skip > 0 || !self.take(&mut chunk, HEADER) {
                return;
            }
            let header = self.partial.first_chunk().copied().expect("a whole header has been taken");
            let (compressed, length) = read_header(header);
            let end = HEADER.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            if compressed || end > HEADER + MAX_MESSAGE {
                self.partial.clear();
                self.skip = u64::from(length);
                continue;
            }
            if !self.take(&mut chunk, end) {
                return;
            }
            message(&self.partial[HEADER..]);
            self.partial.clear();
        }
    }

    /// Moves bytes from the chunk until `wanted` are kept. Says whether they are.
    fn take(&mut self, chunk: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.partial.len());
        let (taken, rest) = chunk.split_at(missing.min(chunk.len()));
        self.partial.extend_from_slice(taken);
        *chunk = rest;
        self.partial.len() >= wanted
    }
}

#[cfg(test)]
pub mod testing;

#[cfg(test)]
mod tests;
