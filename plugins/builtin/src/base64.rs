//! Standard base64 with padding, as session tokens and data URLs carry it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The six bits that a digit stands for; `None` if it is no digit.
pub fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Encodes the bytes, padded to whole groups of four.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, &b| word << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let place = (word >> (18 - 6 * i) & 63) as usize;
            text.push(if i <= chunk.len() { char::from(ALPHABET[place]) } else { '=' });
        }
    }
    text
}

/// Decodes padded text; `None` if it is anything else.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let word = group.iter().try_fold(0u32, |word, &b| Some(word << 6 | u32::from(digit(b)?)))?;
        let word = word << (6 * (4 - group.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_there_and_back() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("default/pod1", "ZGVmYXVsdC9wb2Qx")]
        {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
    }

    #[test]
    fn refuses_what_is_no_padded_text() {
        for text in ["!", "Zg", "Zg=", "Zg===", "Zm9v ", "====", "Zm=v", "Zm8-", "=Zm8", "Zg==Zg=="] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
