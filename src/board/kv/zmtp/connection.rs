//! Board, KV events, ZMTP: a connection to one peer, from the greeting on.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::wire::{self, Decoder, GREETING, Item, Message, WireError};

/// How long a peer may take for its greeting and its READY.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long it may take to take what is sent, which is never much.
const WRITE: Duration = Duration::from_secs(5);
/// How much is read at once. The space is on the stack while reading, so a silent connection holds no buffer.
const READ: usize = 16 << 10;
/// The longest context of a PING by the protocol.
const LONGEST_CONTEXT: usize = 16;

/// What carries the bytes.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why a connection has ended or did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("the peer has closed the connection")]
    Closed,
    #[error("expected the peer's part of the handshake within {HANDSHAKE:?}, found it unfinished")]
    SlowHandshake,
    #[error("expected the peer to take what is sent within {WRITE:?}, found it waiting")]
    SlowWrite,
}

/// What this side of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Hears messages of the topics that it subscribes to.
    Sub,
    /// Asks and is answered.
    Dealer,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Self::Sub => "SUB",
            Self::Dealer => "DEALER",
        }
    }

    /// The types of sockets that it may speak to.
    fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Sub => &["PUB", "XPUB"],
            Self::Dealer => &["ROUTER", "REP", "DEALER"],
        }
    }
}

/// What a peer sends once the handshake is done.
#[derive(Debug)]
pub enum Heard {
    Message(Message),
    /// A message above the limits, which was dropped.
    TooLarge {
        bytes: u64,
        frames: u64,
    },
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub struct Connection<I> {
    io: I,
    decoder: Decoder,
    /// Read and not looked at yet.
    pending: Vec<u8>,
    at: usize,
}

impl<I: Io> Connection<I> {
    /// Does the handshake.
    ///
    /// # Errors
    /// If the peer does not do its part in time.
    pub async fn open(io: I, socket: Socket) -> Result<Self, ConnectionError> {
        let mut connection = Self { io, decoder: Decoder::default(), pending: Vec::new(), at: 0 };
        let shaken = timeout(HANDSHAKE, connection.handshake(socket)).await;
        shaken.map_err(|_| ConnectionError::SlowHandshake)??;
        Ok(connection)
    }

    async fn handshake(&mut self, socket: Socket) -> Result<(), ConnectionError> {
        self.write(&wire::greeting()).await?;
        while self.pending.len() < GREETING {
            self.fill().await?;
            let so_far = &self.pending[..self.pending.len().min(GREETING)];
            wire::check_greeting(so_far)?;
        }
        self.at = GREETING;
        let mut out = Vec::new();
        wire::write_ready(&mut out, socket.name());
        self.write(&out).await?;
        match self.item().await? {
            Item::Command(command) => Ok(wire::check_ready(&command, socket.peers())?),
            Item::Message(_) | Item::TooLarge { .. } => Err(WireError::NotReady("a message".to_owned()).into()),
        }
    }

    /// Asks for messages whose topic begins with this.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn subscribe(&mut self, topic: &str) -> Result<(), ConnectionError> {
        self.send(&[&[&[1], topic.as_bytes()].concat()]).await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn send(&mut self, frames: &[&[u8]]) -> Result<(), ConnectionError> {
        let mut out = Vec::new();
        for (i, body) in frames.iter().enumerate() {
            wire::frame(&mut out, body, i + 1 < frames.len());
        }
        self.write(&out).await
    }

    /// Waits for the next message; answers what the protocol itself asks.
    ///
    /// # Errors
    /// If the connection breaks or the peer speaks nonsense.
    pub async fn next(&mut self) -> Result<Heard, ConnectionError> {
        loop {
            match self.item().await? {
                Item::Message(message) => return Ok(Heard::Message(message)),
                Item::TooLarge { bytes, frames } => return Ok(Heard::TooLarge { bytes, frames }),
                Item::Command(command) => match command.name.as_slice() {
                    b"PING" => {
                        // Two bytes say how long the peer waits.
                        let context = command.data.get(2..).unwrap_or_default();
                        let context = &context[..context.len().min(LONGEST_CONTEXT)];
                        let mut out = Vec::new();
                        wire::write_command(&mut out, "PONG", context);
                        self.write(&out).await?;
                    }
                    b"ERROR" => return Err(wire::refused(&command).into()),
                    // PONG, and what this side has no use for.
                    _ => {}
                },
            }
        }
    }

    /// Takes a message back that is done with.
    pub fn reuse(&mut self, message: Message) {
        self.decoder.reuse(message);
    }

    /// Whether bytes are here that were not looked at yet.
    pub fn has_pending(&self) -> bool {
        self.at < self.pending.len()
    }

    async fn item(&mut self) -> Result<Item, ConnectionError> {
        loop {
            let mut rest = &self.pending[self.at..];
            let item = self.decoder.feed(&mut rest)?;
            self.at = self.pending.len() - rest.len();
            if let Some(item) = item {
                return Ok(item);
            }
            (self.pending, self.at) = (Vec::new(), 0);
            self.fill().await?;
        }
    }

    /// Waits for more bytes and keeps them in `pending`.
    async fn fill(&mut self) -> Result<(), ConnectionError> {
        let (io, pending) = (&mut self.io, &mut self.pending);
        let n = poll_fn(|cx| {
            let mut space = [const { MaybeUninit::uninit() }; READ];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer))?;
            pending.extend_from_slice(buffer.filled());
            Poll::Ready(std::io::Result::Ok(buffer.filled().len()))
        });
        match n.await? {
            0 => Err(ConnectionError::Closed),
            _ => Ok(()),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        let written = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        timeout(WRITE, written).await.map_err(|_| ConnectionError::SlowWrite)?.map_err(Into::into)
    }
}
