//! Room 7: the answer: destination header and metadata, pieces of the body, or an immediate response.

use std::collections::VecDeque;

use bytes::Bytes;
use epp_plugin_api::Report;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::ext_proc::wire::{
    CommonResponse, HeaderMutation, HttpStatus, ImmediateResponse, PhaseResponse, ProcessingResponse, Response,
};
use crate::flow::refusal::Refusal;

/// The header and the metadata key that hold the chosen endpoints.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
const SCORES: &str = "x-gateway-destination-endpoint-scores";
const REASON: &str = "x-llm-d-request-dropped-reason";
const NAMESPACE: &str = "envoy.lb";
/// The metadata that holds the record of the decision.
pub const EXPLANATIONS: &str = "epp";
pub const DECISION: &str = "decision";
/// Most bytes of a body in one message.
const PIECE: usize = 62_000;

/// Where a request goes and what changes about its headers.
#[derive(Debug, Default)]
pub struct Routing {
    pub destination: String,
    pub set: Vec<(String, String)>,
    pub remove: Vec<String>,
    pub content_length: Option<usize>,
    /// `host:port` and total of every candidate; `None` if they are not to be told.
    pub scores: Option<Vec<(String, f64)>>,
    /// The record of the decision as JSON, if it was asked for.
    pub explanation: Option<String>,
}

impl Routing {
    /// The changes as Envoy takes them, and the metadata that goes with them.
    pub fn into_parts(self) -> (CommonResponse, Struct) {
        let mut metadata = metadata(&self.destination, self.scores);
        if let Some(json) = self.explanation {
            let mut fields = Struct::default();
            fields.fields.insert(DECISION.into(), value(Kind::StringValue(json)));
            metadata.fields.insert(EXPLANATIONS.into(), value(Kind::StructValue(fields)));
        }
        let mut mutation = HeaderMutation { remove_headers: self.remove, ..HeaderMutation::default() };
        mutation.set(DESTINATION, self.destination);
        if let Some(length) = self.content_length {
            mutation.set("content-length", length.to_string());
        }
        for (key, value) in self.set {
            mutation.set(key, value);
        }
        let common = CommonResponse { header_mutation: Some(mutation), clear_route_cache: true, body_mutation: None };
        (common, metadata)
    }
}

fn metadata(destination: &str, scores: Option<Vec<(String, f64)>>) -> Struct {
    let mut lb = Struct::default();
    lb.fields.insert(DESTINATION.into(), value(Kind::StringValue(destination.into())));
    if let Some(scores) = scores.filter(|s| !s.is_empty()) {
        let fields = scores.into_iter().map(|(endpoint, total)| (endpoint, value(Kind::NumberValue(total)))).collect();
        lb.fields.insert(SCORES.into(), value(Kind::StructValue(Struct { fields })));
    }
    let mut metadata = Struct::default();
    metadata.fields.insert(NAMESPACE.into(), value(Kind::StructValue(lb)));
    metadata
}

/// Values that plugins report, by namespace.
pub fn reported(reports: Vec<Report>) -> Struct {
    let mut metadata = Struct::default();
    for Report { namespace, key, value: number } in reports {
        let namespace = metadata.fields.entry(namespace).or_insert_with(|| value(Kind::StructValue(Struct::default())));
        if let Some(Kind::StructValue(fields)) = &mut namespace.kind {
            fields.fields.insert(key, value(Kind::NumberValue(number)));
        }
    }
    metadata
}

fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

/// Answers a refused request itself.
pub fn immediate(refusal: &Refusal) -> ProcessingResponse {
    let headers = refusal.reason().map(|reason| {
        let mut mutation = HeaderMutation::default();
        mutation.set(REASON, reason);
        mutation
    });
    Response::Immediate(ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(refusal.status()) }),
        headers,
        body: refusal.body().into(),
    })
    .into()
}

/// Pushes a body in pieces that Envoy takes, at least one; `last` is what the last piece says of the end.
pub fn push_pieces(
    out: &mut VecDeque<ProcessingResponse>,
    mut body: Bytes,
    last: bool,
    kind: fn(PhaseResponse) -> Response,
) {
    while body.len() > PIECE {
        let piece = body.split_to(PIECE);
        out.push_back(kind(PhaseResponse::streamed(piece, false)).into());
    }
    out.push_back(kind(PhaseResponse::streamed(body, last)).into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext_proc::wire::{BodyMutation, Mutation};

    fn pieces(size: usize, last: bool) -> Vec<(usize, bool)> {
        let mut out = VecDeque::new();
        push_pieces(&mut out, Bytes::from(vec![0; size]), last, Response::RequestBody);
        out.into_iter()
            .map(|r| match r.response {
                Some(Response::RequestBody(PhaseResponse {
                    response:
                        Some(CommonResponse {
                            body_mutation: Some(BodyMutation { mutation: Some(Mutation::Streamed(piece)) }),
                            ..
                        }),
                })) => (piece.body.len(), piece.end_of_stream),
                other => panic!("expected a streamed piece, found {other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_body_is_cut_at_62000_bytes() {
        assert_eq!(pieces(0, true), [(0, true)]);
        assert_eq!(pieces(62_000, true), [(62_000, true)]);
        assert_eq!(pieces(62_001, true), [(62_000, false), (1, true)]);
        assert_eq!(pieces(124_000, false), [(62_000, false), (62_000, false)]);
    }

    #[test]
    fn the_metadata_holds_scores_only_if_there_are_any() {
        let keys = |scores| {
            let all = metadata("a:1", scores);
            let Some(Kind::StructValue(lb)) = all.fields[NAMESPACE].kind.clone() else { panic!("a struct") };
            lb.fields.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(keys(None), [DESTINATION]);
        assert_eq!(keys(Some(vec![])), [DESTINATION]);
        assert_eq!(keys(Some(vec![("a:1".into(), 0.5)])), [DESTINATION, SCORES]);
    }
}
