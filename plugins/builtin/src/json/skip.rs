//! Passing over a value of any kind without recursion, however deep it nests.

use std::ops::Range;

use super::{Fault, Kind, Scanner};

/// A body that nests deeper is refused.
const MAX_DEPTH: usize = 10_000;

/// Which of the open brackets are braces: a bit each, the innermost last. Allocates only below a depth of 64.
#[derive(Default)]
struct Nest {
    depth: usize,
    bits: u64,
    outer: Vec<u64>,
}

impl Nest {
    fn push(&mut self, object: bool) {
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.bits);
        }
        self.bits = self.bits << 1 | u64::from(object);
        self.depth += 1;
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.bits = self.outer.pop().unwrap_or_default();
        }
    }

    fn in_object(&self) -> bool {
        self.bits & 1 == 1
    }
}

impl Scanner<'_> {
    /// Reads a value of any kind and returns where it stands.
    ///
    /// # Errors
    /// If the grammar is broken, or the value nests too deep.
    pub fn skip(&mut self) -> Result<Range<usize>, Fault> {
        let kind = self.kind()?;
        let start = self.at;
        self.scalar_or_open(kind)?;
        if matches!(kind, Kind::Array | Kind::Object) {
            self.close(kind == Kind::Object)?;
        }
        Ok(start..self.at)
    }

    /// Reads a scalar, or the bracket that opens a list or an object.
    fn scalar_or_open(&mut self, kind: Kind) -> Result<(), Fault> {
        match kind {
            Kind::String => self.string().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::Null => self.literal(b"null"),
            Kind::Bool => self.literal(if self.body[self.at] == b't' { b"true" } else { b"false" }),
            Kind::Array | Kind::Object => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// Reads up to the end of the list or object whose bracket was just read.
    fn close(&mut self, object: bool) -> Result<(), Fault> {
        let mut nest = Nest::default();
        nest.push(object);
        let mut first = true;
        while nest.depth > 0 {
            let closing = if nest.in_object() { b'}' } else { b']' };
            match self.next() {
                Some(b) if b == closing => {
                    self.at += 1;
                    nest.pop();
                    first = false;
                    continue;
                }
                Some(b',') if !first => self.at += 1,
                _ if first => {}
                _ => return Err(self.fault("a comma or a closing bracket")),
            }
            if nest.in_object() {
                self.key()?;
            }
            let kind = self.kind()?;
            self.scalar_or_open(kind)?;
            first = matches!(kind, Kind::Array | Kind::Object);
            if first {
                if nest.depth == MAX_DEPTH {
                    return Err(self.fault("less nesting"));
                }
                nest.push(kind == Kind::Object);
            }
        }
        Ok(())
    }
}
