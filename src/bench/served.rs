//! Sends requests over HTTP/1.1 and reads the responses, with the moments at which their parts came.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderName, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use parking_lot::Mutex;

use crate::bench::client::Question;
use crate::bench::dial::Dial;
use crate::bench::events::{Counts, Events, Kind};

/// Why a gateway that asks a picker has no endpoint for a request.
const REASON: &str = "x-llm-d-request-dropped-reason";

/// Whoever answers over HTTP; connections are kept.
pub struct Servers {
    dial: Dial,
    /// The response header that names the endpoint.
    endpoint_header: HeaderName,
    /// Connections that wait for their next request, by address.
    idle: Mutex<HashMap<String, Vec<SendRequest<Full<Bytes>>>>>,
}

/// What came of a request.
pub enum Reply<'a> {
    Begun(Box<Coming<'a>>),
    /// Another status than 200, and the reason if one is given.
    Refused(StatusCode, Option<String>),
}

/// A response whose headers are there.
pub struct Coming<'a> {
    servers: &'a Servers,
    address: String,
    connection: SendRequest<Full<Bytes>>,
    body: Incoming,
    events: Events,
    pub endpoint: Option<String>,
    /// When the headers came.
    pub headers: Instant,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

/// A response that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub headers: Instant,
    pub first_token: Instant,
    pub last_token: Instant,
    pub ended: Instant,
    /// As the usage has it, or else as they came.
    pub output_tokens: u32,
    pub usage: Option<Counts>,
}

impl Servers {
    /// Reaches servers by `dial`, whose responses name the endpoint in this header.
    pub fn new(dial: Dial, endpoint_header: HeaderName) -> Self {
        Self { dial, endpoint_header, idle: Mutex::default() }
    }

    /// Opens the first connection.
    ///
    /// # Errors
    /// If nobody takes it.
    pub async fn connect(&self, address: &str) -> anyhow::Result<()> {
        let connection = self.open(address).await?;
        self.keep(address, connection);
        Ok(())
    }

    /// Sends a request, and waits for the headers of the response.
    ///
    /// # Errors
    /// If nobody answers.
    pub async fn send(&self, address: &str, question: &Question) -> anyhow::Result<Reply<'_>> {
        let mut request = Request::builder().method(Method::POST).uri(&question.path).header(HOST, address);
        request = request.header(CONTENT_TYPE, "application/json");
        for (name, value) in &question.headers {
            request = request.header(*name, value);
        }
        let mut request = request.body(Full::new(question.body.clone()))?;
        let (response, connection) = loop {
            let kept = self.take(address);
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.open(address).await?,
            };
            match connection.try_send_request(request).await {
                Ok(response) => break (response, connection),
                // It was closed while nothing was asked; the request was not sent.
                Err(mut why) => match why.take_message().filter(|_| reused) {
                    Some(unsent) => request = unsent,
                    None => return Err(why.into_error()).with_context(|| format!("no answer from {address}")),
                },
            }
        };
        let (head, body) = response.into_parts();
        let text = |name: &str| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
        if head.status != StatusCode::OK {
            return Ok(Reply::Refused(head.status, text(REASON)));
        }
        let events = text(CONTENT_TYPE.as_str()).is_some_and(|t| t.contains("event-stream"));
        Ok(Reply::Begun(Box::new(Coming {
            servers: self,
            address: address.to_owned(),
            connection,
            body,
            events: Events::new(if events { Kind::Events } else { Kind::Whole }),
            endpoint: text(self.endpoint_header.as_str()),
            headers: Instant::now(),
            first_token: None,
            last_token: None,
        })))
    }

    async fn open(&self, address: &str) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let io = self.dial.connect(address).await.with_context(|| format!("cannot reach {address}"))?;
        let (sender, connection) = http1::handshake(io).await.with_context(|| format!("cannot reach {address}"))?;
        // Whoever waits for an answer is told why there is none.
        tokio::spawn(async move { _ = connection.await });
        Ok(sender)
    }

    fn take(&self, address: &str) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(address)?;
        while let Some(connection) = kept.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, address: &str, connection: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock();
        match idle.get_mut(address) {
            Some(kept) => kept.push(connection),
            None => _ = idle.insert(address.to_owned(), vec![connection]),
        }
    }
}

impl Coming<'_> {
    /// Waits for the first token, or for the end if there is none before it.
    ///
    /// # Errors
    /// If the response breaks off, or is none.
    pub async fn first(&mut self) -> anyhow::Result<()> {
        while self.first_token.is_none() && self.frame().await? {}
        Ok(())
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// If the response breaks off, or is none.
    pub async fn rest(mut self) -> anyhow::Result<Served> {
        while self.frame().await? {}
        let ended = Instant::now();
        let told = self.events.finish().map_err(|why| anyhow!(why))?;
        // The connection says that it is ready only after the end of the body has been seen.
        if self.connection.ready().await.is_ok() {
            self.servers.keep(&self.address, self.connection);
        }
        Ok(Served {
            headers: self.headers,
            first_token: self.first_token.unwrap_or(ended),
            last_token: self.last_token.unwrap_or(ended),
            ended,
            output_tokens: told.usage.map_or(told.tokens, |usage| usage.completion),
            usage: told.usage,
        })
    }

    /// Takes the next piece; false at the end.
    async fn frame(&mut self) -> anyhow::Result<bool> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let frame =
            frame.with_context(|| format!("the response broke off after {} tokens", self.events.told().tokens))?;
        let Some(bytes) = frame.data_ref() else { return Ok(true) };
        let before = self.events.told().tokens;
        self.events.feed(bytes).map_err(|why| anyhow!(why))?;
        if self.events.told().tokens > before {
            let now = Instant::now();
            self.first_token.get_or_insert(now);
            self.last_token = Some(now);
        }
        Ok(true)
    }
}
