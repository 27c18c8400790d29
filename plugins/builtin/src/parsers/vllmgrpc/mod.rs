//! `vllmgrpc-parser`: vLLM's engine service over gRPC, `vllm.grpc.engine.VllmEngine`; see `proto/vllm_engine.proto`.
//!
//! The messages name no model, so none is read and none can be rewritten. Other methods of the service are passed on
//! unread, and so are their answers.

mod request;
mod response;

use epp_plugin_api::{Headers, Kind, ParseError, Parsed, Parser, PluginType, ResponseKind, ResponseParser, Stability};

use super::grpc::first_message;
use super::refuse;
use super::response::Unread;

pub static TYPE: PluginType = PluginType {
    name: "vllmgrpc-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "vllmgrpc-parser",
    summary: "Reads requests and responses of vLLM's engine service over gRPC.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, VllmGrpc),
};

const GENERATE: &str = "vllm.grpc.engine.VllmEngine/Generate";
const EMBED: &str = "vllm.grpc.engine.VllmEngine/Embed";

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct VllmGrpc;

impl Parser for VllmGrpc {
    fn paths(&self) -> &'static [&'static str] {
        &[GENERATE, EMBED]
    }

    fn parse(&self, path: &str, _headers: &Headers, body: &[u8]) -> Result<Parsed, ParseError> {
        let Ok(message) = first_message(body) else { return refuse("invalid or unsupported gRPC payload") };
        if path.ends_with(GENERATE) {
            match request::generate(body, message) {
                Ok(Some(parsed)) => Ok(parsed),
                Ok(None) => refuse("not supported request inputType"),
                Err(fault) => refuse(format_args!("unmarshaling GenerateRequest: {fault}")),
            }
        } else if path.ends_with(EMBED) {
            match request::embed(body, message) {
                Ok(Some(parsed)) => Ok(parsed),
                Ok(None) => refuse("missing tokenized input in EmbedRequest"),
                Err(fault) => refuse(format_args!("unmarshaling EmbedRequest: {fault}")),
            }
        } else {
            Ok(Parsed { skip_response: true, ..Parsed::default() })
        }
    }

    fn response(&self, path: &str, _kind: ResponseKind) -> Box<dyn ResponseParser> {
        if path.ends_with(GENERATE) {
            Box::new(response::Messages::of(response::generated))
        } else if path.ends_with(EMBED) {
            Box::new(response::Messages::of(response::embedded))
        } else {
            Box::new(Unread)
        }
    }
}

#[cfg(test)]
mod tests;
