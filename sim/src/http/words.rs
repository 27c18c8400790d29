//! Turns text into tokens and back: four bytes a token, so that texts that start alike start with the same tokens.

use crate::model::VOCABULARY;

const BYTES: usize = 4;

/// Appends the tokens of a text; the last one may stand for fewer than four bytes.
pub(super) fn tokenize(text: &str, tokens: &mut Vec<u32>) {
    tokens.extend(text.as_bytes().chunks(BYTES).map(token));
}

/// Appends the text of a generated token: three letters and a space. Tokenizing it gives the token back.
pub(super) fn spell(token: u32, text: &mut String) {
    for place in [26 * 26, 26, 1] {
        let letter = u8::try_from(token / place % 26).expect("a remainder of 26 is a u8");
        text.push(char::from(b'a' + letter));
    }
    text.push(' ');
}

fn token(piece: &[u8]) -> u32 {
    match *piece {
        [a @ b'a'..=b'z', b @ b'a'..=b'z', c @ b'a'..=b'z', b' '] => {
            [a, b, c].into_iter().fold(0, |token, letter| token * 26 + u32::from(letter - b'a'))
        }
        _ => {
            let mut bytes = [0; BYTES];
            bytes[..piece.len()].copy_from_slice(piece);
            u32::from_le_bytes(bytes).wrapping_add(VOCABULARY)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        tokenize(text, &mut tokens);
        tokens
    }

    #[test]
    fn four_bytes_are_a_token() {
        for (text, n) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("ééé", 2)] {
            assert_eq!(tokens(text).len(), n, "{text}");
        }
    }

    #[test]
    fn texts_that_start_alike_start_with_the_same_tokens() {
        let (a, b) = (tokens("once upon a time"), tokens("once upon a dime"));
        assert_eq!(a[..3], b[..3]);
        assert_ne!(a[3], b[3]);
    }

    #[test]
    fn a_spelled_token_is_read_as_itself() {
        for token in [0, 1, 26, 4711, VOCABULARY - 1] {
            let mut text = String::new();
            spell(token, &mut text);
            assert_eq!(tokens(&text), [token], "{text}");
        }
    }
}
