//! Board, KV events, ZMTP: bytes to commands and messages, and back. Without any I/O.
//!
//! A length that a peer announces is believed only as far as bytes have come: nothing is reserved by it. A message above
//! the limits is read to its end and dropped without being held.

use std::fmt;

/// Longest message that is taken, all frames together.
pub const LONGEST_MESSAGE: u64 = 64 << 20;
/// A peer that announces more than this speaks nonsense: reading past it would keep the connection busy for good.
const LONGEST_SKIP: u64 = 1 << 30;
/// As many frames are taken: the reply to a replay request has the most.
pub const MOST_FRAMES: usize = 4;
/// More frames than this in one message are nonsense.
const MOST_SKIPPED_FRAMES: u64 = 1 << 16;
const LONGEST_COMMAND: u64 = 16 << 10;
/// A larger buffer is given back after its message.
const LARGEST_KEPT: usize = 16 << 10;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The length of a greeting.
pub const GREETING: usize = 64;

/// What is wrong with what a peer sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("expected the greeting of ZMTP, found other bytes: is this the port of KV events?")]
    NoGreeting,
    #[error("expected ZMTP 3, found version {0}")]
    Version(u8),
    #[error("expected the mechanism NULL, found {0:?}")]
    Mechanism(String),
    #[error("expected a frame, found the flags {0:#04x}")]
    Flags(u8),
    #[error("expected a command of at most {LONGEST_COMMAND} bytes, found one of {0}")]
    LongCommand(u64),
    #[error("expected a command, found one without a whole name")]
    NoCommandName,
    #[error("expected a frame, found one of {0} bytes")]
    LongFrame(u64),
    #[error("expected a message of at most {MOST_FRAMES} frames, found more than {MOST_SKIPPED_FRAMES}")]
    EndlessMessage,
    #[error("expected a socket of type {expected}, found {found:?}")]
    SocketType { expected: &'static str, found: String },
    #[error("expected READY, found a property that is cut off")]
    Property,
    #[error("expected READY, found {0:?}")]
    NotReady(String),
    #[error("the peer refuses: {0:?}")]
    Refused(String),
}

/// What this side sends first.
pub fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Checks as much of a peer's greeting as has come, so that one that speaks something else is told at once.
///
/// # Errors
/// If no greeting of ZMTP 3 without security begins like this.
pub fn check_greeting(so_far: &[u8]) -> Result<(), WireError> {
    let at = |i: usize| so_far.get(i).copied();
    if at(0).is_some_and(|b| b != 0xff) || at(9).is_some_and(|b| b & 1 == 0) {
        return Err(WireError::NoGreeting);
    }
    if let Some(version) = at(10).filter(|v| *v < 3) {
        // Older versions count the revision here: 0 is 1.0, 1 is 2.0.
        return Err(WireError::Version(version));
    }
    if let Some(mechanism) = so_far.get(12..32)
        && mechanism != &greeting()[12..32]
    {
        let name = mechanism.split(|b| *b == 0).next().unwrap_or_default();
        return Err(WireError::Mechanism(shown(name)));
    }
    Ok(())
}

/// A message, its frames one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

impl Message {
    /// Every frame, in order.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator + Clone {
        self.ends.iter().enumerate().map(|(i, end)| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.bytes[start..*end]
        })
    }

    /// The bytes of all frames together.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no frame holds a byte.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// A command of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name, such as READY.
    pub name: Vec<u8>,
    pub data: Vec<u8>,
}

/// What a peer has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Message(Message),
    Command(Command),
    /// A message above the limits, with the bytes and frames that it had.
    TooLarge {
        bytes: u64,
        frames: u64,
    },
}

/// Reads items out of bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    at: At,
    /// The message or the command so far.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of the message's frames so far, the present one's included, and its frames.
    total: u64,
    frames: u64,
}

#[derive(Clone, Copy, Debug, Default)]
enum At {
    #[default]
    Flags,
    /// In the length of a frame with these flags: bytes that are still missing, and the value so far.
    Length { flags: u8, missing: u8, value: u64 },
    /// In the body of a frame: bytes that are still missing.
    Body { flags: u8, missing: u64 },
}

impl Decoder {
    /// Takes bytes off `input` until an item is whole or nothing is left.
    ///
    /// # Errors
    /// If the peer breaks the protocol. Nothing that comes after means anything then.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Item>, WireError> {
        loop {
            match self.at {
                At::Flags => {
                    let Some((&flags, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    let is_command = flags & COMMAND != 0;
                    if flags & !(MORE | LONG | COMMAND) != 0 || is_command && (flags & MORE != 0 || self.frames > 0) {
                        return Err(WireError::Flags(flags));
                    }
                    let missing = if flags & LONG != 0 { 8 } else { 1 };
                    self.at = At::Length { flags, missing, value: 0 };
                }
                At::Length { flags, missing: 0, value } => self.begin(flags, value)?,
                At::Length { flags, missing, value } => {
                    let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
                    *input = rest;
                    self.at = At::Length { flags, missing: missing - 1, value: value << 8 | u64::from(byte) };
                }
                At::Body { flags, missing: 0 } => {
                    self.at = At::Flags;
                    if let Some(item) = self.end(flags)? {
                        return Ok(Some(item));
                    }
                }
                At::Body { flags, missing } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let n = usize::try_from(missing).map_or(input.len(), |missing| missing.min(input.len()));
                    let (body, rest) = input.split_at(n);
                    *input = rest;
                    if !self.is_skipping() {
                        self.bytes.extend_from_slice(body);
                    }
                    self.at = At::Body { flags, missing: missing - n as u64 };
                }
            }
        }
    }

    /// Whether the message is above the limits, so that its bytes are dropped.
    fn is_skipping(&self) -> bool {
        self.total > LONGEST_MESSAGE || self.frames > MOST_FRAMES as u64
    }

    fn begin(&mut self, flags: u8, length: u64) -> Result<(), WireError> {
        if flags & COMMAND != 0 {
            if length > LONGEST_COMMAND {
                return Err(WireError::LongCommand(length));
            }
        } else {
            self.frames += 1;
            self.total = self.total.saturating_add(length);
            if self.total > LONGEST_SKIP {
                return Err(WireError::LongFrame(length));
            }
            if self.frames > MOST_SKIPPED_FRAMES {
                return Err(WireError::EndlessMessage);
            }
            if self.is_skipping() {
                (self.bytes, self.ends) = Default::default();
            }
        }
        self.at = At::Body { flags, missing: length };
        Ok(())
    }

    /// A frame is whole.
    fn end(&mut self, flags: u8) -> Result<Option<Item>, WireError> {
        if flags & COMMAND != 0 {
            return command(&std::mem::take(&mut self.bytes)).map(|command| Some(Item::Command(command)));
        }
        if !self.is_skipping() {
            self.ends.push(self.bytes.len());
        }
        if flags & MORE != 0 {
            return Ok(None);
        }
        let item = if self.is_skipping() {
            Item::TooLarge { bytes: self.total, frames: self.frames }
        } else {
            Item::Message(Message { bytes: std::mem::take(&mut self.bytes), ends: std::mem::take(&mut self.ends) })
        };
        (self.total, self.frames) = (0, 0);
        Ok(Some(item))
    }

    /// Takes a message back that is done with, so that the next one needs no new buffer unless it is large.
    pub fn reuse(&mut self, mut message: Message) {
        if message.bytes.capacity() <= LARGEST_KEPT && self.bytes.is_empty() && self.ends.is_empty() {
            message.bytes.clear();
            message.ends.clear();
            (self.bytes, self.ends) = (message.bytes, message.ends);
        }
    }
}

fn command(body: &[u8]) -> Result<Command, WireError> {
    let (name, data) = short_text(body).ok_or(WireError::NoCommandName)?;
    Ok(Command { name: name.to_vec(), data: data.to_vec() })
}

/// A text that is led by its length in one byte, and what follows it.
fn short_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// Checks the handshake's command of a peer whose socket must be of one of these types.
///
/// # Errors
/// If it is no READY, or one of another socket.
pub fn check_ready(command: &Command, expected: &'static [&'static str]) -> Result<(), WireError> {
    match command.name.as_slice() {
        b"READY" => {}
        b"ERROR" => return Err(refused(command)),
        other => return Err(WireError::NotReady(shown(other))),
    }
    let mut found = String::new();
    let mut rest = command.data.as_slice();
    while !rest.is_empty() {
        let (name, after) = short_text(rest).ok_or(WireError::Property)?;
        let (length, after) = after.split_first_chunk().ok_or(WireError::Property)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| WireError::Property)?;
        let (value, after) = after.split_at_checked(length).ok_or(WireError::Property)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            found = shown(value);
        }
        rest = after;
    }
    if expected.contains(&found.as_str()) {
        return Ok(());
    }
    Err(WireError::SocketType { expected: expected.first().copied().unwrap_or_default(), found })
}

/// The reason of an ERROR.
pub fn refused(command: &Command) -> WireError {
    WireError::Refused(shown(short_text(&command.data).map_or(&[][..], |(reason, _)| reason)))
}

/// Text of a peer as it may stand in a line: short, and without bytes that are no text.
fn shown(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(64).collect();
    text
}

/// Writes a frame of a message.
pub fn frame(out: &mut Vec<u8>, body: &[u8], more: bool) {
    put(out, if more { MORE } else { 0 }, body);
}

/// Writes a command.
pub fn write_command(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    let length = u8::try_from(name.len()).expect("names of commands are short");
    put(out, COMMAND, &[&[length], name.as_bytes(), data].concat());
}

/// Writes the handshake's command of a socket of this type.
pub fn write_ready(out: &mut Vec<u8>, socket: &str) {
    let mut data = b"\x0bSocket-Type".to_vec();
    let length = u32::try_from(socket.len()).expect("socket types are short");
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(socket.as_bytes());
    write_command(out, "READY", &data);
}

fn put(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(length) => out.extend_from_slice(&[flags, length]),
        Err(_) => {
            out.push(flags | LONG);
            out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(body);
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(frames: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, body) in frames.iter().enumerate() {
            frame(&mut out, body, i + 1 < frames.len());
        }
        out
    }

    /// Every item of the bytes, fed in pieces of these lengths, and what went wrong in the end.
    fn read(bytes: &[u8], pieces: &[usize]) -> (Vec<Item>, Option<WireError>) {
        let (mut decoder, mut items, mut rest) = (Decoder::default(), Vec::new(), bytes);
        let mut pieces = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
        while !rest.is_empty() {
            let (mut piece, after) = rest.split_at(pieces.next().unwrap_or(usize::MAX).clamp(1, rest.len()));
            rest = after;
            loop {
                match decoder.feed(&mut piece) {
                    Ok(Some(item)) => items.push(item),
                    Ok(None) => break,
                    Err(error) => return (items, Some(error)),
                }
            }
            assert!(piece.is_empty());
        }
        (items, None)
    }

    fn frames(item: &Item) -> Vec<Vec<u8>> {
        match item {
            Item::Message(message) => message.frames().map(<[u8]>::to_vec).collect(),
            Item::Command(_) | Item::TooLarge { .. } => panic!("expected a message, found {item:?}"),
        }
    }

    #[test]
    fn frames_short_long_and_empty_come_as_they_were_sent() {
        let long = vec![7; 300];
        let (items, error) = read(&[message(&[b"topic", &long, b""]), message(&[b""])].concat(), &[]);
        assert_eq!(error, None);
        assert_eq!(frames(&items[0]), [b"topic".to_vec(), long, vec![]]);
        assert_eq!(frames(&items[1]), [vec![0; 0]]);
    }

    #[test]
    fn a_length_that_is_announced_reserves_nothing() {
        let mut decoder = Decoder::default();
        let mut head = [&[LONG][..], &(LONGEST_MESSAGE).to_be_bytes(), b"abc"].concat();
        assert_eq!(decoder.feed(&mut &head[..]), Ok(None));
        assert!(decoder.bytes.capacity() < 1024);
        head[1..9].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(Decoder::default().feed(&mut &head[..]), Err(WireError::LongFrame(u64::MAX)));
    }

    #[test]
    fn what_is_above_the_limits_is_skipped_and_the_next_message_is_read() {
        let five = message(&[b"1", b"2", b"3", b"4", b"5"]);
        let (items, error) = read(&[five, message(&[b"next"])].concat(), &[]);
        assert_eq!((items.len(), error), (2, None));
        assert_eq!(items[0], Item::TooLarge { bytes: 5, frames: 5 });
        assert_eq!(frames(&items[1]), [b"next"]);

        let (mut decoder, chunk) = (Decoder::default(), vec![1; 1 << 20]);
        let announced = LONGEST_MESSAGE + 1;
        let head = [&[LONG][..], &announced.to_be_bytes()].concat();
        assert_eq!(decoder.feed(&mut &head[..]), Ok(None));
        for _ in 0..LONGEST_MESSAGE >> 20 {
            assert_eq!(decoder.feed(&mut &chunk[..]), Ok(None));
        }
        assert_eq!(decoder.bytes.capacity(), 0);
        let tail = [&[1][..], &message(&[b"next"])].concat();
        let mut rest = &tail[..];
        assert_eq!(decoder.feed(&mut rest), Ok(Some(Item::TooLarge { bytes: announced, frames: 1 })));
        assert_eq!(
            decoder.feed(&mut rest).map(|item| item.map(|item| frames(&item))),
            Ok(Some(vec![b"next".to_vec()]))
        );
    }

    #[test]
    fn nonsense_is_named() {
        let endless = [MORE, 0].repeat(1 << 17);
        for (bytes, error) in [
            (&[0x08, 0][..], WireError::Flags(0x08)),
            (&[COMMAND | MORE, 0], WireError::Flags(5)),
            (&[MORE, 0, COMMAND, 0], WireError::Flags(4)),
            (&[COMMAND, 0], WireError::NoCommandName),
            (&[COMMAND, 2, 5, b'R'], WireError::NoCommandName),
            (&[COMMAND | LONG, 0, 0, 0, 0, 1, 0, 0, 0], WireError::LongCommand(1 << 24)),
            (&endless, WireError::EndlessMessage),
        ] {
            assert_eq!(read(bytes, &[]).1, Some(error));
        }
    }

    #[test]
    fn greetings_are_checked_as_they_come() {
        let good = greeting();
        let with = |at: usize, byte: u8| {
            let mut greeting = good;
            greeting[at] = byte;
            greeting
        };
        let newer = with(11, 1);
        for whole in [&good, &newer] {
            (0..=GREETING).for_each(|n| assert_eq!(check_greeting(&whole[..n]), Ok(())));
        }
        assert_eq!(check_greeting(b"H"), Err(WireError::NoGreeting));
        assert_eq!(check_greeting(b"HTTP/1.1 400 Bad Request\r\n"), Err(WireError::NoGreeting));
        assert_eq!(check_greeting(&with(10, 1)[..11]), Err(WireError::Version(1)));
        assert_eq!(check_greeting(&with(12, b'X')), Err(WireError::Mechanism("XULL".into())));
    }

    #[test]
    fn ready_names_the_socket() {
        let ready = |socket: &str| {
            let mut out = Vec::new();
            write_ready(&mut out, socket);
            match read(&out, &[]).0.remove(0) {
                Item::Command(command) => command,
                item => panic!("expected a command, found {item:?}"),
            }
        };
        const EXPECTED: &[&str] = &["PUB", "XPUB"];
        assert_eq!(check_ready(&ready("XPUB"), EXPECTED), Ok(()));
        let error = WireError::SocketType { expected: "PUB", found: "ROUTER".into() };
        assert_eq!(check_ready(&ready("ROUTER"), EXPECTED), Err(error));
        let command = |name: &[u8], data: &[u8]| Command { name: name.to_vec(), data: data.to_vec() };
        let cases = [
            (command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xffPUB"), WireError::Property),
            (command(b"READY", b"\x0bSock"), WireError::Property),
            (command(b"READY", b""), WireError::SocketType { expected: "PUB", found: String::new() }),
            (command(b"ERROR", b"\x02no"), WireError::Refused("no".into())),
            (command(b"HELLO", b""), WireError::NotReady("HELLO".into())),
        ];
        for (command, error) in cases {
            assert_eq!(check_ready(&command, EXPECTED), Err(error));
        }
    }

    proptest! {
        #[test]
        fn bytes_read_alike_however_they_are_cut(
            mut bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..300),
            good in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6),
            pieces in prop::collection::vec(1usize..40, 0..30),
        ) {
            let good: Vec<&[u8]> = good.iter().map(Vec::as_slice).collect();
            let mut whole = message(&good);
            whole.append(&mut bytes);
            prop_assert_eq!(read(&whole, &[]), read(&whole, &pieces));
            prop_assert_eq!(read(&whole, &[]), read(&whole, &vec![1; whole.len()]));
        }
    }
}
