//! Board, scraping: fetches a page over one connection that is kept from scrape to scrape.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HOST, LOCATION, TRANSFER_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::target::{Place, Target, TargetError};
use super::tls;
use crate::board::exposition::ends_with_a_line;

/// The largest page, in bytes.
pub const MOST_BYTES: usize = 16 << 20;

/// The largest body of an answer that is no page; a longer one costs the connection.
const MOST_BYTES_ASIDE: usize = 64 << 10;

/// How much memory is taken on the word of an answer's length.
const MOST_BYTES_AHEAD: usize = 1 << 20;

/// How many redirects are followed within one scrape.
const MOST_REDIRECTS: usize = 4;

/// What of an answer is read at a time; headers must fit.
const READ_BYTES: usize = 128 << 10;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("cannot agree on TLS: {0}")]
    Tls(io::Error),
    #[error("expected an answer within {0:?}, found none")]
    TimedOut(std::time::Duration),
    #[error("expected a whole answer, found: {0}")]
    Broken(#[from] hyper::Error),
    #[error("expected status 200, found {}", .0.as_u16())]
    Status(StatusCode),
    #[error("expected a page that is not encoded, found {0:?}")]
    Encoded(HeaderValue),
    #[error("expected at most {MOST_BYTES} bytes, found more")]
    TooLarge,
    #[error("expected a whole page, found one that ends within a line")]
    Cut,
    #[error("expected at most {MOST_REDIRECTS} redirects, found more")]
    Redirects,
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl FetchError {
    /// Whether the engine answered at no great cost, so that it may be asked again as soon as ever.
    pub fn was_an_answer(&self) -> bool {
        match self {
            Self::Status(_) | Self::Encoded(_) | Self::Redirects | Self::Target(_) => true,
            Self::Connect(_) | Self::Tls(_) | Self::TimedOut(_) | Self::Broken(_) | Self::TooLarge | Self::Cut => false,
        }
    }
}

/// Fetches the pages of one endpoint and source, one at a time. A fetch that is dropped takes its connection with it.
#[derive(Debug)]
pub struct Client {
    tls: Option<Arc<ClientConfig>>,
    link: Option<Link>,
}

impl Client {
    /// Makes a client; without a TLS set-up it speaks only plain HTTP.
    pub fn new(tls: Option<Arc<ClientConfig>>) -> Self {
        Self { tls, link: None }
    }

    /// Fetches a page into `page`, whose memory is used again.
    ///
    /// # Errors
    /// If what comes is not a whole page with status 200; `page` then holds anything.
    pub async fn fetch(&mut self, target: &Target, page: &mut Vec<u8>) -> Result<(), FetchError> {
        let answer = self.ask(target, page).await?;
        let Some(mut location) = answer else { return Ok(()) };
        let mut target = target.clone();
        for _ in 0..MOST_REDIRECTS {
            target = target.follow(&location)?;
            match self.ask(&target, page).await? {
                None => return Ok(()),
                Some(next) => location = next,
            }
        }
        Err(FetchError::Redirects)
    }

    /// Asks once; gives the location if the answer is a redirect.
    async fn ask(&mut self, target: &Target, page: &mut Vec<u8>) -> Result<Option<String>, FetchError> {
        let (mut link, answer) = self.send(target).await?;
        let (head, mut body) = answer.into_parts();
        page.clear();
        if head.status != StatusCode::OK {
            let drained = link.read(&mut body, page, MOST_BYTES_ASIDE).await;
            if drained.is_ok() {
                self.link = Some(link);
            }
            return location(head.status, &head.headers).map(Some).ok_or(FetchError::Status(head.status));
        }
        if let Some(encoding) =
            head.headers.get(CONTENT_ENCODING).filter(|e| !e.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            return Err(FetchError::Encoded(encoding.clone()));
        }
        let until_closed = body.size_hint().exact().is_none() && !head.headers.contains_key(TRANSFER_ENCODING);
        link.read(&mut body, page, MOST_BYTES).await?;
        if until_closed && !ends_with_a_line(page) {
            return Err(FetchError::Cut);
        }
        self.link = Some(link);
        Ok(None)
    }

    /// Sends the request over the kept connection if that still works, else over a new one.
    async fn send(&mut self, target: &Target) -> Result<(Link, Response<Incoming>), FetchError> {
        if let Some(mut link) = self.link.take().filter(|l| l.place == target.place) {
            // The engine may have closed it since, which shows only now.
            if let Ok(answer) = link.send(target).await {
                return Ok((link, answer));
            }
        }
        let mut link = Link::open(&target.place, self.tls.as_ref()).await?;
        let answer = link.send(target).await?;
        Ok((link, answer))
    }
}

fn location(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    headers.get(LOCATION).filter(|_| is_redirect)?.to_str().ok().map(str::to_owned)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection. It moves only while something is awaited on it, so it needs no task of its own.
struct Link {
    place: Place,
    sender: SendRequest<Empty<Bytes>>,
    /// `None` once it is closed.
    connection: Option<Pin<Box<Moving>>>,
}

type Moving = Connection<TokioIo<Box<dyn Stream>>, Empty<Bytes>>;

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({:?})", self.place)
    }
}

impl Link {
    async fn open(place: &Place, tls: Option<&Arc<ClientConfig>>) -> Result<Self, FetchError> {
        let tcp = TcpStream::connect((place.host.as_str(), place.port)).await.map_err(FetchError::Connect)?;
        tcp.set_nodelay(true).map_err(FetchError::Connect)?;
        let stream: Box<dyn Stream> = match tls.filter(|_| place.tls) {
            Some(config) => {
                let name = tls::server_name(&place.host).map_err(FetchError::Tls)?;
                Box::new(TlsConnector::from(config.clone()).connect(name, tcp).await.map_err(FetchError::Tls)?)
            }
            None => Box::new(tcp),
        };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_BYTES);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { place: place.clone(), sender, connection: Some(Box::pin(connection)) })
    }

    async fn send(&mut self, target: &Target) -> Result<Response<Incoming>, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = target.path.clone();
        request.headers_mut().insert(HOST, target.host_header.clone());
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("epp"));
        let Self { sender, connection, .. } = self;
        let exchange = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        Ok(drive(connection, exchange).await?)
    }

    async fn read(&mut self, body: &mut Incoming, page: &mut Vec<u8>, most: usize) -> Result<(), FetchError> {
        let expected = body.size_hint().lower();
        if expected > most as u64 {
            return Err(FetchError::TooLarge);
        }
        // A length is believed only so far before the bytes are there.
        page.reserve((expected as usize).min(MOST_BYTES_AHEAD));
        let pieces = async {
            while let Some(frame) = body.frame().await {
                let Ok(piece) = frame?.into_data() else { continue };
                if page.len() + piece.len() > most {
                    return Err(FetchError::TooLarge);
                }
                page.extend_from_slice(&piece);
            }
            Ok(())
        };
        drive(&mut self.connection, pieces).await
    }
}

/// Awaits `work` and moves the connection meanwhile.
async fn drive<C: Future, T>(connection: &mut Option<Pin<Box<C>>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        // What ends the connection is told to `work`, too.
        if connection.as_mut().is_some_and(|c| c.as_mut().poll(cx).is_ready()) {
            *connection = None;
        }
        work.as_mut().poll(cx)
    })
    .await
}
