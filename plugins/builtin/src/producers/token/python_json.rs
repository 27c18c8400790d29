//! Writes JSON as Python's `json.dumps` does, which is what models are shown of the arguments of their tools.

use std::fmt::Write;

/// Writes this JSON, whose grammar is known to be sound, with a blank after commas and colons and in ASCII alone. Keys keep
/// their order and numbers their text.
pub fn dumps(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 8);
    let mut chars = json.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\n' | '\r' | '\t' => {}
            ',' => out.push_str(", "),
            ':' => out.push_str(": "),
            '"' => string(&mut chars, &mut out),
            other => out.push(other),
        }
    }
    out
}

/// Writes the rest of the string whose opening quote was just read.
fn string(chars: &mut std::str::Chars<'_>, out: &mut String) {
    out.push('"');
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => escape(chars, out),
            ' '..='~' => out.push(c),
            other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| push_unit(*unit, out)),
        }
    }
    out.push('"');
}

/// Writes the escape whose backslash was just read.
fn escape(chars: &mut std::str::Chars<'_>, out: &mut String) {
    match chars.next() {
        Some('u') => {
            let rest = chars.as_str();
            let unit = rest.get(..4).and_then(|digits| u16::from_str_radix(digits, 16).ok()).unwrap_or(0xFFFD);
            chars.nth(3);
            push_unit(unit, out);
        }
        Some('/') => out.push('/'),
        Some(other) => out.extend(['\\', other]),
        None => {}
    }
}

fn push_unit(unit: u16, out: &mut String) {
    let short = match unit {
        0x08 => "\\b",
        0x09 => "\\t",
        0x0A => "\\n",
        0x0C => "\\f",
        0x0D => "\\r",
        0x22 => "\\\"",
        0x5C => "\\\\",
        0x20..=0x7E => return out.push(char::from(unit as u8)),
        _ => {
            // Writing to a string does not fail.
            let _ = write!(out, "\\u{unit:04x}");
            return;
        }
    };
    out.push_str(short);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_python_writes() {
        for (json, want) in [
            (r#"{"b":1,"a":"é"}"#, r#"{"b": 1, "a": "\u00e9"}"#),
            ("{ \"a\" :\n[ 1 ,2 , { } , [ ] ] }", r#"{"a": [1, 2, {}, []]}"#),
            (
                r#"{"n":1.0,"m":1e400,"k":-0,"i":12345678901234567890}"#,
                r#"{"n": 1.0, "m": 1e400, "k": -0, "i": 12345678901234567890}"#,
            ),
            (r#"["a\/b","\u0041\u00E9","x,y:z"]"#, r#"["a/b", "A\u00e9", "x,y:z"]"#),
            (r#"["😀","\ud83d\ude00","\uD83D"]"#, r#"["\ud83d\ude00", "\ud83d\ude00", "\ud83d"]"#),
            (r#"["\"\\\b\f\n\r\t\u0022\u005c\u000a\u0001"]"#, r#"["\"\\\b\f\n\r\t\"\\\n\u0001"]"#),
            ("[\"\u{7f}\u{2028}\"]", r#"["\u007f\u2028"]"#),
            ("[true,false,null]", "[true, false, null]"),
            ("\"s\"", "\"s\""),
        ] {
            assert_eq!(dumps(json), want);
        }
    }
}
