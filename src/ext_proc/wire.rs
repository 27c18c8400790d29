//! The messages of Envoy's `ext_proc` as they go over the wire; room 1 reads them and room 7 writes them.
//!
//! Written out by hand, with the field numbers of `envoy/service/ext_proc/v3/external_processor.proto`: only the parts
//! that are read or set here, and bodies as [`Bytes`], so that they are neither copied in nor parsed twice. Fields that
//! are not listed are skipped when read.

use bytes::Bytes;
use prost::Message;
use prost_types::Struct;

/// What Envoy sends: one phase of one HTTP request.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessingRequest {
    #[prost(oneof = "Request", tags = "2, 3, 4, 5, 6, 7")]
    pub request: Option<Request>,
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<Metadata>,
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// The phases.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Request {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

/// How Envoy is set up; sent with the first message.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ProtocolConfiguration {
    #[prost(int32, tag = "1")]
    pub request_body_mode: i32,
    #[prost(int32, tag = "2")]
    pub response_body_mode: i32,
    #[prost(bool, tag = "3")]
    pub send_body_without_waiting_for_header_response: bool,
}

/// Metadata by namespace.
#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: std::collections::BTreeMap<String, Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// A header. `raw_value` counts if it is not empty, else `value`.
#[derive(Clone, PartialEq, Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct HttpTrailers {}

/// What the picker answers.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessingResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub response: Option<Response>,
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
}

/// The answers, one kind a phase.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Response {
    #[prost(message, tag = "1")]
    RequestHeaders(PhaseResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(PhaseResponse),
    #[prost(message, tag = "3")]
    RequestBody(PhaseResponse),
    #[prost(message, tag = "4")]
    ResponseBody(PhaseResponse),
    #[prost(message, tag = "5")]
    RequestTrailers(TrailersResponse),
    #[prost(message, tag = "6")]
    ResponseTrailers(TrailersResponse),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse` and `BodyResponse`, which have the same shape.
#[derive(Clone, PartialEq, Message)]
pub struct PhaseResponse {
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TrailersResponse {}

#[derive(Clone, PartialEq, Message)]
pub struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct BodyMutation {
    #[prost(oneof = "Mutation", tags = "1, 3")]
    pub mutation: Option<Mutation>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Mutation {
    #[prost(bytes = "bytes", tag = "1")]
    Body(Bytes),
    #[prost(message, tag = "3")]
    Streamed(HttpBody),
}

/// Ends the request with this answer to the client.
#[derive(Clone, PartialEq, Message)]
pub struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// `HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD`: said outright, since appending is the default of the type.
const OVERWRITE_OR_ADD: i32 = 2;

impl HeaderValue {
    /// The bytes that count.
    pub fn bytes(&self) -> &Bytes {
        if self.raw_value.is_empty() { &self.value } else { &self.raw_value }
    }
}

impl HeaderMutation {
    /// Sets a header, in place of any value that is there.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Bytes>) {
        let header = HeaderValue { key: key.into(), value: Bytes::new(), raw_value: value.into() };
        self.set_headers.push(HeaderValueOption { header: Some(header), append_action: OVERWRITE_OR_ADD });
    }
}

impl PhaseResponse {
    /// An answer that changes nothing.
    pub fn unchanged() -> Self {
        Self { response: Some(CommonResponse::default()) }
    }

    /// An answer that carries a piece of a body in full-duplex mode.
    pub fn streamed(body: Bytes, end_of_stream: bool) -> Self {
        let mutation = Some(Mutation::Streamed(HttpBody { body, end_of_stream }));
        Self { response: Some(CommonResponse { body_mutation: Some(BodyMutation { mutation }), ..Default::default() }) }
    }

    /// An answer that puts another body in the place of the one that came.
    pub fn replaced(body: Bytes) -> Self {
        let mutation = Some(Mutation::Body(body));
        Self { response: Some(CommonResponse { body_mutation: Some(BodyMutation { mutation }), ..Default::default() }) }
    }
}

impl From<Response> for ProcessingResponse {
    fn from(response: Response) -> Self {
        Self { response: Some(response), dynamic_metadata: None }
    }
}

/// How Envoy sends bodies of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMode {
    None,
    Streamed,
    Buffered,
    BufferedPartial,
    FullDuplexStreamed,
    Grpc,
    /// A mode that did not exist when this was written.
    Unknown(i32),
}

impl BodyMode {
    /// Reads the enum of the protocol.
    pub fn from_wire(value: i32) -> Self {
        match value {
            0 => Self::None,
            1 => Self::Streamed,
            2 => Self::Buffered,
            3 => Self::BufferedPartial,
            4 => Self::FullDuplexStreamed,
            5 => Self::Grpc,
            other => Self::Unknown(other),
        }
    }

    /// The name in Envoy's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Streamed => "STREAMED",
            Self::Buffered => "BUFFERED",
            Self::BufferedPartial => "BUFFERED_PARTIAL",
            Self::FullDuplexStreamed => "FULL_DUPLEX_STREAMED",
            Self::Grpc => "GRPC",
            Self::Unknown(_) => "unknown",
        }
    }
}
