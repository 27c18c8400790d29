//! A JSON scanner over one contiguous body: builds no tree, copies nothing, and knows where everything stands.
//!
//! Lenient where clients rely on it: invalid UTF-8 and lone surrogates pass, and of a repeated key the caller sees every
//! value. Strict in its grammar: no trailing comma, no trailing text, no NaN, no raw control character in a string.

pub mod ids;
pub mod number;
pub mod skip;
pub mod text;

use std::fmt;
use std::ops::Range;

use text::Text;

/// Where the grammar is broken and what stood to reason there. Holds nothing of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte of the body, from 0.
    pub at: usize,
    pub wanted: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} at byte {}", self.wanted, self.at)
    }
}

/// What the next value is, told by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// A value whose type the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field<T> {
    Is(T),
    /// `null`: leaves the default.
    Null,
    /// Of another type; skipped.
    Wrong,
}

/// Stands at one place of a body and moves on value by value.
#[derive(Debug)]
pub struct Scanner<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of the body.
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }

    /// The byte at which the scanner stands.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Moves over white space. Returns the byte at which the next value starts.
    pub fn start(&mut self) -> usize {
        self.next();
        self.at
    }

    /// The body that is read.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Says what the next value is, without reading it.
    ///
    /// # Errors
    /// If no value begins here.
    pub fn kind(&mut self) -> Result<Kind, Fault> {
        match self.next() {
            Some(b'"') => Ok(Kind::String),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => Err(self.fault("a value")),
        }
    }

    /// Reads a string.
    ///
    /// # Errors
    /// If the grammar is broken or no string begins here.
    pub fn string(&mut self) -> Result<Text, Fault> {
        if self.next() != Some(b'"') {
            return Err(self.fault("a string"));
        }
        let start = self.at + 1;
        let (end, escaped) = text::end(self.body, start)?;
        self.at = end + 1;
        Ok(Text { at: start..end, escaped })
    }

    /// Reads a string, if there is one.
    ///
    /// # Errors
    /// If the grammar is broken.
    pub fn text(&mut self) -> Result<Field<Text>, Fault> {
        match self.kind()? {
            Kind::String => self.string().map(Field::Is),
            other => self.other(other),
        }
    }

    /// Reads a boolean, if there is one.
    ///
    /// # Errors
    /// If the grammar is broken.
    pub fn boolean(&mut self) -> Result<Field<bool>, Fault> {
        match self.kind()? {
            Kind::Bool => {
                let value = self.body[self.at] == b't';
                self.literal(if value { b"true" } else { b"false" })?;
                Ok(Field::Is(value))
            }
            other => self.other(other),
        }
    }

    /// Reads a non-negative whole number, if there is one; `3.0` is one.
    ///
    /// # Errors
    /// If the grammar is broken.
    pub fn whole(&mut self) -> Result<Field<u64>, Fault> {
        match self.kind()? {
            Kind::Number => {
                let at = self.number()?;
                Ok(number::whole(&self.body[at]).map_or(Field::Wrong, Field::Is))
            }
            other => self.other(other),
        }
    }

    /// Visits the entry of this name of an object, if there is one, and skips the others. `visit` must read its value.
    ///
    /// # Errors
    /// If the grammar is broken, or what `visit` returns.
    pub fn entry(
        &mut self,
        name: &str,
        mut visit: impl FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<Field<()>, Fault> {
        self.object(|s, key| if key.is(name) { visit(s) } else { s.skip().map(drop) })
    }

    /// Visits the entries of an object, if there is one. `visit` must read the value of each.
    ///
    /// # Errors
    /// If the grammar is broken, or what `visit` returns.
    pub fn object(
        &mut self,
        mut visit: impl FnMut(&mut Self, Key<'a>) -> Result<(), Fault>,
    ) -> Result<Field<()>, Fault> {
        match self.kind()? {
            Kind::Object => {}
            other => return self.other(other),
        }
        self.at += 1;
        if self.next() == Some(b'}') {
            self.at += 1;
            return Ok(Field::Is(()));
        }
        loop {
            let key = self.key()?;
            visit(self, key)?;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.fault("a comma or the end of the object")),
            }
        }
        self.at += 1;
        Ok(Field::Is(()))
    }

    /// Visits the elements of an array, if there is one. `visit` must read each. Returns their number.
    ///
    /// # Errors
    /// If the grammar is broken, or what `visit` returns.
    pub fn array(
        &mut self,
        mut visit: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<Field<usize>, Fault> {
        match self.kind()? {
            Kind::Array => {}
            other => return self.other(other),
        }
        self.at += 1;
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(Field::Is(0));
        }
        let mut n = 0;
        loop {
            visit(self, n)?;
            n += 1;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.fault("a comma or the end of the array")),
            }
        }
        self.at += 1;
        Ok(Field::Is(n))
    }

    /// Says what the first element of the array here is; `None` if it is empty, broken or no array.
    pub fn first_kind(&mut self) -> Option<Kind> {
        if self.next() != Some(b'[') {
            return None;
        }
        let start = self.at;
        self.at += 1;
        let kind = self.kind().ok();
        self.at = start;
        kind
    }

    /// Checks that nothing but white space follows.
    ///
    /// # Errors
    /// If something does.
    pub fn end(&mut self) -> Result<(), Fault> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(self.fault("nothing after the value")),
        }
    }

    /// Moves over white space and returns the byte there, without reading it.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.body.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn key(&mut self) -> Result<Key<'a>, Fault> {
        if self.next() != Some(b'"') {
            return Err(self.fault("a key"));
        }
        let Text { at, escaped } = self.string()?;
        if self.next() != Some(b':') {
            return Err(self.fault("a colon"));
        }
        self.at += 1;
        Ok(Key { raw: &self.body[at], escaped })
    }

    fn other<T>(&mut self, kind: Kind) -> Result<Field<T>, Fault> {
        self.skip()?;
        Ok(if kind == Kind::Null { Field::Null } else { Field::Wrong })
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), Fault> {
        if !self.body[self.at..].starts_with(word) {
            return Err(self.fault("a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a number and returns where it stands.
    fn number(&mut self) -> Result<Range<usize>, Fault> {
        let start = self.at;
        self.at = number::end(self.body, start)?;
        Ok(start..self.at)
    }

    fn fault(&self, wanted: &'static str) -> Fault {
        Fault { at: self.at, wanted }
    }
}

/// A key of an object as it stands in the body.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Key<'a> {
    /// Whether it is this word, letter by letter.
    pub fn is(&self, word: &str) -> bool {
        text::says(self.raw, self.escaped, word, <[u8]>::eq)
    }

    /// Whether it is this word in any case.
    pub fn folds_to(&self, word: &str) -> bool {
        text::says(self.raw, self.escaped, word, <[u8]>::eq_ignore_ascii_case)
    }

    /// The key as it stands in the body.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }
}

#[cfg(test)]
mod tests;
