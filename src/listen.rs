//! Ports that connections come in at.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be taken over.
const BACKLOG: i32 = 1024;

/// Opens a port on every address, of both families where the machine has both.
///
/// # Errors
/// If the port cannot be had.
pub fn everywhere(port: u16) -> io::Result<TcpListener> {
    match at((Ipv6Addr::UNSPECIFIED, port).into()) {
        // A machine without IPv6.
        Err(e) if e.kind() != io::ErrorKind::AddrInUse => at((Ipv4Addr::UNSPECIFIED, port).into()),
        listener => listener,
    }
}

/// Opens a port on one address; on that of all IPv6 addresses, on all IPv4 addresses, too.
///
/// # Errors
/// If the port cannot be had.
pub fn at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
