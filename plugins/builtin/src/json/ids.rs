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
            ids.n += self.plain_ids(out);
            let id = self.any_id()?;
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

    /// Reads ids as long as each is of one to seven digits with a comma right behind it, as nearly all are, and stops
    /// before an element that it leaves to others. Returns how many it read.
    fn plain_ids(&mut self, out: &mut Vec<u8>) -> usize {
        let body = self.body;
        let mut at = self.at;
        let mut n = 0;
        let mut batch = [[0; 4]; 256];
        let mut filled = 0;
        while let Some(chunk) = body.get(at..).and_then(|rest| rest.first_chunk::<9>()) {
            let blank = usize::from(chunk[0] == b' ');
            let word = match blank {
                0 => u64::from_le_bytes(*chunk.first_chunk().expect("nine bytes hold eight")),
                _ => u64::from_le_bytes(*chunk.last_chunk().expect("nine bytes hold eight")),
            };
            let Some((id, n_digits)) = plain_id(word) else { break };
            at += blank + n_digits + 1;
            batch[filled] = id.to_le_bytes();
            filled += 1;
            if filled == batch.len() {
                out.extend_from_slice(batch.as_flattened());
                n += filled;
                filled = 0;
            }
        }
        out.extend_from_slice(batch[..filled].as_flattened());
        self.at = at;
        n + filled
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

const ONES: u64 = 0x0101_0101_0101_0101;

/// The number that these eight bytes of text begin with and how many digits it has, if a comma follows the digits.
fn plain_id(text: u64) -> Option<(u32, usize)> {
    let word = text ^ (ONES * u64::from(b'0'));
    // The highest bit of each byte that is over 9; exact up to the first.
    let others = (word.wrapping_add(ONES * 0x76) | word) & (ONES * 0x80);
    let n_digits = others.trailing_zeros() / 8;
    let leading_zero = n_digits > 1 && word & 0xff == 0;
    if n_digits == 0 || n_digits == 8 || leading_zero || (text >> (8 * n_digits)) as u8 != b',' {
        return None;
    }
    // Eight digits at once: pairs, then fours and all of them by two multiplications.
    let digits = word << (64 - 8 * n_digits);
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let odd = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    Some(((even.wrapping_add(odd) >> 32) as u32, n_digits as usize))
}
