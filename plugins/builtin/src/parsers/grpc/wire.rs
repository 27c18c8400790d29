//! Protobuf as it stands on the wire, field by field and without a copy. Never believes a length beyond the bytes that
//! are there.

use std::ops::Range;

/// Groups inside of groups are read to this depth.
const MAX_DEPTH: usize = 100;
const MAX_NUMBER: u64 = (1 << 29) - 1;

/// Why bytes are no message. Never holds anything of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {wanted} at byte {at}")]
pub struct Malformed {
    pub at: usize,
    pub wanted: &'static str,
}

/// The value of a field. Ranges are into the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Varint(u64),
    /// A string, bytes, a message, or numbers in a row.
    Bytes(Range<usize>),
    /// Of a type that nothing here reads.
    Other,
}

/// Goes through the fields of one message.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    body: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// Makes a reader for the message that stands at `message` in `body`; what lies outside of the body is not there.
    pub fn new(body: &'a [u8], message: Range<usize>) -> Self {
        let end = message.end.min(body.len());
        Self { body, at: message.start.min(end), end }
    }

    /// Hands every field's number and value to `each`.
    ///
    /// # Errors
    /// If the message is malformed or `each` finds that a part of it is.
    pub fn each(mut self, mut each: impl FnMut(u32, Value) -> Result<(), Malformed>) -> Result<(), Malformed> {
        while self.at < self.end {
            let (number, kind) = self.tag()?;
            let value = self.value(number, kind)?;
            each(number, value)?;
        }
        Ok(())
    }

    /// Hands every number of a packed list of varints to `each`.
    ///
    /// # Errors
    /// If one is malformed.
    pub fn each_varint(mut self, mut each: impl FnMut(u64)) -> Result<(), Malformed> {
        while self.at < self.end {
            each(self.varint()?);
        }
        Ok(())
    }

    fn fault<T>(&self, wanted: &'static str) -> Result<T, Malformed> {
        Err(Malformed { at: self.at, wanted })
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (i, &byte) in self.body[self.at..self.end].iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        self.fault("a number")
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let start = self.at;
        let tag = self.varint()?;
        match tag >> 3 {
            number @ 1..=MAX_NUMBER => Ok((number as u32, (tag & 7) as u8)),
            _ => Err(Malformed { at: start, wanted: "the number of a field" }),
        }
    }

    fn value(&mut self, number: u32, kind: u8) -> Result<Value, Malformed> {
        match kind {
            0 => self.varint().map(Value::Varint),
            1 => self.take(8).map(|_| Value::Other),
            2 => {
                let length = self.varint()?;
                self.take(length).map(Value::Bytes)
            }
            3 => self.skip_group(number).map(|()| Value::Other),
            5 => self.take(4).map(|_| Value::Other),
            _ => self.fault("the type of a field"),
        }
    }

    fn take(&mut self, length: u64) -> Result<Range<usize>, Malformed> {
        match usize::try_from(length) {
            Ok(length) if length <= self.end - self.at => {
                let start = self.at;
                self.at += length;
                Ok(start..self.at)
            }
            Ok(_) | Err(_) => self.fault("as many bytes as a field announces"),
        }
    }

    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&last) = open.last() {
            match self.tag()? {
                (number, 4) if number == last => drop(open.pop()),
                (_, 4) => return self.fault("the end of the group that is open"),
                (number, 3) if open.len() < MAX_DEPTH => open.push(number),
                (_, 3) => return self.fault("fewer groups inside of one another"),
                (number, kind) => drop(self.value(number, kind)?),
            }
        }
        Ok(())
    }
}

/// Reads a string.
///
/// # Errors
/// If it is no UTF-8.
pub fn text<'a>(body: &'a [u8], at: &Range<usize>) -> Result<&'a str, Malformed> {
    let bytes = body.get(at.clone()).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|fault| Malformed { at: at.start + fault.valid_up_to(), wanted: "UTF-8" })
}
