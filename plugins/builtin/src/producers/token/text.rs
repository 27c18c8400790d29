//! The inside of a JSON string as the UTF-8 that it stands for.

use memchr::memchr;

/// Hands on the bytes that the inside of a JSON string stands for, piece by piece. A surrogate without its other half
/// becomes U+FFFD; what is no escape is handed on as it is.
pub fn unescape(mut text: &[u8], escaped: bool, mut each: impl FnMut(&[u8])) {
    if !escaped {
        return each(text);
    }
    while let Some(at) = memchr(b'\\', text) {
        each(&text[..at]);
        let rest = &text[at + 1..];
        let plain = match rest.first() {
            Some(b'n') => b"\n",
            Some(b't') => b"\t",
            Some(b'r') => b"\r",
            Some(b'b') => b"\x08",
            Some(b'f') => b"\x0c",
            Some(b'u') => {
                let (c, used) = code_point(&rest[1..]);
                each(c.encode_utf8(&mut [0; 4]).as_bytes());
                text = &rest[1 + used..];
                continue;
            }
            Some(_) => &rest[..1],
            None => {
                text = rest;
                break;
            }
        };
        each(plain);
        text = &rest[1..];
    }
    each(text);
}

/// Reads what follows `\u`, and how many bytes it takes.
fn code_point(text: &[u8]) -> (char, usize) {
    let Some(first) = hex4(text) else { return (char::REPLACEMENT_CHARACTER, 0) };
    let second = || hex4(text.get(4..)?.strip_prefix(b"\\u")?);
    match first {
        0xd800..=0xdbff => match second() {
            Some(second @ 0xdc00..=0xdfff) => {
                let joined = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 10)
            }
            _ => (char::REPLACEMENT_CHARACTER, 4),
        },
        _ => (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 4),
    }
}

fn hex4(text: &[u8]) -> Option<u32> {
    text.get(..4)?.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(inside: &str, expected: &str) {
        let mut got = Vec::new();
        unescape(inside.as_bytes(), true, |piece| got.extend_from_slice(piece));
        assert_eq!(String::from_utf8_lossy(&got), expected, "{inside}");
    }

    #[test]
    fn escapes_become_what_they_stand_for() {
        check(r#"a\n\t\r\b\f\"\\\/z"#, "a\n\t\r\u{8}\u{c}\"\\/z");
        check(r"\u0041\u00e9\u20AC", "Aé€");
        check(r"\ud83d\ude00!", "😀!");
        check("é plain 😀", "é plain 😀");
        check("", "");
    }

    #[test]
    fn half_a_pair_becomes_a_replacement() {
        check(r"\ud83d", "\u{fffd}");
        check(r"\ud83dx", "\u{fffd}x");
        check(r"\ude00", "\u{fffd}");
        check(r"\ud83d\u0041", "\u{fffd}A");
        check(r"\ud83d\ud83d\ude00", "\u{fffd}😀");
    }

    #[test]
    fn what_is_no_json_does_no_harm() {
        check(r"\u12", "\u{fffd}12");
        check(r"\u", "\u{fffd}");
        check("end\\", "end");
        check(r"\x", "x");
        check(r"\uzzzz", "\u{fffd}zzzz");
    }

    #[test]
    fn text_without_escapes_is_one_piece() {
        let mut pieces = 0;
        unescape(br"a\nb", false, |_| pieces += 1);
        assert_eq!(pieces, 1);
    }

    proptest::proptest! {
        #[test]
        fn undoes_what_a_json_writer_does(text: String) {
            let json = serde_json::to_string(&text).unwrap();
            let mut got = Vec::new();
            unescape(&json.as_bytes()[1..json.len() - 1], true, |piece| got.extend_from_slice(piece));
            proptest::prop_assert_eq!(got, text.into_bytes());
        }

        #[test]
        fn takes_any_bytes(bytes: Vec<u8>) {
            unescape(&bytes, true, |_| ());
        }
    }
}
