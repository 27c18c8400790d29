//! The usage that vLLM's engine service reports. Every message counts from the beginning, so only the last one matters.

use epp_plugin_api::{ResponseParser, Usage};

use super::super::grpc::Frames;
use super::super::grpc::wire::{Fields, Malformed, Value};

/// Reads one kind of message.
type Read = fn(&[u8]) -> Result<Option<Usage>, Malformed>;

/// Goes through the messages of a response.
pub struct Messages {
    frames: Frames,
    read: Read,
    usage: Option<Usage>,
}

impl Messages {
    /// Makes a reader for one response of such messages.
    pub fn of(read: Read) -> Self {
        Self { frames: Frames::default(), read, usage: None }
    }
}

impl ResponseParser for Messages {
    fn feed(&mut self, chunk: &[u8]) -> Option<Usage> {
        self.frames.feed(chunk, |message| {
            if let Ok(Some(reported)) = (self.read)(message) {
                self.usage = Some(reported);
            }
        });
        None
    }

    fn finish(&mut self) -> Option<Usage> {
        self.usage.take()
    }
}

/// Reads a `GenerateResponse`: a part of an answer or a whole one.
pub fn generated(message: &[u8]) -> Result<Option<Usage>, Malformed> {
    let mut counts = [0; 3];
    Fields::new(message, 0..message.len()).each(|kind, value| {
        let (1 | 2, Value::Bytes(at)) = (kind, value) else { return Ok(()) };
        let first = if kind == 1 { 2 } else { 3 };
        Fields::new(message, at).each(|number, value| {
            let at = number.checked_sub(first).and_then(|at| counts.get_mut(at as usize));
            if let (Some(count), Value::Varint(n)) = (at, value) {
                *count = u64::from(n as u32);
            }
            Ok(())
        })
    })?;
    let [prompt, completion, cached] = counts;
    let usage = Usage {
        prompt: Some(prompt),
        completion: Some(completion),
        cached: Some(cached),
        total: Some(prompt + completion),
    };
    Ok(Some(usage).filter(|_| prompt > 0 || completion > 0))
}

/// Reads an `EmbedResponse`.
pub fn embedded(message: &[u8]) -> Result<Option<Usage>, Malformed> {
    let mut prompt = 0;
    Fields::new(message, 0..message.len()).each(|number, value| {
        if let (2, Value::Varint(n)) = (number, value) {
            prompt = u64::from(n as u32);
        }
        Ok(())
    })?;
    let usage = Usage { prompt: Some(prompt), total: Some(prompt), ..Usage::default() };
    Ok(Some(usage).filter(|_| prompt > 0))
}
