//! Plays Envoy as `envoy/lean.yaml` sets it up: one stream a request, open for as long as the request lasts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use epp::ext_proc::answer::DESTINATION;
use epp::ext_proc::service::METHOD;
use epp::ext_proc::wire::{
    CommonResponse, HeaderMap, HeaderMutation, HeaderValue, HttpBody, HttpHeaders, PhaseResponse, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration, Request as Phase, Response,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// The header that tells why a request is refused.
const REASON: &str = "x-llm-d-request-dropped-reason";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub body: Bytes,
    /// `None`: of priority 0.
    pub objective: Option<&'static str>,
    pub tenant: String,
}

/// What the picker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Address and port.
    Picked(String),
    Refused {
        status: i32,
        /// `None`: it did not say why.
        reason: Option<String>,
    },
}

/// A stream whose request has been answered.
pub struct Open {
    tx: mpsc::Sender<ProcessingRequest>,
    answers: Streaming<ProcessingResponse>,
}

impl Open {
    /// Ends the request; what the picker said since it answered, if it said something.
    pub async fn end(mut self) -> Result<Option<Answer>, String> {
        drop(self.tx);
        let mut told = None;
        while let Some(answer) = self.answers.message().await.map_err(|e| format!("at the end: {e}"))? {
            told = told.or(answer_of(answer));
        }
        Ok(told)
    }
}

/// Connections to a picker.
pub struct Client {
    channels: Vec<Channel>,
    next: AtomicUsize,
}

impl Client {
    /// Connects so many times; waits for a picker that is not up yet.
    pub async fn connect(port: u16, connections: usize) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a valid address");
        let mut channels = Vec::new();
        for _ in 0..400 {
            match endpoint.connect().await {
                Ok(channel) => channels.push(channel),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            if channels.len() == connections {
                return Self { channels, next: AtomicUsize::new(0) };
            }
        }
        panic!("nobody listens on port {port}")
    }

    /// Asks, and waits for as long as it takes. An error is a request that got no answer.
    pub async fn ask(&self, request: &Request) -> Result<(Answer, Open), String> {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.channels.len();
        let (tx, rx) = mpsc::channel(4);
        let closed = |_| "the stream ended before its body was sent".to_owned();
        tx.send(headers(request)).await.map_err(closed)?;
        let mut grpc = Grpc::new(self.channels[at].clone());
        grpc.ready().await.map_err(|e| format!("no connection: {e}"))?;
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let opened =
            grpc.streaming(tonic::Request::new(ReceiverStream::new(rx)), METHOD.parse().expect("a path"), codec);
        let mut answers = opened.await.map_err(|e| format!("no stream: {e}"))?.into_inner();
        let body = HttpBody { body: request.body.clone(), end_of_stream: true };
        let body = ProcessingRequest { request: Some(Phase::RequestBody(body)), ..ProcessingRequest::default() };
        tx.send(body).await.map_err(closed)?;
        loop {
            let answer = answers.message().await.map_err(|e| format!("no answer: {e}"))?;
            let answer = answer.ok_or("the stream ended without an answer")?;
            if let Some(answer) = answer_of(answer) {
                return Ok((answer, Open { tx, answers }));
            }
        }
    }
}

fn answer_of(answer: ProcessingResponse) -> Option<Answer> {
    let value = |mutation: HeaderMutation, key: &str| {
        let mut set = mutation.set_headers.into_iter().filter_map(|option| option.header);
        set.find(|header| header.key == key).map(|h| String::from_utf8_lossy(h.bytes()).into_owned())
    };
    match answer.response? {
        Response::Immediate(answer) => Some(Answer::Refused {
            status: answer.status.map_or(0, |status| status.code),
            reason: answer.headers.and_then(|headers| value(headers, REASON)),
        }),
        Response::RequestHeaders(phase) | Response::RequestBody(phase) => {
            let PhaseResponse { response: Some(CommonResponse { header_mutation: Some(mutation), .. }) } = phase else {
                return None;
            };
            value(mutation, DESTINATION).map(Answer::Picked)
        }
        _ => None,
    }
}

fn headers(request: &Request) -> ProcessingRequest {
    let length = request.body.len().to_string();
    let objective = request.objective.map(|objective| ("x-llm-d-inference-objective", objective));
    let pairs = [
        (":method", "POST"),
        (":path", "/v1/completions"),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("x-llm-d-inference-fairness-id", &request.tenant),
    ];
    let header = |(key, value): (&str, &str)| HeaderValue {
        key: key.into(),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let headers = pairs.into_iter().chain(objective).map(header).collect();
    ProcessingRequest {
        request: Some(Phase::RequestHeaders(HttpHeaders {
            headers: Some(HeaderMap { headers }),
            end_of_stream: false,
        })),
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: 2,
            response_body_mode: 0,
            send_body_without_waiting_for_header_response: false,
        }),
        metadata_context: None,
    }
}
