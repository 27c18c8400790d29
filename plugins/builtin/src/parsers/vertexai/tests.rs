//! Tests of Vertex AI's prediction service.

use epp_plugin_api::{Headers, Parsed, Parser, Piece, ResponseKind, Usage};

use super::super::grpc::testing::{Put, frame, message};
use super::super::testing::{events, refusal, usage};
use super::{METHODS, VertexAi};

const CHAT: &str = "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions";
const RAW: &str = "/google.cloud.aiplatform.v1beta1.PredictionService/RawPredict";
const STREAM: &str = "/google.cloud.aiplatform.v1beta1.PredictionService/StreamRawPredict";

fn http_body(content_type: &str, data: &str) -> Vec<u8> {
    message(&[(1, Put::Bytes(content_type.as_bytes())), (2, Put::Bytes(data.as_bytes()))])
}

fn request(data: &str) -> Vec<u8> {
    let inner = http_body("application/json", data);
    frame(&message(&[(1, Put::Bytes(b"projects/x")), (2, Put::Bytes(&inner))]))
}

fn parse(path: &str, body: &[u8]) -> Parsed {
    VertexAi.parse(path, &Headers::default(), body).unwrap_or_else(|why| panic!("{body:?}: {why}"))
}

#[test]
fn reads_the_body_inside_where_it_stands() {
    let body = request(r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":7,"stream":true}"#);
    let parsed = parse(CHAT, &body);
    let text = parsed.pieces.iter().find_map(|piece| match piece {
        Piece::Text { at, .. } if &body[at.clone()] == b"hello" => Some(()),
        _ => None,
    });
    assert_eq!(text, Some(()), "{:?}", parsed.pieces);
    assert_eq!((parsed.model.as_deref(), parsed.max_output_tokens, parsed.stream), (Some("m"), Some(7), true));
}

#[test]
fn the_place_of_a_sound_and_of_its_format_are_both_moved() {
    let body = request(
        r#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]}"#,
    );
    let parsed = parse(CHAT, &body);
    let sound = parsed.pieces.iter().find_map(|piece| match piece {
        Piece::Audio { at, format, .. } => Some((&body[at.clone()], &body[format.clone()])),
        _ => None,
    });
    assert_eq!(sound, Some((&b"AAAA"[..], &b"wav"[..])));
}

#[test]
fn the_model_is_never_rewritten() {
    for path in [RAW, STREAM] {
        let parsed = parse(path, &request(r#"{"model":"m","input":"x"}"#));
        assert_eq!((parsed.model_at, parsed.insert_at, parsed.model_aware), (None, None, false));
    }
}

#[test]
fn refuses_what_is_no_request() {
    let nothing = frame(&message(&[(1, Put::Bytes(b"x"))]));
    let empty = frame(&message(&[(2, Put::Bytes(b""))]));
    let responses = "invalid responses request: must have input field";
    for (path, body, text) in [
        (CHAT, vec![], "invalid or unsupported gRPC payload: expected a frame of at least 5 bytes".to_owned()),
        (CHAT, nothing.clone(), "ChatCompletionsRequest has no HttpBody".to_owned()),
        (STREAM, nothing, "StreamRawPredictRequest has no HttpBody".to_owned()),
        (RAW, frame(b"\xff\xff"), "unmarshaling RawPredictRequest: expected a number at byte 5".to_owned()),
        (RAW, request(r#"{"model":"m"}"#), format!("parsing RawPredictRequest: {responses}")),
        (STREAM, request(r#"{"model":"m"}"#), format!("parsing StreamRawPredictRequest: {responses}")),
        (
            RAW,
            empty,
            "parsing RawPredictRequest: error unmarshaling request bodyMap: expected a value at byte 0".to_owned(),
        ),
    ] {
        assert_eq!(refusal(&VertexAi, path, &body), text);
    }
}

#[test]
fn other_methods_are_passed_on_unread() {
    let parsed = parse("/google.cloud.aiplatform.v1beta1.PredictionService/Predict", b"any");
    assert_eq!(parsed, Parsed { skip_response: true, ..Parsed::default() });
}

#[test]
fn claims_the_methods_that_it_reads() {
    assert_eq!(VertexAi.paths(), METHODS.map(|method| method.suffix));
}

fn check_usage(response: &[u8], want: &[Usage]) {
    for size in [response.len(), 1, 7] {
        let mut reader = VertexAi.response(CHAT, ResponseKind::Whole);
        let mut reports: Vec<Usage> = response.chunks(size).filter_map(|chunk| reader.feed(chunk)).collect();
        reports.extend(reader.finish());
        assert_eq!(reports, want, "in chunks of {size}");
        assert_eq!(reader.finish(), None);
    }
}

#[test]
fn reads_the_usage_of_a_document() {
    let full = r#"{"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}"#;
    let want = [usage([Some(7), Some(10), None, Some(17)])];
    check_usage(&frame(&http_body("application/json", full)), &want);
    let parts = [frame(&http_body("application/json", "{}")), frame(&http_body("", full)), frame(b"\xff")];
    check_usage(&parts.concat(), &want);
    check_usage(&frame(&http_body("application/json", "nope")), &[]);
}

#[test]
fn reads_the_usage_of_events_that_are_cut_over_messages() {
    let full = r#"{"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}"#;
    let stream = events(&[r#"{"choices":[]}"#, full, "[DONE]"]);
    let want = [usage([Some(7), Some(10), None, Some(17)])];
    for cut in [0, 40, stream.len()] {
        let parts = [&stream[..cut], &stream[cut..]].map(|part| frame(&http_body("text/event-stream", part)));
        check_usage(&parts.concat(), &want);
    }
    let unfinished = frame(&http_body("text/event-stream", &events(&[full])));
    check_usage(&unfinished, &want);
}
