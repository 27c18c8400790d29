//! The listeners of the ext_proc port and of the health port.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::Stream;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::service::{Interceptor, InterceptorLayer};
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::{Request, Status};

use crate::ext_proc::health::Health;
use crate::ext_proc::service::{ExternalProcessor, OpenedAt};
use crate::tasks::Tasks;

/// Streams of one connection that may be open at once: a direct client may well hold thousands.
const MAX_STREAMS: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Streams that a client may cancel before they are looked at; a burst of picks that are dropped at once is no attack.
const PENDING_RESETS: usize = 1 << 16;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the other end of a connection is asked whether it is still there, and how long it has to answer. A host that
/// lost its power says nothing, and what its requests hold would be held for ever.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// Opens a port on every address, of both families where the machine has both.
///
/// # Errors
/// If the port cannot be had; names it.
pub fn listen(port: u16) -> anyhow::Result<TcpListener> {
    crate::listen::everywhere(port).map_err(|e| anyhow::anyhow!("cannot listen on port {port}: {e}"))
}

/// Makes a server with the HTTP/2 settings of the ext_proc port.
pub fn http2() -> Server {
    pinging()
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
}

/// Serves streams until `stop` resolves; then lets open ones finish for as long as the caller keeps polling.
///
/// # Errors
/// If the transport fails.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    service: ExternalProcessor,
    health: Option<Health>,
    connections: &Connections,
    tasks: &Tasks,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let stamp = InterceptorLayer::new(Stamp(Instant::now()));
    let router = http2().layer(stamp).add_service(service).add_optional_service(health.map(|h| h.service()));
    router.serve_with_incoming_shutdown(accept(listener, tls, connections, tasks), stop).await
}

/// Serves health checks in the clear until `stop` resolves.
///
/// # Errors
/// If the transport fails.
pub async fn serve_health(
    listener: TcpListener,
    health: Health,
    tasks: &Tasks,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    pinging()
        .add_service(health.service())
        .serve_with_incoming_shutdown(accept(listener, None, &Connections::default(), tasks), stop)
        .await
}

/// Notes when a stream was opened. Every stream is served on a clone of the service, and the clones are made in the order
/// in which streams are opened; what is done with them then runs side by side, in any order.
struct Stamp(Instant);

impl Clone for Stamp {
    fn clone(&self) -> Self {
        Self(Instant::now())
    }
}

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.extensions_mut().insert(OpenedAt(self.0));
        Ok(request)
    }
}

/// A server that notices when a client is gone without a word.
fn pinging() -> Server {
    Server::builder().http2_keepalive_interval(Some(PING_EVERY)).http2_keepalive_timeout(Some(PING_PATIENCE))
}

/// Counts the connections of the ext_proc port, so that a drain can end when nobody is left.
#[derive(Clone, Debug)]
pub struct Connections(Arc<watch::Sender<usize>>);

impl Default for Connections {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Connections {
    /// Ends once there has been no connection for `quiet`.
    pub async fn none_for(&self, quiet: Duration) {
        let mut count = self.0.subscribe();
        loop {
            // The sender lives as long as `self`, so neither wait ends for want of it.
            let _ = count.wait_for(|n| *n == 0).await;
            if tokio::time::timeout(quiet, count.wait_for(|n| *n > 0)).await.is_err() {
                return;
            }
        }
    }

    fn open(&self) -> OpenConnection {
        self.0.send_modify(|n| *n += 1);
        OpenConnection(self.0.clone())
    }
}

/// One connection in the count.
struct OpenConnection(Arc<watch::Sender<usize>>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

/// Connections as they are ready to be served. Handshakes run side by side, so a slow one holds up nobody.
fn accept(listener: TcpListener, tls: Option<Arc<ServerConfig>>, connections: &Connections, tasks: &Tasks) -> Incoming {
    let connections = connections.clone();
    // A full channel holds back further accepts, and the kernel's backlog takes over.
    let (tx, rx) = mpsc::channel(64);
    let acceptor = tls.map(TlsAcceptor::from);
    let spawn = tasks.clone();
    tasks.spawn("accept", async move {
        while !tx.is_closed() {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of file descriptors or the like: it passes or it does not, but spinning helps nobody.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Without it small answers wait for acknowledgements; a socket that refuses is served all the same.
            let _ = stream.set_nodelay(true);
            match &acceptor {
                None => {
                    let connection = Connection { stream: Transport::Plain(stream), _counted: connections.open() };
                    if tx.send(connection).await.is_err() {
                        return;
                    }
                }
                Some(acceptor) => {
                    let (handshake, tx, counted) = (acceptor.accept(stream), tx.clone(), connections.open());
                    spawn.spawn("handshake", async move {
                        match tokio::time::timeout(HANDSHAKE, handshake).await {
                            // The server may have stopped meanwhile; then nobody wants the connection.
                            Ok(Ok(stream)) => {
                                let stream = Transport::Tls(Box::new(stream));
                                drop(tx.send(Connection { stream, _counted: counted }).await);
                            }
                            Ok(Err(why)) => tracing::debug!(%why, "TLS handshake failed"),
                            Err(_) => tracing::debug!("TLS handshake took too long"),
                        }
                    });
                }
            }
        }
    });
    Incoming(rx)
}

struct Incoming(mpsc::Receiver<Connection>);

impl Stream for Incoming {
    type Item = std::io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|connection| connection.map(Ok))
    }
}

/// A connection that is counted.
struct Connection {
    stream: Transport,
    _counted: OpenConnection,
}

/// Encrypted or not.
enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        match &self.stream {
            Transport::Plain(stream) => stream.connect_info(),
            Transport::Tls(stream) => stream.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.get_mut().stream {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Picks of a host that lost its power were counted in flight for ever.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_vanished_is_let_go() {
        let listener = listen(0).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let health = Health::serving().await;
        tokio::spawn(async move { serve_health(listener, health, &Tasks::default(), std::future::pending()).await });
        let mut client = TcpStream::connect(("127.0.0.1", port)).await.expect("the port is open");
        let preface_and_settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        client.write_all(preface_and_settings).await.expect("the connection is open");
        let mut heard = Vec::new();
        let end = tokio::time::timeout(2 * (PING_EVERY + PING_PATIENCE), client.read_to_end(&mut heard)).await;
        assert!(end.is_ok(), "the connection is still open");
    }
}
