//! Putting another model into a request body, and the client's model back into the response.
//!
//! Every other byte stays as it is: the bodies are not parsed and written anew.

use std::borrow::Cow;

use memchr::memmem::{self, Finder};

use crate::Parsed;

/// Writes `target` into the body in place of its model, or as its first key if it names none.
pub fn rewrite_model(body: &[u8], parsed: &Parsed, target: &str) -> Vec<u8> {
    let value = json_string(target);
    if let Some(at) = parsed.model_at.clone() {
        return [&body[..at.start], &value, &body[at.end..]].concat();
    }
    let Some(at) = parsed.insert_at else { return body.to_vec() };
    let (before, after) = body.split_at(at);
    let comma: &[u8] = if after.trim_ascii_start().starts_with(b"}") { b"" } else { b"," };
    [before, KEY, &value, comma, after].concat()
}

/// Writes `client` in place of `target` wherever the bytes name it as a model: without a blank after the colon, or, if
/// that is nowhere, with one. `None`: nothing to be changed.
pub fn restore_model(chunk: &[u8], target: &str, client: &str) -> Option<Vec<u8>> {
    let (target, client) = (json_string(target), json_string(client));
    [KEY, SPACED_KEY].into_iter().find_map(|key| replace(chunk, &[key, &target].concat(), &[key, &client].concat()))
}

const KEY: &[u8] = b"\"model\":";
const SPACED_KEY: &[u8] = b"\"model\": ";

fn replace(bytes: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut done = 0;
    for at in memmem::find_iter(bytes, old) {
        out.extend_from_slice(&bytes[done..at]);
        out.extend_from_slice(new);
        done = at + old.len();
    }
    if done == 0 {
        return None;
    }
    out.extend_from_slice(&bytes[done..]);
    Some(out)
}

/// A string as JSON, with its quotes.
fn json_string(text: &str) -> Vec<u8> {
    let mut out = vec![b'"'];
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            0..0x20 => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
            _ => out.push(b),
        }
    }
    out.push(b'"');
    out
}

/// Does what [`restore_model`] does for a response that comes in chunks: what may go on as the model's name is held back
/// until more is known. Takes the name with and without a blank after the colon.
#[derive(Clone, Debug)]
pub struct ModelRestorer {
    target: Vec<u8>,
    client: Vec<u8>,
    key: Finder<'static>,
    /// The beginning of what may be the model; shorter than it.
    held: Vec<u8>,
}

/// What the bytes after a key are.
enum Value {
    /// The model, at this distance from the key.
    Target {
        blanks: usize,
    },
    /// It may be, once more has come.
    Open,
    Other,
}

impl ModelRestorer {
    /// Makes a restorer for one response. `None`: the names are the same or one is empty, so nothing is to be done.
    pub fn new(target: &str, client: &str) -> Option<Self> {
        if target.is_empty() || client.is_empty() || target == client {
            return None;
        }
        let (target, client) = (json_string(target), json_string(client));
        Some(Self { target, client, key: Finder::new(KEY), held: Vec::new() })
    }

    /// Takes the next bytes of the response. Returns those that can be sent on; borrowed means a part of `chunk`, unchanged.
    pub fn push<'a>(&mut self, chunk: &'a [u8]) -> Cow<'a, [u8]> {
        if self.held.is_empty() {
            let (changed, end) = self.restored(chunk);
            self.held.extend_from_slice(&chunk[end..]);
            return changed.map_or(Cow::Borrowed(&chunk[..end]), Cow::Owned);
        }
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(chunk);
        let (changed, end) = self.restored(&bytes);
        self.held.extend_from_slice(&bytes[end..]);
        bytes.truncate(end);
        Cow::Owned(changed.unwrap_or(bytes))
    }

    /// The response is complete. Returns what was held back.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// The bytes up to the end that is returned, if they have to change.
    fn restored(&self, bytes: &[u8]) -> (Option<Vec<u8>>, usize) {
        let mut out = Vec::new();
        let (mut copied, mut at) = (0, 0);
        let end = loop {
            let Some(key) = self.key.find(&bytes[at..]).map(|found| at + found) else {
                break bytes.len() - open_key(&bytes[at..]);
            };
            at = key + KEY.len();
            match self.value(&bytes[at..]) {
                Value::Target { blanks } => {
                    out.extend_from_slice(&bytes[copied..at + blanks]);
                    out.extend_from_slice(&self.client);
                    at += blanks + self.target.len();
                    copied = at;
                }
                Value::Open => break key,
                Value::Other => {}
            }
        };
        if copied == 0 {
            return (None, end);
        }
        out.extend_from_slice(&bytes[copied..end]);
        (Some(out), end)
    }

    fn value(&self, rest: &[u8]) -> Value {
        let blanks = usize::from(rest.first() == Some(&b' '));
        let rest = &rest[blanks..];
        if rest.starts_with(&self.target) {
            Value::Target { blanks }
        } else if self.target.starts_with(rest) {
            Value::Open
        } else {
            Value::Other
        }
    }
}

/// How many bytes at the end may be the beginning of a key.
fn open_key(bytes: &[u8]) -> usize {
    (1..KEY.len()).rev().find(|&n| bytes.ends_with(&KEY[..n])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(body: &str, model_at: Option<std::ops::Range<usize>>, target: &str) -> String {
        let parsed = Parsed { model_at, insert_at: body.find('{').map(|at| at + 1), ..Parsed::default() };
        String::from_utf8(rewrite_model(body.as_bytes(), &parsed, target)).expect("utf-8 stays utf-8")
    }

    #[test]
    fn replaces_the_model_and_nothing_else() {
        let body = r#" { "x":{"model":"m"}, "model" : "m" , "n":1e400 }"#;
        let at = body.rfind("\"m\"").expect("it is there");
        for (target, want) in [
            ("t", r#" { "x":{"model":"m"}, "model" : "t" , "n":1e400 }"#),
            ("a\"\\\n", r#" { "x":{"model":"m"}, "model" : "a\"\\\u000a" , "n":1e400 }"#),
            ("é", r#" { "x":{"model":"m"}, "model" : "é" , "n":1e400 }"#),
        ] {
            assert_eq!(rewritten(body, Some(at..at + 3), target), want);
        }
    }

    #[test]
    fn puts_a_missing_model_first() {
        assert_eq!(rewritten(" {\"prompt\":\"x\"}", None, "t"), " {\"model\":\"t\",\"prompt\":\"x\"}");
        assert_eq!(rewritten("{}", None, "t"), "{\"model\":\"t\"}");
        assert_eq!(rewritten("{ \n}", None, "t"), "{\"model\":\"t\" \n}");
        assert_eq!(rewrite_model(b"raw", &Parsed::default(), "t"), b"raw");
    }

    const RESTORED: [(&str, Option<&str>); 9] = [
        (
            r#"{"model":"base","x":{"model":"base"},"y":"base"}"#,
            Some(r#"{"model":"own","x":{"model":"own"},"y":"base"}"#),
        ),
        (r#"{"model": "base"}"#, Some(r#"{"model": "own"}"#)),
        (r#"{"model":  "base"}"#, None),
        (r#"{"model":"base-2"}"#, None),
        (r#"{"model":"bas"}"#, None),
        (r#"{"text":"\"model\":\"base\" \"model\": \"base\""}"#, None),
        (r#"{"my-model":"base","model":"mo","model":"#, None),
        (r#""model":"model":"base""#, Some(r#""model":"model":"own""#)),
        ("plain", None),
    ];

    #[test]
    fn gives_the_model_of_the_client_back() {
        for (sent, want) in RESTORED {
            let restored = restore_model(sent.as_bytes(), "base", "own");
            assert_eq!(restored.as_deref(), want.map(str::as_bytes), "{sent}");
        }
    }

    #[test]
    fn prefers_the_form_without_a_blank() {
        let restored = restore_model(br#"{"model": "base","model":"base"}"#, "base", "own").expect("one is there");
        assert_eq!(restored, br#"{"model": "base","model":"own"}"#);
    }

    fn pushed<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut restorer = ModelRestorer::new("base", "own").expect("the names differ");
        let mut out: Vec<u8> = chunks.flat_map(|chunk| restorer.push(chunk).into_owned()).collect();
        out.extend(restorer.finish());
        out
    }

    #[test]
    fn gives_the_model_back_however_the_response_is_cut() {
        for (sent, want) in RESTORED {
            let (sent, want) = (sent.as_bytes(), want.unwrap_or(sent).as_bytes());
            for cut in 0..=sent.len() {
                assert_eq!(pushed([&sent[..cut], &sent[cut..]].into_iter()), want, "cut at {cut}");
                for second in cut..=sent.len() {
                    let cuts = [&sent[..cut], &sent[cut..second], &sent[second..]];
                    assert_eq!(pushed(cuts.into_iter()), want, "cut at {cut} and {second}");
                }
            }
            assert_eq!(pushed(sent.chunks(1)), want, "byte by byte");
        }
    }

    #[test]
    fn holds_back_only_what_may_be_the_model() {
        let mut restorer = ModelRestorer::new("base", "own").expect("the names differ");
        assert!(matches!(restorer.push(b"data: {\"x\":1}\n\n"), Cow::Borrowed(b"data: {\"x\":1}\n\n")));
        assert_eq!(*restorer.push(b"{\"model\":\"ba"), *b"{");
        assert_eq!(*restorer.push(b"d\"}"), *b"\"model\":\"bad\"}");
        assert!(restorer.finish().is_empty());
    }

    #[test]
    fn leaves_a_response_alone_without_two_names() {
        for (target, client) in [("", "own"), ("base", ""), ("base", "base")] {
            assert!(ModelRestorer::new(target, client).is_none());
        }
    }
}
