//! One ext_proc stream as its client sees it: messages, and what is read off the answers.

use bytes::Bytes;
use epp::ext_proc::wire::{
    CommonResponse, HeaderMap, HeaderValue, HttpBody, HttpHeaders, HttpTrailers, Metadata, Mutation, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration, Request, Response,
};
use prost_types::value::Kind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::harness::PATIENCE;

const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
pub const COMPLETIONS: &str = "/v1/completions";
pub const CHAT: &str = "/v1/chat/completions";

/// A request that was answered by the picker itself, or a stream that it ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    Answer { status: i32, reason: Option<String>, body: String },
    Stream(Code),
    End,
}

/// An open stream; cancelled when dropped.
pub struct Talk {
    tx: mpsc::Sender<ProcessingRequest>,
    rx: Streaming<ProcessingResponse>,
}

impl Talk {
    /// Opens a stream. It has a window of thousands of messages, so that sending never waits for answers.
    pub async fn open(channel: Channel) -> Self {
        let (tx, rx) = mpsc::channel(4096);
        let mut grpc = Grpc::new(channel).max_decoding_message_size(usize::MAX);
        grpc.ready().await.expect("the connection is open");
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let path = http::uri::PathAndQuery::from_static(METHOD);
        let opening = grpc.streaming(tonic::Request::new(ReceiverStream::new(rx)), path, codec);
        let answers = tokio::time::timeout(PATIENCE, opening).await.expect("a stream in time");
        Self { tx, rx: answers.expect("the picker takes streams").into_inner() }
    }

    pub async fn send(&self, message: ProcessingRequest) {
        // A stream that has ended takes no more messages, which its answers tell.
        let _ = self.tx.send(message).await;
    }

    /// The next answer; `None` when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<ProcessingResponse>, Status> {
        tokio::time::timeout(PATIENCE, self.rx.message()).await.expect("an answer in time")
    }

    /// The next answer, which must come.
    pub async fn answer(&mut self) -> ProcessingResponse {
        self.next().await.expect("no error").expect("an answer")
    }

    /// Sends a whole request, and returns where it goes.
    pub async fn ask(&mut self, path: &str, body: &str) -> Result<String, Refused> {
        self.send(post(path)).await;
        self.send(piece(body, true)).await;
        self.target().await
    }

    /// Where the next answer sends the request.
    pub async fn target(&mut self) -> Result<String, Refused> {
        match self.next().await {
            Ok(Some(answer)) => match refusal(&answer) {
                Some(refused) => Err(refused),
                None => Ok(set(&answer, DESTINATION).expect("a destination")),
            },
            Ok(None) => Err(Refused::End),
            Err(status) => Err(Refused::Stream(status.code())),
        }
    }

    /// Says that no more messages come, and returns the answers that are left.
    pub async fn rest(self) -> Result<Vec<ProcessingResponse>, Status> {
        let Self { tx, mut rx } = self;
        drop(tx);
        let mut answers = Vec::new();
        while let Some(answer) = tokio::time::timeout(PATIENCE, rx.message()).await.expect("an end in time")? {
            answers.push(answer);
        }
        Ok(answers)
    }
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..ProcessingRequest::default() }
}

fn map(pairs: &[(&str, &str)]) -> Option<HeaderMap> {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    Some(HeaderMap { headers: pairs.iter().map(header).collect() })
}

/// Request headers.
pub fn head(pairs: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestHeaders(HttpHeaders { headers: map(pairs), end_of_stream }))
}

/// The headers of a POST whose body follows.
pub fn post(path: &str) -> ProcessingRequest {
    post_with(path, &[])
}

/// The same with more headers.
pub fn post_with(path: &str, more: &[(&str, &str)]) -> ProcessingRequest {
    head(&[&[(":method", "POST"), (":path", path), ("content-type", "application/json")], more].concat(), false)
}

/// A piece of the request's body.
pub fn piece(body: impl Into<Vec<u8>>, end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestBody(HttpBody { body: body.into().into(), end_of_stream }))
}

pub fn trailers() -> ProcessingRequest {
    message(Request::RequestTrailers(HttpTrailers {}))
}

/// The response's headers.
pub fn response_head(pairs: &[(&str, &str)]) -> ProcessingRequest {
    message(Request::ResponseHeaders(HttpHeaders { headers: map(pairs), end_of_stream: false }))
}

/// A piece of the response's body.
pub fn response_piece(body: impl Into<Vec<u8>>, end_of_stream: bool) -> ProcessingRequest {
    message(Request::ResponseBody(HttpBody { body: body.into().into(), end_of_stream }))
}

/// Says how Envoy is set up, as its first message does.
pub fn with_modes(mut message: ProcessingRequest, request: i32, response: i32) -> ProcessingRequest {
    message.protocol_config = Some(ProtocolConfiguration {
        request_body_mode: request,
        response_body_mode: response,
        send_body_without_waiting_for_header_response: false,
    });
    message
}

/// The phase that an answer is for.
pub fn kind(answer: &ProcessingResponse) -> &'static str {
    match &answer.response {
        Some(Response::RequestHeaders(_)) => "request headers",
        Some(Response::RequestBody(_)) => "request body",
        Some(Response::RequestTrailers(_)) => "request trailers",
        Some(Response::ResponseHeaders(_)) => "response headers",
        Some(Response::ResponseBody(_)) => "response body",
        Some(Response::ResponseTrailers(_)) => "response trailers",
        Some(Response::Immediate(_)) => "immediate",
        None => "nothing",
    }
}

fn common(answer: &ProcessingResponse) -> Option<&CommonResponse> {
    match &answer.response {
        Some(
            Response::RequestHeaders(r)
            | Response::RequestBody(r)
            | Response::ResponseHeaders(r)
            | Response::ResponseBody(r),
        ) => r.response.as_ref(),
        _ => None,
    }
}

/// Every header that an answer sets, in order; only what stands in `raw_value` counts.
pub fn sets(answer: &ProcessingResponse) -> Vec<(String, String)> {
    let mutation = common(answer).and_then(|c| c.header_mutation.as_ref());
    let headers = mutation.iter().flat_map(|m| &m.set_headers).filter_map(|o| o.header.as_ref());
    headers.map(|h| (h.key.clone(), String::from_utf8_lossy(&h.raw_value).into_owned())).collect()
}

/// The value that an answer gives a header; none if it sets it more than once.
pub fn set(answer: &ProcessingResponse, key: &str) -> Option<String> {
    let mut values = sets(answer).into_iter().filter(|(k, _)| k == key).map(|(_, v)| v);
    values.next().filter(|_| values.next().is_none())
}

/// The headers that an answer removes.
pub fn removes(answer: &ProcessingResponse) -> Vec<String> {
    let mutation = common(answer).and_then(|c| c.header_mutation.as_ref());
    mutation.map(|m| m.remove_headers.clone()).unwrap_or_default()
}

/// The piece of a body that an answer carries, and whether it is the last.
pub fn streamed(answer: &ProcessingResponse) -> Option<(Bytes, bool)> {
    match common(answer)?.body_mutation.as_ref()?.mutation.as_ref()? {
        Mutation::Streamed(body) => Some((body.body.clone(), body.end_of_stream)),
        Mutation::Body(_) => None,
    }
}

/// The pieces of these answers put together; each must be a piece, and only the last one the end.
pub fn joined(answers: &[ProcessingResponse]) -> Vec<u8> {
    let pieces: Vec<_> = answers.iter().map(|a| streamed(a).expect("a streamed piece")).collect();
    let ends: Vec<_> = pieces.iter().map(|(_, end)| *end).collect();
    assert!(ends.iter().rev().skip(1).all(|end| !end) && ends.last() == Some(&true), "{ends:?}");
    pieces.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect()
}

/// What an answer says to the client itself, if it does.
pub fn refusal(answer: &ProcessingResponse) -> Option<Refused> {
    let Some(Response::Immediate(immediate)) = &answer.response else { return None };
    let headers = immediate.headers.iter().flat_map(|m| &m.set_headers).filter_map(|o| o.header.as_ref());
    let reason = headers.filter(|h| h.key == "x-llm-d-request-dropped-reason").map(|h| h.bytes().clone()).next();
    Some(Refused::Answer {
        status: immediate.status.map_or(0, |s| s.code),
        reason: reason.map(|r| String::from_utf8_lossy(&r).into_owned()),
        body: String::from_utf8_lossy(&immediate.body).into_owned(),
    })
}

/// The text at `key` of the metadata for Envoy's load balancer.
pub fn metadata(answer: &ProcessingResponse, key: &str) -> Option<Kind> {
    let lb = answer.dynamic_metadata.as_ref()?.fields.get("envoy.lb")?;
    let Some(Kind::StructValue(lb)) = &lb.kind else { return None };
    lb.fields.get(key)?.kind.clone()
}

/// The score of every candidate, by `host:port`.
pub fn scores(answer: &ProcessingResponse) -> std::collections::BTreeMap<String, f64> {
    let Some(Kind::StructValue(scores)) = metadata(answer, "x-gateway-destination-endpoint-scores") else {
        return Default::default();
    };
    let number = |(key, value): (String, prost_types::Value)| match value.kind {
        Some(Kind::NumberValue(score)) => Some((key, score)),
        _ => None,
    };
    scores.fields.into_iter().filter_map(number).collect()
}

/// Whether an answer puts its value in the place of all others, instead of adding to them.
pub fn overwrites(answer: &ProcessingResponse, key: &str) -> bool {
    const OVERWRITE_IF_EXISTS_OR_ADD: i32 = 2;
    let mutation = common(answer).and_then(|c| c.header_mutation.as_ref());
    let mut options = mutation.iter().flat_map(|m| &m.set_headers);
    options.any(|o| o.header.as_ref().is_some_and(|h| h.key == key) && o.append_action == OVERWRITE_IF_EXISTS_OR_ADD)
}

/// Adds the hint of Envoy that only endpoints on these hosts may be picked.
pub fn with_subset(mut message: ProcessingRequest, hosts: &[&str]) -> ProcessingRequest {
    let value = |kind| prost_types::Value { kind: Some(kind) };
    let values = hosts.iter().map(|h| value(Kind::StringValue((*h).to_owned()))).collect();
    let list = value(Kind::ListValue(prost_types::ListValue { values }));
    let fields = [("x-gateway-destination-endpoint-subset".to_owned(), list)].into();
    let hint = [("envoy.lb.subset_hint".to_owned(), prost_types::Struct { fields })].into();
    message.metadata_context = Some(Metadata { filter_metadata: hint });
    message
}
