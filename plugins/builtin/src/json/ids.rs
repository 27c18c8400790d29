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

    /// Reads ids as long as each is of one to eight digits with a comma right behind it, as nearly all are, and stops
    /// before an element that it leaves to others. Returns how many it read.
    ///
    /// Commas are looked for first, a block at a time, so that where an id begins does not wait for the one before it to be
    /// read.
    fn plain_ids(&mut self, out: &mut Vec<u8>) -> usize {
        let (body, mut block_at, mut n) = (self.body, self.at, 0);
        let mut batch = [[0; 4]; BLOCK];
        while let Some(block) = body.get(block_at..).and_then(|rest| rest.first_chunk::<BLOCK>()) {
            let (mut commas, mut filled, mut is_plain) = (commas(block), 0, true);
            while commas != 0 {
                let end = block_at + commas.trailing_zeros() as usize;
                let begin = self.at + usize::from(body[self.at] == b' ');
                let Some(id) = plain_id(body, begin, end) else {
                    is_plain = false;
                    break;
                };
                batch[filled] = id.to_le_bytes();
                filled += 1;
                self.at = end + 1;
                commas &= commas - 1;
            }
            out.extend_from_slice(batch[..filled].as_flattened());
            n += filled;
            if !is_plain {
                break;
            }
            block_at += BLOCK;
        }
        n
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

/// So many bytes are searched for commas at once.
const BLOCK: usize = 64;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES * 0x80;

/// Where the commas of a block are, a bit each.
fn commas(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks::<8>();
    let bits = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word) ^ (ONES * u64::from(b','));
        // The highest bit of each byte that is zero, and of no other.
        let zeros = !(((word & !HIGH) + !HIGH) | word) & HIGH;
        (zeros >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
    };
    words.iter().rev().fold(0, |all, word| all << 8 | bits(word))
}

/// The number between two places, if one to eight digits stand there and nothing else.
fn plain_id(body: &[u8], begin: usize, end: usize) -> Option<u32> {
    let n_digits = end.wrapping_sub(begin);
    // The eight bytes before the comma, of which the last ones count.
    let text = u64::from_le_bytes(*body.get(..end)?.last_chunk()?);
    if n_digits.wrapping_sub(1) >= 8 {
        return None;
    }
    let unused = 64 - 8 * n_digits as u32;
    let digits = (text ^ (ONES * u64::from(b'0'))) & (u64::MAX << unused);
    let over_nine = (digits.wrapping_add(ONES * 0x76) | digits) & HIGH;
    let leading_zero = n_digits > 1 && (digits >> unused) & 0xff == 0;
    if over_nine != 0 || leading_zero {
        return None;
    }
    // Eight digits at once: pairs, then fours and all of them by two multiplications.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let odd = (pairs >> 16 & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    Some((even.wrapping_add(odd) >> 32) as u32)
}
