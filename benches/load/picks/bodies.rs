//! The requests that are sent. Each differs from the one before in its last block, as the next turn of a chat does.

use std::cell::Cell;
use std::fmt::Write;

use epp::bench::client::Question;

/// How many bytes a token of English text takes.
const BYTES_A_TOKEN: f64 = 4.4;
/// Stands where each request gets its own number.
const NUMBER: &str = "00000000";

/// A request that can be sent many times, never twice the same.
#[derive(Clone)]
pub struct Request {
    pub path: &'static str,
    body: Vec<u8>,
    number_at: usize,
    sent: Cell<u32>,
}

impl Request {
    /// Makes a chat of about so many tokens, in turns of 2,000 bytes.
    pub fn chat(tokens: usize) -> Self {
        let words = ["the", "engine", "keeps", "every", "block", "of", "a", "prompt", "it", "has", "seen,", "and"];
        let mut rng = fastrand::Rng::with_seed(7);
        let mut messages = r#"{"role":"system","content":"You are a helpful assistant."}"#.to_owned();
        let size = (tokens as f64 * BYTES_A_TOKEN) as usize;
        while messages.len() < size {
            let role = if rng.bool() { "user" } else { "assistant" };
            write!(messages, r#",{{"role":"{role}","content":""#).expect("a string takes every write");
            let end = (messages.len() + 2000).min(size);
            while messages.len() < end {
                messages.push_str(words[rng.usize(..words.len())]);
                messages.push_str(if rng.u32(..40) == 0 { "\\n" } else { " " });
            }
            messages.push_str(r#""}"#);
        }
        Self::new(
            "/v1/chat/completions",
            format!(
                r#"{{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{messages},{{"role":"user","content":"{NUMBER}"}}],"max_tokens":128,"temperature":0.7,"stream":true,"stream_options":{{"include_usage":true}}}}"#
            ),
        )
    }

    /// Makes a request of so many token ids.
    pub fn token_ids(tokens: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut ids = String::new();
        for _ in 1..tokens {
            write!(ids, "{}, ", rng.u32(..128_000)).expect("a string takes every write");
        }
        Self::new(
            "/inference/v1/generate",
            format!(
                r#"{{"model":"m","token_ids":[{ids}1{NUMBER}],"sampling_params":{{"max_tokens":128}},"stream":true}}"#
            ),
        )
    }

    fn new(path: &'static str, body: String) -> Self {
        let number_at = body.rfind(NUMBER).expect("every body has a place for it");
        Self { path, body: body.into_bytes(), number_at, sent: Cell::new(0) }
    }

    /// The next one.
    pub fn question(&self) -> Question {
        let number = self.sent.get() + 1;
        self.sent.set(number);
        let mut body = self.body.clone();
        body[self.number_at..][..NUMBER.len()].copy_from_slice(format!("{number:08}").as_bytes());
        let headers = vec![("x-request-id", "5b3f6b1e-7f1c-4d55-a0a4-5d9f0a2c6d1e".into())];
        Question { path: self.path.into(), body: body.into(), headers }
    }
}
