//! Strings: where one ends, at many bytes a step, and what its escapes mean.

use std::ops::Range;

use super::Fault;

/// The inside of a string, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub at: Range<usize>,
    /// It holds a backslash.
    pub escaped: bool,
}

impl Text {
    /// Whether it says this word.
    pub fn is(&self, body: &[u8], word: &str) -> bool {
        says(&body[self.at.clone()], self.escaped, word, <[u8]>::eq)
    }

    /// What it says; what is no UTF-8 becomes U+FFFD.
    pub fn read(&self, body: &[u8]) -> String {
        let raw = &body[self.at.clone()];
        match self.escaped {
            false => String::from_utf8_lossy(raw).into_owned(),
            true => String::from_utf8_lossy(&unescaped(raw)).into_owned(),
        }
    }
}

/// Whether the inside of a string says this word, as `equal` understands it.
pub(super) fn says(raw: &[u8], escaped: bool, word: &str, equal: fn(&[u8], &[u8]) -> bool) -> bool {
    match escaped {
        false => equal(raw, word.as_bytes()),
        // No escape of a letter takes more than six bytes, so that a long text need not be unescaped to know.
        true => raw.len() <= 6 * word.len() && equal(&unescaped(raw), word.as_bytes()),
    }
}

/// Finds the closing quote of the string whose inside starts at `start`. Says whether there were escapes.
pub(super) fn end(body: &[u8], start: usize) -> Result<(usize, bool), Fault> {
    let mut at = start;
    let mut escaped = false;
    loop {
        at = plain_end(body, at);
        match body.get(at) {
            Some(b'"') => return Ok((at, escaped)),
            Some(b'\\') => {
                escaped = true;
                at = escape_end(body, at)?;
            }
            Some(_) => return Err(Fault { at, wanted: "no control character in a string" }),
            None => return Err(Fault { at, wanted: "the end of the string" }),
        }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes that are quotes, backslashes or control characters. Exact up to the first mark.
fn marks(word: u64) -> u64 {
    let zero = |w: u64| w.wrapping_sub(ONES) & !w;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\'))) | control) & HIGHS
}

/// The first byte from `at` on that is not plain text, or the end of the body.
fn plain_end(body: &[u8], mut at: usize) -> usize {
    let stops = |b: u8| b == b'"' || b == b'\\' || b < 0x20;
    for _ in 0..4 {
        let Some(chunk) = body.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let found = marks(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    // Long text: blocks without a stop are passed over with vector instructions, which the compiler makes of this.
    while let Some(block) = body.get(at..).and_then(|rest| rest.first_chunk::<64>()) {
        if block.iter().fold(0, |any, &b| any | u8::from(stops(b))) != 0 {
            break;
        }
        at += 64;
    }
    while let Some(chunk) = body.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = marks(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + body[at..].iter().position(|&b| stops(b)).unwrap_or(body.len() - at)
}

/// The byte after the escape that starts at `at`.
fn escape_end(body: &[u8], at: usize) -> Result<usize, Fault> {
    match body.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if hex4(body, at + 2).is_some() => Ok(at + 6),
        _ => Err(Fault { at, wanted: "an escape" }),
    }
}

/// Reads four hexadecimal digits.
fn hex4(body: &[u8], at: usize) -> Option<u16> {
    let digits = body.get(at..at + 4)?;
    digits.iter().try_fold(0, |value, &b| Some(value << 4 | (b as char).to_digit(16)? as u16))
}

/// What the inside of a string says, as a new buffer.
pub fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    unescape(raw, &mut out);
    out
}

/// Appends what the inside of a string says. A lone surrogate becomes U+FFFD, and so does a broken escape; bytes that are
/// no UTF-8 stay.
pub fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        let (ch, len) = escape(&rest[at..]);
        out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[at + len..];
    }
    out.extend_from_slice(rest);
}

/// The character of the escape that `rest` starts with, and how many bytes it takes.
fn escape(rest: &[u8]) -> (char, usize) {
    let ch = match rest.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode(rest),
        Some(&b @ (b'"' | b'\\' | b'/')) => b as char,
        Some(_) => char::REPLACEMENT_CHARACTER,
        None => return (char::REPLACEMENT_CHARACTER, 1),
    };
    (ch, 2)
}

fn unicode(rest: &[u8]) -> (char, usize) {
    let Some(high) = hex4(rest, 2) else { return (char::REPLACEMENT_CHARACTER, 2) };
    if let Some(ch) = char::from_u32(u32::from(high)) {
        return (ch, 6);
    }
    let low = if rest[6..].starts_with(b"\\u") { hex4(rest, 8) } else { None };
    match low.and_then(|low| char::decode_utf16([high, low]).next()) {
        Some(Ok(ch)) => (ch, 12),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}
