//! Board, KV events: where topic and number stand in a message.

use super::zmtp::wire::Message;

/// A topic holds an address and the name of a model; the last one is kept, so it may not be of any length.
const LONGEST_TOPIC: usize = 4 << 10;

/// Where the topic of a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topic {
    /// In its first frame.
    First,
    /// In its second frame.
    Second,
    /// Not in the message.
    Known(Vec<u8>),
}

/// The number in a frame: its first 8 bytes, most significant first; `None` if it is shorter.
pub fn sequence(frame: &[u8]) -> Option<u64> {
    frame.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Topic and number of a message.
///
/// # Errors
/// If it does not have exactly three frames, its topic is too long, or its number too short.
pub fn shape(message: &Message) -> Result<(&[u8], u64), String> {
    let frames: Vec<&[u8]> = message.frames().collect();
    let [topic, number, _] = frames[..] else {
        return Err(format!("expected a message of 3 frames, found {}", frames.len()));
    };
    if topic.len() > LONGEST_TOPIC {
        return Err(format!("expected a topic of at most {LONGEST_TOPIC} bytes, found {}", topic.len()));
    }
    let Some(seq) = sequence(number) else {
        return Err(format!("expected a sequence of at least 8 bytes, found {}", number.len()));
    };
    Ok((topic, seq))
}
