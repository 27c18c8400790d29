//! Reading usage off responses: the two ways in which one arrives, and counts.

pub mod events;
pub mod whole;

use epp_plugin_api::{ResponseParser, Usage};

use crate::json::{Fault, Field, Kind, Scanner};

/// Reads a count, which some engines write as a string; what is none reads as absent.
pub fn count(s: &mut Scanner<'_>) -> Result<Option<u64>, Fault> {
    if s.kind()? == Kind::String {
        let text = s.string()?;
        return Ok(text.read(s.body()).parse().ok());
    }
    number(s)
}

/// Reads a count that must be a number; what is none reads as absent.
pub fn number(s: &mut Scanner<'_>) -> Result<Option<u64>, Fault> {
    Ok(match s.whole()? {
        Field::Is(n) => Some(n),
        Field::Null | Field::Wrong => None,
    })
}

/// Reads a response that is of no interest.
#[derive(Debug)]
pub struct Unread;

impl ResponseParser for Unread {
    fn feed(&mut self, _chunk: &[u8]) -> Option<Usage> {
        None
    }

    fn finish(&mut self) -> Option<Usage> {
        None
    }
}
