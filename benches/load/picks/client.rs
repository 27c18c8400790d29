//! Plays Envoy: many streams over one connection, each up to the answer that says where the request goes.

use bytes::Bytes;
use epp::ext_proc::service::METHOD;
use epp::ext_proc::wire::{
    BodyMutation, CommonResponse, HeaderMap, HeaderValue, HttpBody, HttpHeaders, Mutation, PhaseResponse,
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration, Request as Phase, Response,
};
use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::bodies::Request;

/// How Envoy is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The body in one message after the headers are answered; no response body.
    Lean,
    /// The body in pieces right behind the headers; it travels back.
    Duplex,
}

/// Bytes of a body in one message in duplex mode.
const PIECE: usize = 62_000;

/// A connection to a server.
pub struct Client(Channel);

impl Client {
    /// Connects; waits for a server that is not up yet.
    pub async fn connect(port: u16) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a valid address");
        let endpoint = endpoint.initial_stream_window_size(1 << 20).initial_connection_window_size(16 << 20);
        for _ in 0..200 {
            if let Ok(channel) = endpoint.connect().await {
                return Self(channel);
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("nobody listens on port {port}")
    }

    /// Sends so many requests.
    pub async fn run(&self, request: &Request, mode: Mode, streams: usize, at_once: usize) {
        stream::iter(0..streams).for_each_concurrent(at_once, |_| self.ask(request, mode)).await;
    }

    async fn ask(&self, request: &Request, mode: Mode) {
        let body = request.next_body();
        let (tx, rx) = mpsc::channel(32);
        tx.send(headers(request.path, body.len(), mode)).await.expect("the receiver is below");
        // As Python's gRPC clients say without being asked.
        let mut grpc = Grpc::new(self.0.clone()).accept_compressed(CompressionEncoding::Gzip);
        grpc.ready().await.expect("the connection stays");
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let opened =
            grpc.streaming(tonic::Request::new(ReceiverStream::new(rx)), METHOD.parse().expect("a path"), codec);
        let mut answers = opened.await.expect("the server takes streams").into_inner();
        match mode {
            Mode::Lean => {
                assert!(matches!(next(&mut answers).await, Response::RequestHeaders(_)));
                tx.send(piece(body, true)).await.expect("the stream is open");
                assert!(matches!(next(&mut answers).await, Response::RequestBody(_)));
            }
            Mode::Duplex => {
                let mut rest = body;
                while rest.len() > PIECE {
                    tx.send(piece(rest.split_to(PIECE), false)).await.expect("the stream is open");
                }
                tx.send(piece(rest, true)).await.expect("the stream is open");
                while !is_last(&next(&mut answers).await) {}
            }
        }
        drop(tx);
        assert!(answers.message().await.expect("the stream ends well").is_none());
    }
}

async fn next(answers: &mut Streaming<ProcessingResponse>) -> Response {
    let answer = answers.message().await.expect("the server answers").and_then(|a| a.response);
    answer.expect("there is an answer")
}

fn is_last(answer: &Response) -> bool {
    match answer {
        Response::RequestBody(PhaseResponse {
            response:
                Some(CommonResponse {
                    body_mutation: Some(BodyMutation { mutation: Some(Mutation::Streamed(piece)) }), ..
                }),
        }) => piece.end_of_stream,
        Response::RequestHeaders(_) => false,
        other => panic!("expected a piece of the body, found {other:?}"),
    }
}

fn headers(path: &str, length: usize, mode: Mode) -> ProcessingRequest {
    let length = length.to_string();
    let pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "llm.example.com"),
        (":path", path),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("accept", "application/json"),
        ("accept-encoding", "gzip, deflate"),
        ("user-agent", "OpenAI/Python 1.99.1"),
        ("authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
        ("x-forwarded-proto", "http"),
        ("x-request-id", "5b3f6b1e-7f1c-4d55-a0a4-5d9f0a2c6d1e"),
        ("x-envoy-expected-rq-timeout-ms", "15000"),
    ];
    let headers = pairs.map(|(key, value)| HeaderValue {
        key: key.into(),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    });
    let (request_body_mode, response_body_mode) = match mode {
        Mode::Lean => (2, 0),
        Mode::Duplex => (4, 4),
    };
    ProcessingRequest {
        request: Some(Phase::RequestHeaders(HttpHeaders {
            headers: Some(HeaderMap { headers: headers.into() }),
            end_of_stream: false,
        })),
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode,
            response_body_mode,
            send_body_without_waiting_for_header_response: false,
        }),
        metadata_context: None,
    }
}

fn piece(body: Bytes, end_of_stream: bool) -> ProcessingRequest {
    ProcessingRequest { request: Some(Phase::RequestBody(HttpBody { body, end_of_stream })), ..Default::default() }
}
