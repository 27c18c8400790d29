//! Token ids: a loop that takes an array of numbers straight to little-endian bytes.

use super::{Fault, Field, Kind, Scanner, number};

/// Why an element is no token id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadId {
    /// A number, but negative, fractional or over 32 bits.
    Value,
    /// `null`.
    Null,
    /// Neither a number nor `null`.
    Type,
}

/// What an array of ids held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Elements, the bad ones included.
    pub n: usize,
    /// The first element that is none, by its index.
    pub bad: Option<(usize, BadId)>,
}

impl Scanner<'_> {
    /// Reads an array of token ids, if there is an array, and appends each as four bytes. What is no id is skipped and
    /// leaves four zero bytes.
    ///
    /// # Errors
    /// If the grammar is broken.
    pub fn ids(&mut self, out: &mut Vec<u8>) -> Result<Field<Ids>, Fault> {
        match self.kind()? {
            Kind::Array => {}
            other => return self.other(other),
        }
        self.at += 1;
        let mut ids = Ids { n: 0, bad: None };
        if self.next() == Some(b']') {
            self.at += 1;
            return Ok(Field::Is(ids));
        }
        loop {
            let id = match self.plain_id() {
                Some(id) => Ok(id),
                None => self.any_id()?,
            };
            out.extend_from_slice(&id.unwrap_or_default().to_le_bytes());
            if let Err(why) = id {
                ids.bad.get_or_insert((ids.n, why));
            }
            ids.n += 1;
            match self.next() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.fault("a comma or the end of the array")),
            }
        }
        self.at += 1;
        Ok(Field::Is(ids))
    }

    /// Reads an id of one to seven plain digits, as nearly all are, eight bytes at once. Moves on only if it is one.
    fn plain_id(&mut self) -> Option<u32> {
        if self.body.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        let word = u64::from_le_bytes(*self.body.get(self.at..)?.first_chunk::<8>()?) ^ 0x3030_3030_3030_3030;
        let others = (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080;
        let n_digits = others.trailing_zeros() / 8;
        if n_digits == 0 || n_digits == 8 || (n_digits > 1 && word & 0xff == 0) {
            return None;
        }
        // Anything but a comma, a bracket or a blank may go on with the number.
        if !matches!(self.body[self.at + n_digits as usize], b',' | b']' | b' ') {
            return None;
        }
        let digits = word << (64 - 8 * n_digits);
        let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
        let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
        let odd = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
        self.at += n_digits as usize;
        Some((even.wrapping_add(odd) >> 32) as u32)
    }

    /// Reads an element of any kind.
    fn any_id(&mut self) -> Result<Result<u32, BadId>, Fault> {
        let kind = self.kind()?;
        let at = self.skip()?;
        Ok(match kind {
            Kind::Number => {
                let value = number::whole(&self.body[at]).and_then(|value| u32::try_from(value).ok());
                value.ok_or(BadId::Value)
            }
            Kind::Null => Err(BadId::Null),
            Kind::Bool | Kind::String | Kind::Array | Kind::Object => Err(BadId::Type),
        })
    }
}
