//! Tells a format by the first bytes of a file, where no other one begins like that.

use crate::format::Format;

/// How many bytes are looked at.
pub const LOOKED_AT: usize = 64 << 10;

/// What the first bytes of a file tell.
#[derive(Debug, PartialEq, Eq)]
pub enum Guess {
    Format(Format),
    /// No trace, but something that is easily taken for one; what it is, and what to do about it.
    NoTrace(&'static str),
    Unknown,
}

/// Looks at the first bytes of a file, up to [`LOOKED_AT`] of them.
pub fn guess(bytes: &[u8]) -> Guess {
    for (begin, what) in [
        (&b"\x1f\x8b"[..], "a file packed by gzip: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a file packed by zstd: unpack it first"),
        (b"PK\x03\x04", "a zip archive: unpack it first"),
        (b"PAR1", "a Parquet file: write its rows as JSON lines first"),
        (b"version https://git-lfs", "a pointer of Git LFS: get the file itself by `git lfs pull`"),
    ] {
        if bytes.starts_with(begin) {
            return Guess::NoTrace(what);
        }
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let format = match text.first() {
        Some(b'{') => by_keys(&keys(text)),
        Some(b'[') => match by_keys(&keys(text[1..].trim_ascii_start())) {
            // A bare list of turns is a conversation whose name is its place.
            None if keys(text[1..].trim_ascii_start()).iter().any(|key| key == b"input_tokens") => {
                Some(Format::Rollout)
            }
            Some(Format::Decisions) => Some(Format::Decisions),
            None | Some(_) => None,
        },
        Some(_) => by_columns(text),
        None => None,
    };
    format.map_or(Guess::Unknown, Guess::Format)
}

fn by_keys(keys: &[&[u8]]) -> Option<Format> {
    let has = |key: &str| keys.contains(&key.as_bytes());
    [
        (Format::Bailian, has("chat_id") && has("input_length")),
        (Format::Mooncake, !has("chat_id") && has("timestamp") && has("input_length")),
        (Format::Weka, has("tool_tokens") && has("block_size")),
        (Format::Generator, has("clients")),
        (Format::Batch, has("custom_id")),
        (Format::RequestLog, has("prompt_hash")),
        (Format::Rollout, has("conv_id") || has("turns") || has("extra_info")),
        (Format::Decisions, has("target_model") && has("generation")),
        (Format::Recording, has("config") && has("text")),
    ]
    .into_iter()
    .find_map(|(format, is)| is.then_some(format))
}

fn by_columns(text: &[u8]) -> Option<Format> {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default().to_ascii_lowercase();
    let has = |column: &str| line.windows(column.len()).any(|part| part == column.as_bytes());
    if has("contexttokens") && has("generatedtokens") {
        Some(Format::Azure)
    } else if has("request tokens") && has("response tokens") {
        Some(Format::BurstGpt)
    } else {
        None
    }
}

/// The keys of the object that the text begins with, as far as it goes; nothing of the objects inside of it.
fn keys(text: &[u8]) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    let (mut depth, mut at) = (0_usize, 0);
    let mut key_comes = false;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                let begin = at + 1;
                at = end_of_string(text, begin);
                if depth == 1 && key_comes {
                    keys.push(&text[begin..at.min(text.len())]);
                    key_comes = false;
                }
            }
            b'{' | b'[' => {
                depth += 1;
                key_comes = depth == 1 && *byte == b'{';
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            b',' if depth == 1 => key_comes = true,
            _ => {}
        }
        at += 1;
    }
    keys
}

/// Where the closing quotation mark is.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_keys_and_columns() {
        for (text, want) in [
            ("{\"timestamp\": 0, \"input_length\": 6758, \"hash_ids\": [0", Some(Format::Mooncake)),
            ("\u{feff}{\"chat_id\": 1, \"timestamp\": 0, \"input_length\": 5}", Some(Format::Bailian)),
            ("{\"id\":\"a\\\"}\",\"models\":[\"x\"],\"block_size\":64,\"tool_tokens\":1", Some(Format::Weka)),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n", Some(Format::Azure)),
            ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", Some(Format::BurstGpt)),
            ("{\n  \"clients\": []}", Some(Format::Generator)),
            ("{\"custom_id\": \"1\"", Some(Format::Batch)),
            ("{\"ts\":1,\"prompt_hash\":\"\"}", Some(Format::RequestLog)),
            ("[{\"input_tokens\":1,", Some(Format::Rollout)),
            ("{\"conv_id\":\"1\"", Some(Format::Rollout)),
            ("[{\"at\":\"\",\"target_model\":\"\",\"generation\":1}]", Some(Format::Decisions)),
            ("{\"config\":1,\"text\":\"\"}\n{\"cycle\":", Some(Format::Recording)),
            // The keys are those of an inner object, or values.
            ("{\"a\":{\"clients\":1},\"b\":\"custom_id\"}", None),
            ("{\"requests\":[]}", None),
            ("a,b,c\n1,2,3", None),
            ("", None),
        ] {
            assert_eq!(guess(text.as_bytes()), want.map_or(Guess::Unknown, Guess::Format), "{text}");
        }
    }

    #[test]
    fn what_is_no_trace_is_named() {
        assert!(matches!(guess(b"\x1f\x8b\x08"), Guess::NoTrace(what) if what.contains("gzip")));
        assert!(
            matches!(guess(b"version https://git-lfs.github.com/spec/v1"), Guess::NoTrace(what) if what.contains("lfs"))
        );
    }
}
