//! Pieces of a text, one at a time, with a bound: a line, or a file as a whole.

use std::io::{self, BufRead, Read};

/// The longest line, and the longest file that is read as a whole.
pub const LONGEST: usize = 64 << 20;

/// What was found at one place of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// It is in the buffer, without its end of line.
    Whole,
    /// It is longer than allowed, and was passed over.
    TooLong,
}

/// Reads a line into the buffer, which never grows beyond the bound; `None` at the end of the input.
pub fn line(input: &mut dyn BufRead, longest: usize, into: &mut Vec<u8>) -> io::Result<Option<Piece>> {
    into.clear();
    // Two bytes more: what ends a line does not count.
    let n_read = (&mut *input).take(longest as u64 + 2).read_until(b'\n', into)?;
    if n_read == 0 {
        return Ok(None);
    }
    let ended = into.last() == Some(&b'\n');
    if ended {
        into.pop();
    }
    if into.last() == Some(&b'\r') {
        into.pop();
    }
    if into.len() <= longest {
        return Ok(Some(Piece::Whole));
    }
    into.clear();
    if !ended {
        pass_line(input)?;
    }
    Ok(Some(Piece::TooLong))
}

/// Reads all there is into the buffer; `None` if that is nothing.
pub fn whole(input: &mut dyn BufRead, longest: usize, into: &mut Vec<u8>) -> io::Result<Option<Piece>> {
    into.clear();
    match (&mut *input).take(longest as u64 + 1).read_to_end(into)? {
        0 => Ok(None),
        n if n <= longest => Ok(Some(Piece::Whole)),
        _ => {
            into.clear();
            io::copy(input, &mut io::sink())?;
            Ok(Some(Piece::TooLong))
        }
    }
}

fn pass_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let there = input.fill_buf()?;
        let end = there.iter().position(|byte| *byte == b'\n');
        let n = end.map_or(there.len(), |at| at + 1);
        let over = end.is_some() || there.is_empty();
        input.consume(n);
        if over {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_as_editors_end_them_and_long_ones_are_passed_over() {
        let mut input = io::BufReader::with_capacity(3, &b"abcd\r\n\nabcde\nabcdefghijk\nx"[..]);
        let mut found = Vec::new();
        let mut text = Vec::new();
        while let Some(piece) = line(&mut input, 4, &mut text).unwrap() {
            found.push((piece, String::from_utf8(text.clone()).unwrap()));
        }
        let whole = |text: &str| (Piece::Whole, text.to_owned());
        let too_long = || (Piece::TooLong, String::new());
        assert_eq!(found, [whole("abcd"), whole(""), too_long(), too_long(), whole("x")]);
    }

    #[test]
    fn a_file_has_the_same_bound() {
        let mut text = Vec::new();
        assert_eq!(whole(&mut &b"abcd"[..], 4, &mut text).unwrap(), Some(Piece::Whole));
        assert_eq!(text, b"abcd");
        assert_eq!(whole(&mut &b"abcde"[..], 4, &mut text).unwrap(), Some(Piece::TooLong));
        assert_eq!((text.len(), whole(&mut &b""[..], 4, &mut text).unwrap()), (0, None));
    }
}
