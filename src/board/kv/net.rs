//! Board, KV events: how connections come about: addresses, patience, and pauses between attempts.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::zmtp::connection::Io;
use crate::listen;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);
/// A host that lost its power says nothing: after so long without a word it is asked whether it is there, and how often.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

type Dialed = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Opens connections.
pub trait Dial: Send + Sync {
    /// Connects to the host, which is an address without brackets or a name.
    fn dial(&self, host: &str, port: u16) -> Dialed;
}

/// Opens connections over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial(&self, host: &str, port: u16) -> Dialed {
        let host = host.to_owned();
        Box::pin(async move {
            let connected = timeout(CONNECT, TcpStream::connect((host.as_str(), port))).await;
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {CONNECT:?}"));
            let stream = connected.map_err(late)??;
            keep_alive(&stream)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// Has the system notice when the other end is gone without a word.
///
/// # Errors
/// If the socket is broken.
pub fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let often = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_EVERY);
    SockRef::from(stream).set_tcp_keepalive(&often)?;
    stream.set_nodelay(true)
}

/// Where to listen for publishers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// `None`: every address of the machine.
    host: Option<IpAddr>,
    port: u16,
}

/// Why nobody can listen there.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("expected an address to bind such as tcp://*:5557, found {0:?}")]
    Address(String),
    #[error("cannot listen for KV events at {address}: {error}")]
    Listen { address: String, error: io::Error },
}

impl BindAddress {
    /// Reads a ZeroMQ address.
    ///
    /// # Errors
    /// If it is no address of TCP with a number for the port, and an address or `*` for the host.
    pub fn parse(text: &str) -> Result<Self, BindError> {
        Self::read(text).ok_or_else(|| BindError::Address(text.to_owned()))
    }

    fn read(text: &str) -> Option<Self> {
        let (host, port) = text.strip_prefix("tcp://")?.rsplit_once(':')?;
        let host = match host {
            "*" => None,
            _ => match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
                Some(inside) => Some(IpAddr::V6(inside.parse().ok()?)),
                None => Some(IpAddr::V4(host.parse().ok()?)),
            },
        };
        Some(Self { host, port: port.parse().ok()? })
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// If the port cannot be had.
    pub fn listen(self) -> io::Result<TcpListener> {
        match self.host {
            Some(host) => listen::at(SocketAddr::new(host, self.port)),
            None => listen::everywhere(self.port),
        }
    }
}

/// Pauses between attempts: each twice as long as the last, and up to half of it shorter by chance, so that the peers of a
/// host that comes back do not come all at once.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    /// The longest pause; a connection that lasts as long as that was a good one.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::LONGEST);
        pause.mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_bind_are_those_of_zeromq() {
        for (text, host, port) in [
            ("tcp://*:5557", None, 5557),
            ("tcp://127.0.0.1:1", Some("127.0.0.1"), 1),
            ("tcp://0.0.0.0:5557", Some("0.0.0.0"), 5557),
            ("tcp://[::]:5557", Some("::"), 5557),
            ("tcp://[::1]:5557", Some("::1"), 5557),
        ] {
            let host = host.map(|host| host.parse().unwrap());
            assert_eq!(BindAddress::parse(text).unwrap(), BindAddress { host, port }, "{text}");
        }
        for text in
            ["", "tcp://", "*:5557", "tcp://*", "tcp://*:*", "tcp://*:65536", "tcp://::1:5", "ipc:///x", "tcp://a:1"]
        {
            let line = BindAddress::parse(text).unwrap_err().to_string();
            assert_eq!(line, format!("expected an address to bind such as tcp://*:5557, found {text:?}"));
        }
    }

    #[test]
    fn pauses_grow_and_stay_within_bounds() {
        let mut backoff = Backoff::default();
        for longest in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff.pause();
            let longest = Duration::from_millis(longest);
            assert!(pause <= longest && pause >= longest / 2, "{pause:?} of {longest:?}");
        }
    }
}
