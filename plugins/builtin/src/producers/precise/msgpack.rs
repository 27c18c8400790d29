//! Reads MessagePack where it stands: one value after the other off a slice.
//!
//! Copies nothing, takes no memory and does not recurse. A length that the bytes announce only says how many values or
//! bytes should follow; where they do not, reading ends with an error.

/// Why bytes are not what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("expected {what}, found {found}")]
    Unexpected { what: &'static str, found: &'static str },
    #[error("expected {what}, found the end of the message")]
    Short { what: &'static str },
}

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many values the array holds that begins here.
    ///
    /// # Errors
    /// If no array begins here, or there are fewer bytes than values.
    pub fn array(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let n = match self.mark(what)? {
            mark @ 0x90..=0x9f => usize::from(mark & 0x0f),
            0xdc => self.length::<2>(what)?,
            0xdd => self.length::<4>(what)?,
            mark => return Err(unexpected(what, mark)),
        };
        self.enough(n, what)
    }

    /// How many entries the map holds that begins here.
    ///
    /// # Errors
    /// If no map begins here, or there are fewer bytes than keys and values.
    pub fn map(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let n = match self.mark(what)? {
            mark @ 0x80..=0x8f => usize::from(mark & 0x0f),
            0xde => self.length::<2>(what)?,
            0xdf => self.length::<4>(what)?,
            mark => return Err(unexpected(what, mark)),
        };
        self.enough(n.saturating_mul(2), what).map(|_| n)
    }

    /// Whether a map begins here.
    pub fn is_map(&self) -> bool {
        matches!(self.rest, [0x80..=0x8f | 0xde | 0xdf, ..])
    }

    /// Whether an array begins here.
    pub fn is_array(&self) -> bool {
        matches!(self.rest, [0x90..=0x9f | 0xdc | 0xdd, ..])
    }

    /// Whether a text begins here.
    pub fn is_text(&self) -> bool {
        matches!(self.rest, [0xa0..=0xbf | 0xd9..=0xdb, ..])
    }

    /// Takes a null, if one is here.
    pub fn null(&mut self) -> bool {
        if let [0xc0, rest @ ..] = self.rest {
            self.rest = rest;
            return true;
        }
        false
    }

    /// The text that begins here.
    ///
    /// # Errors
    /// If there is none, or it is not UTF-8.
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let n = match self.mark(what)? {
            mark @ 0xa0..=0xbf => usize::from(mark & 0x1f),
            0xd9 => self.length::<1>(what)?,
            0xda => self.length::<2>(what)?,
            0xdb => self.length::<4>(what)?,
            mark => return Err(unexpected(what, mark)),
        };
        let bytes = self.take(n, what)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed::Unexpected { what, found: "a text that is not UTF-8" })
    }

    /// The integer that begins here, of any width.
    ///
    /// # Errors
    /// If there is none.
    pub fn integer(&mut self, what: &'static str) -> Result<i128, Malformed> {
        let mark = self.mark(what)?;
        self.integer_after(mark, what)
    }

    fn integer_after(&mut self, mark: u8, what: &'static str) -> Result<i128, Malformed> {
        Ok(match mark {
            0x00..=0x7f => mark.into(),
            0xe0..=0xff => (mark as i8).into(),
            0xcc => u8::from_be_bytes(self.bytes(what)?).into(),
            0xcd => u16::from_be_bytes(self.bytes(what)?).into(),
            0xce => u32::from_be_bytes(self.bytes(what)?).into(),
            0xcf => u64::from_be_bytes(self.bytes(what)?).into(),
            0xd0 => i8::from_be_bytes(self.bytes(what)?).into(),
            0xd1 => i16::from_be_bytes(self.bytes(what)?).into(),
            0xd2 => i32::from_be_bytes(self.bytes(what)?).into(),
            0xd3 => i64::from_be_bytes(self.bytes(what)?).into(),
            mark => return Err(unexpected(what, mark)),
        })
    }

    /// The token id that begins here: an integer from 0 to 2^32 - 1.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn token(&mut self, what: &'static str) -> Result<u32, Malformed> {
        match *self.rest {
            [mark @ 0..=0x7f, ref rest @ ..] => {
                self.rest = rest;
                Ok(mark.into())
            }
            [0xcd, a, b, ref rest @ ..] => {
                self.rest = rest;
                Ok(u16::from_be_bytes([a, b]).into())
            }
            [0xce, a, b, c, d, ref rest @ ..] => {
                self.rest = rest;
                Ok(u32::from_be_bytes([a, b, c, d]))
            }
            _ => {
                let found = "a number outside of 0 to 2^32 - 1";
                u32::try_from(self.integer(what)?).map_err(|_| Malformed::Unexpected { what, found })
            }
        }
    }

    /// The block hash that begins here: an integer of any width, or bytes of which the last eight count, first byte
    /// highest.
    ///
    /// # Errors
    /// If there is none, or there are no bytes in it.
    pub fn hash(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let n = match self.mark(what)? {
            0xc4 => self.length::<1>(what)?,
            0xc5 => self.length::<2>(what)?,
            0xc6 => self.length::<4>(what)?,
            // What is negative keeps its bits.
            mark => return self.integer_after(mark, what).map(|n| n as u64),
        };
        let bytes = self.take(n, what)?;
        if bytes.is_empty() {
            return Err(Malformed::Unexpected { what, found: "no bytes" });
        }
        let last = &bytes[n.saturating_sub(8)..];
        Ok(last.iter().fold(0, |hash, &byte| hash << 8 | u64::from(byte)))
    }

    /// Leaves out the value that begins here, with all that it holds.
    ///
    /// # Errors
    /// If it ends too early.
    pub fn skip(&mut self) -> Result<(), Malformed> {
        const WHAT: &str = "a value";
        // Values that are still to come, however deep they stand. Each takes a byte, so this ends.
        let mut left: usize = 1;
        while left > 0 {
            let (values, bytes) = match self.mark(WHAT)? {
                0x00..=0x7f | 0xe0..=0xff | 0xc0..=0xc3 => (0, 0),
                mark @ 0x80..=0x8f => (usize::from(mark & 0x0f) * 2, 0),
                mark @ 0x90..=0x9f => (usize::from(mark & 0x0f), 0),
                0xdc => (self.length::<2>(WHAT)?, 0),
                0xdd => (self.length::<4>(WHAT)?, 0),
                0xde => (self.length::<2>(WHAT)? * 2, 0),
                0xdf => (self.length::<4>(WHAT)?.saturating_mul(2), 0),
                mark @ 0xa0..=0xbf => (0, usize::from(mark & 0x1f)),
                0xcc | 0xd0 => (0, 1),
                0xcd | 0xd1 | 0xd4 => (0, 2),
                0xd5 => (0, 3),
                0xca | 0xce | 0xd2 => (0, 4),
                0xd6 => (0, 5),
                0xcb | 0xcf | 0xd3 => (0, 8),
                0xd7 => (0, 9),
                0xd8 => (0, 17),
                0xc4 | 0xd9 => (0, self.length::<1>(WHAT)?),
                0xc5 | 0xda => (0, self.length::<2>(WHAT)?),
                0xc6 | 0xdb => (0, self.length::<4>(WHAT)?),
                // Extensions have a byte for their type.
                0xc7 => (0, self.length::<1>(WHAT)? + 1),
                0xc8 => (0, self.length::<2>(WHAT)? + 1),
                0xc9 => (0, self.length::<4>(WHAT)?.saturating_add(1)),
            };
            self.take(bytes, WHAT)?;
            left = (left - 1).saturating_add(values);
        }
        Ok(())
    }

    fn mark(&mut self, what: &'static str) -> Result<u8, Malformed> {
        let (&mark, rest) = self.rest.split_first().ok_or(Malformed::Short { what })?;
        self.rest = rest;
        Ok(mark)
    }

    fn bytes<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short { what })?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number of `N` bytes, at most four, first byte highest.
    fn length<const N: usize>(&mut self, what: &'static str) -> Result<usize, Malformed> {
        let bytes: [u8; N] = self.bytes(what)?;
        Ok(bytes.iter().fold(0, |n, &byte| n << 8 | usize::from(byte)))
    }

    fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(n).ok_or(Malformed::Short { what })?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Every value takes at least a byte.
    fn enough(&self, values: usize, what: &'static str) -> Result<usize, Malformed> {
        if values > self.rest.len() { Err(Malformed::Short { what }) } else { Ok(values) }
    }
}

fn unexpected(what: &'static str, mark: u8) -> Malformed {
    let found = match mark {
        0x00..=0x7f | 0xe0..=0xff | 0xcc..=0xd3 => "an integer",
        0x80..=0x8f | 0xde | 0xdf => "a map",
        0x90..=0x9f | 0xdc | 0xdd => "an array",
        0xa0..=0xbf | 0xd9..=0xdb => "a text",
        0xc0 => "null",
        0xc1 => "a byte that begins no value",
        0xc2 | 0xc3 => "a boolean",
        0xc4..=0xc6 => "bytes",
        0xca | 0xcb => "a fraction",
        0xc7..=0xc9 | 0xd4..=0xd8 => "an extension",
    };
    Malformed::Unexpected { what, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHAT: &str = "it";

    #[test]
    fn integers_of_every_width_are_read() {
        for (bytes, expected) in [
            (&b"\x07"[..], 7),
            (b"\xff", -1),
            (b"\xcc\xff", 255),
            (b"\xcd\x01\x00", 256),
            (b"\xce\xff\xff\xff\xff", 0xffff_ffff),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", i128::from(u64::MAX)),
            (b"\xd0\x80", -128),
            (b"\xd1\x80\x00", -32768),
            (b"\xd2\xff\xff\xff\xfe", -2),
            (b"\xd3\x80\0\0\0\0\0\0\0", i128::from(i64::MIN)),
        ] {
            assert_eq!(Reader::new(bytes).integer(WHAT), Ok(expected));
            assert_eq!(Reader::new(bytes).hash(WHAT), Ok(expected as u64));
            assert_eq!(Reader::new(bytes).token(WHAT).ok(), u32::try_from(expected).ok());
            assert_eq!(Reader::new(&bytes[..bytes.len() - 1]).token(WHAT), Err(Malformed::Short { what: WHAT }));
        }
    }

    #[test]
    fn a_hash_is_the_last_eight_bytes() {
        for (bytes, expected) in [
            (&b"\xc4\x08\0\0\0\0\0\0\x30\x39"[..], Some(12345)),
            (b"\xc4\x03\x01\x02\x03", Some(0x0001_0203)),
            (b"\xc5\x00\x0a\xff\xff\x01\0\0\0\0\0\0\x02", Some(0x0100_0000_0000_0002)),
            (b"\xc6\0\0\0\x01\x05", Some(5)),
            (b"\xc4\x00", None),
            (b"\xa3abc", None),
            (b"\xc6\xff\xff\xff\xff", None),
        ] {
            assert_eq!(Reader::new(bytes).hash(WHAT).ok(), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn an_announced_length_is_not_believed() {
        for bytes in [&b"\xdd\xff\xff\xff\xff"[..], b"\xdc\x00\x02\x01", b"\x91"] {
            assert_eq!(Reader::new(bytes).array(WHAT), Err(Malformed::Short { what: WHAT }));
        }
        for bytes in [&b"\xdf\xff\xff\xff\xff"[..], b"\x81\xc0"] {
            assert_eq!(Reader::new(bytes).map(WHAT), Err(Malformed::Short { what: WHAT }));
        }
        assert!(Reader::new(b"\xdb\xff\xff\xff\xffx").text(WHAT).is_err());
        for bytes in
            [&b"\xc6\xff\xff\xff\xff"[..], b"\xdd\xff\xff\xff\xff\xdd\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff"]
        {
            assert!(Reader::new(bytes).skip().is_err());
        }
    }

    #[test]
    fn a_value_is_skipped_whole_however_deep() {
        let mut deep = vec![0x91; 1_000_000];
        deep.push(0xc0);
        let several: &[&[u8]] = &[
            &deep,
            b"\x82\xa1a\x92\x01\xcb\0\0\0\0\0\0\0\0\xa1b\xc3",
            b"\xdc\x00\x02\xd9\x01x\xc4\x01x",
            b"\xde\x00\x01\x01\xca\0\0\0\0",
            b"\xc7\x02\x05ab",
            b"\xd4\x05a",
            b"\xd8\x050123456789abcdef",
        ];
        for bytes in several {
            let bytes = [bytes, &b"\x2a"[..]].concat();
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.skip(), Ok(()));
            assert_eq!(reader.integer(WHAT), Ok(42));
            assert!(reader.rest.is_empty());
        }
    }

    #[test]
    fn what_was_found_is_said() {
        let refused = Reader::new(b"\xa1x").array("a list of events").unwrap_err();
        assert_eq!(refused.to_string(), "expected a list of events, found a text");
        let refused = Reader::new(b"\xa2\xff\xfe").text("a name").unwrap_err();
        assert_eq!(refused.to_string(), "expected a name, found a text that is not UTF-8");
    }
}
