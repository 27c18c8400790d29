//! Plays a client of a picker, or Envoy: asks where a request goes, then tells of its response until it is complete.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{anyhow, bail};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

use crate::bench::dial::Dial;
use crate::ext_proc::answer::DESTINATION;
use crate::ext_proc::service::METHOD;
use crate::ext_proc::wire::{
    HeaderMap, HeaderValue, HttpBody, HttpHeaders, Mutation, PhaseResponse, ProcessingRequest, ProcessingResponse,
    ProtocolConfiguration, Request as Phase, Response,
};

/// Bytes of a body in one message in duplex mode.
const PIECE: usize = 62_000;
/// Messages of one stream that wait to be sent; the sender waits when there are more.
const WAITING: usize = 32;

/// Who asks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A client that sends headers and body at once, and dispatches the request itself.
    Direct,
    /// Envoy that sends the body in one message after the headers are answered, and no response body.
    Lean,
    /// Envoy that sends the body in pieces right behind the headers; it travels back, as the response's does.
    Duplex,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    pub path: String,
    pub body: Bytes,
    /// Headers beside those that every request has.
    pub headers: Vec<(&'static str, String)>,
}

/// What the response says of its tokens.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    pub cached_tokens: Option<u32>,
}

/// What came of a question.
#[derive(Debug)]
pub enum Answer {
    Picked(Box<Open>),
    /// The picker answers the request itself, with this status.
    Refused(i32),
}

/// Connections to a picker, which take streams in turns.
#[derive(Debug)]
pub struct Client {
    channels: Vec<Channel>,
    next: AtomicUsize,
    mode: Mode,
}

/// A stream whose request has an endpoint.
#[derive(Debug)]
pub struct Open {
    /// The endpoints as the picker names them.
    pub destination: String,
    tx: mpsc::Sender<ProcessingRequest>,
    answers: Streaming<ProcessingResponse>,
    mode: Mode,
}

impl Client {
    /// Connects so many times; tries again for as long as `patience` lasts.
    ///
    /// # Errors
    /// If nobody takes connections at the address.
    pub async fn connect(
        address: &str,
        dial: &Dial,
        mode: Mode,
        connections: usize,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?;
        let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(16 << 20);
        let end = tokio::time::Instant::now() + patience;
        let mut channels = Vec::new();
        while channels.len() < connections.max(1) {
            let (dial, to) = (dial.clone(), address.to_owned());
            let connect = move |_: Uri| {
                let (dial, to) = (dial.clone(), to.clone());
                async move { dial.connect(&to).await }
            };
            match endpoint.connect_with_connector(tower::service_fn(connect)).await {
                Ok(channel) => channels.push(channel),
                Err(why) if tokio::time::Instant::now() >= end => {
                    // Those around it say the same again.
                    let why = anyhow::Error::new(why);
                    bail!("cannot reach {address}: {}", why.root_cause());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(Self { channels, next: AtomicUsize::new(0), mode })
    }

    /// Asks, and waits until it is known where the request goes. In duplex mode the body has come back by then, too.
    ///
    /// # Errors
    /// If the stream breaks off or ends without a word of that.
    pub async fn ask(&self, question: Question) -> anyhow::Result<Answer> {
        let (tx, rx) = mpsc::channel(WAITING);
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.channels.len();
        // As Python's gRPC clients say without being asked.
        let mut grpc = Grpc::new(self.channels[at].clone())
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(usize::MAX);
        grpc.ready().await?;
        tx.send(self.mode.headers(&question)).await?;
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        let opening = grpc.streaming(tonic::Request::new(ReceiverStream::new(rx)), path, codec);
        // A picker may say nothing before it has the whole body, not even that the stream is open. Whoever does not want
        // the rest of it says why in an answer.
        let (opened, _) = tokio::join!(opening, self.mode.send_unasked(&tx, question.body.clone()));
        let answers = opened.map_err(|status| anyhow!("{:?}: {}", status.code(), status.message()))?.into_inner();
        let mut open = Open { destination: String::new(), tx, answers, mode: self.mode };
        if self.mode == Mode::Lean {
            if let Some(status) = open.take().await? {
                return Ok(Answer::Refused(status));
            }
            open.tx.send(piece(question.body, true)).await?;
        }
        while open.destination.is_empty() {
            if let Some(status) = open.take().await? {
                return Ok(Answer::Refused(status));
            }
        }
        if self.mode == Mode::Duplex {
            while !open.next().await?.is_some_and(|answer| ends_body(&answer)) {}
        }
        Ok(Answer::Picked(Box::new(open)))
    }
}

impl Open {
    /// Lets the request be in flight until `what` has come, however much the picker has to say meanwhile.
    ///
    /// # Errors
    /// If the picker ends the stream before that.
    pub async fn until<T>(&mut self, what: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::pin!(what);
        loop {
            tokio::select! {
                come = &mut what => return Ok(come),
                said = self.answers.message() => {
                    if said.map_err(|status| anyhow!("{:?}: {}", status.code(), status.message()))?.is_none() {
                        bail!("the picker ended the stream of a request in flight");
                    }
                }
            }
        }
    }

    /// Tells of the headers of the response.
    ///
    /// # Errors
    /// If the picker has ended the stream.
    pub async fn began(&self) -> anyhow::Result<()> {
        let status = [(":status", "200"), ("content-type", "application/json")];
        let head = HttpHeaders { headers: Some(header_map(&status)), end_of_stream: false };
        self.tx.send(ProcessingRequest { request: Some(Phase::ResponseHeaders(head)), ..Default::default() }).await?;
        Ok(())
    }

    /// Tells that the first token has come.
    ///
    /// # Errors
    /// If the picker has ended the stream.
    pub async fn spoke(&self) -> anyhow::Result<()> {
        if self.mode != Mode::Lean {
            self.tx.send(told(Bytes::from_static(b" "), false)).await?;
        }
        Ok(())
    }

    /// Tells of the rest of the response, which has this usage, and ends the stream.
    ///
    /// # Errors
    /// If the stream does not end well.
    pub async fn ended(self, usage: Usage) -> anyhow::Result<()> {
        if self.mode != Mode::Lean {
            let Usage { prompt_tokens, completion_tokens, cached_tokens } = usage;
            let total = u64::from(prompt_tokens) + u64::from(completion_tokens);
            let cached = cached_tokens.map(|n| format!(r#","prompt_tokens_details":{{"cached_tokens":{n}}}"#));
            let body = format!(
                r#"{{"usage":{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},"total_tokens":{total}{}}}}}"#,
                cached.unwrap_or_default()
            );
            self.tx.send(told(body.into(), true)).await?;
        }
        self.leave().await
    }

    /// Ends the stream, and waits until the picker does.
    ///
    /// # Errors
    /// If the stream does not end well.
    pub async fn leave(self) -> anyhow::Result<()> {
        let Self { tx, mut answers, .. } = self;
        drop(tx);
        while answers.message().await.map_err(|s| anyhow!("{:?}: {}", s.code(), s.message()))?.is_some() {}
        Ok(())
    }

    async fn next(&mut self) -> anyhow::Result<Option<Response>> {
        let answer = self.answers.message().await.map_err(|s| anyhow!("{:?}: {}", s.code(), s.message()))?;
        let answer = answer.ok_or_else(|| anyhow!("the picker ended the stream without an answer"))?;
        Ok(answer.response)
    }

    /// Takes one answer; gives the status if the picker refuses the request.
    async fn take(&mut self) -> anyhow::Result<Option<i32>> {
        match self.next().await? {
            Some(Response::Immediate(immediate)) => return Ok(Some(immediate.status.map_or(0, |s| s.code))),
            Some(Response::RequestHeaders(answer) | Response::RequestBody(answer)) => {
                if let Some(destination) = destination(&answer) {
                    self.destination = destination;
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

impl Mode {
    /// Sends what goes out right behind the headers.
    async fn send_unasked(self, tx: &mpsc::Sender<ProcessingRequest>, mut body: Bytes) -> anyhow::Result<()> {
        match self {
            Self::Lean => return Ok(()),
            Self::Direct => {}
            Self::Duplex => {
                while body.len() > PIECE {
                    tx.send(piece(body.split_to(PIECE), false)).await?;
                }
            }
        }
        Ok(tx.send(piece(body, true)).await?)
    }

    fn headers(self, question: &Question) -> ProcessingRequest {
        let length = question.body.len().to_string();
        let mut pairs = vec![
            (":method", "POST"),
            (":path", question.path.as_str()),
            ("content-type", "application/json"),
            ("content-length", &length),
        ];
        if self != Mode::Direct {
            pairs.extend([
                (":scheme", "http"),
                (":authority", "llm.example.com"),
                ("accept", "application/json"),
                ("accept-encoding", "gzip, deflate"),
                ("user-agent", "OpenAI/Python 1.99.1"),
                ("authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
                ("x-forwarded-proto", "http"),
                ("x-envoy-expected-rq-timeout-ms", "15000"),
            ]);
        }
        pairs.extend(question.headers.iter().map(|(name, value)| (*name, value.as_str())));
        let modes = match self {
            Self::Direct => None,
            Self::Lean => Some((2, 0)),
            Self::Duplex => Some((4, 4)),
        };
        let head = HttpHeaders { headers: Some(header_map(&pairs)), end_of_stream: false };
        ProcessingRequest {
            request: Some(Phase::RequestHeaders(head)),
            protocol_config: modes.map(|(request_body_mode, response_body_mode)| ProtocolConfiguration {
                request_body_mode,
                response_body_mode,
                send_body_without_waiting_for_header_response: false,
            }),
            metadata_context: None,
        }
    }
}

fn header_map(pairs: &[(&str, &str)]) -> HeaderMap {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).into(),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HeaderMap { headers: pairs.iter().map(header).collect() }
}

fn piece(body: Bytes, end_of_stream: bool) -> ProcessingRequest {
    ProcessingRequest { request: Some(Phase::RequestBody(HttpBody { body, end_of_stream })), ..Default::default() }
}

fn told(body: Bytes, end_of_stream: bool) -> ProcessingRequest {
    ProcessingRequest { request: Some(Phase::ResponseBody(HttpBody { body, end_of_stream })), ..Default::default() }
}

fn destination(answer: &PhaseResponse) -> Option<String> {
    let set = &answer.response.as_ref()?.header_mutation.as_ref()?.set_headers;
    let header = set.iter().filter_map(|option| option.header.as_ref()).find(|header| header.key == DESTINATION)?;
    Some(String::from_utf8_lossy(header.bytes()).into_owned())
}

/// Whether it is the last piece of a request's body.
fn ends_body(answer: &Response) -> bool {
    let Response::RequestBody(PhaseResponse { response: Some(common) }) = answer else { return false };
    match common.body_mutation.as_ref().and_then(|body| body.mutation.as_ref()) {
        Some(Mutation::Streamed(piece)) => piece.end_of_stream,
        Some(Mutation::Body(_)) | None => false,
    }
}
