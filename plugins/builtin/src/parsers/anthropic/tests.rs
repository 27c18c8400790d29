//! Tests of the messages API.

use epp_plugin_api::{Headers, Parsed, Parser, ResponseKind};
use proptest::prelude::*;

use super::super::testing::{events, parse, pieces, reads_alike_however_it_is_cut, refusal, reports, usage};
use super::Anthropic;

const MESSAGES: &str = "/v1/messages";

#[test]
fn reads_the_prompt() {
    for (fields, want) in [
        (r#""messages":[{"role":"user","content":"x"}]"#, &["text user", "text x"][..]),
        (r#""messages":[{"content":null},{}]"#, &[]),
        (
            r#""messages":[{"content":[{"type":"text","text":"x"}],"role":"user"}],"system":"S""#,
            &["text S", "text user", "text x"],
        ),
        (
            r#""system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"S"}],"messages":[{}]"#,
            &["text S"],
        ),
        (
            r#""messages":[{"role":"system","content":"x"}],"system":"S","tools":[{"name":"t","strict":true}]"#,
            &[r#"raw [{"name":"t","strict":true}]"#, "text S", "text system", "text x"],
        ),
        (
            r#""messages":[{"role":"u","content":[
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},
                {"type":"image","source":{"type":"url","url":"U"}}]},
                {"role":"a","content":[{"type":"thinking","thinking":"t"},{"type":"redacted_thinking","data":"z"},
                    {"type":"tool_use","id":"1","name":"n","input":{"b":1, "a":2}}]},
                {"role":"u","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"r"},
                    {"type":"image","source":{"data":"BB"}},{"type":"text","text":"s"}]},
                    {"type":"tool_result","content":"plain"}]}]"#,
            &[
                "text u",
                "image AA",
                "image U",
                "text a",
                "text t",
                "text 1",
                "text n",
                r#"raw {"b":1, "a":2}"#,
                "text u",
                "text r",
                "literal \n",
                "text s",
                "image BB",
                "text plain",
            ],
        ),
    ] {
        assert_eq!(pieces(&Anthropic, MESSAGES, &format!("{{{fields}}}")), want, "{fields}");
    }
}

#[test]
fn reads_what_stands_beside_the_prompt() {
    let body = r#"{"model":"m","stream":true,"max_tokens":5,"cache_salt":"s","messages":[{}]}"#;
    let parsed = parse(&Anthropic, MESSAGES, body);
    assert_eq!(
        (parsed.model.as_deref(), parsed.stream, parsed.max_output_tokens, parsed.cache_salt.as_str()),
        (Some("m"), true, Some(5), "s")
    );
    assert!(parsed.model_aware && !parsed.skip_response);
}

#[test]
fn refuses_what_is_no_request() {
    const NONE: &str = "invalid messages request: must have at least one message";
    const WRONG: &str = "error parsing messages request: a field has the wrong type";
    for (body, text) in [
        ("nope", "error unmarshaling request body: expected a value at byte 0"),
        ("[]", "error unmarshaling request body: expected an object at byte 0"),
        ("", "error unmarshaling request body: expected a value at byte 0"),
        ("{}", NONE),
        (r#"{"messages":[]}"#, NONE),
        (r#"{"messages":null}"#, NONE),
        (r#"{"messages":"x"}"#, WRONG),
        (r#"{"messages":{}}"#, WRONG),
        (r#"{"messages":[5]}"#, WRONG),
        (r#"{"messages":[{"role":5}]}"#, WRONG),
        (r#"{"messages":[{"content":5}]}"#, WRONG),
        (r#"{"messages":[{"content":[{"type":"tool_result","content":[5]}]}]}"#, WRONG),
        (r#"{"messages":[{}],"system":5}"#, WRONG),
        (r#"{"messages":[{}],"tools":"x"}"#, WRONG),
        (r#"{"messages":[{}],"tools":[{"strict":"x"}]}"#, WRONG),
        (r#"{"messages":[{}],"cache_salt":5}"#, WRONG),
    ] {
        assert_eq!(refusal(&Anthropic, MESSAGES, body.as_bytes()), text, "{body}");
    }
    assert_eq!(refusal(&Anthropic, "/v1/messages/", b"{}"), "unsupported API endpoint: /v1/messages/");
}

#[test]
fn sends_count_tokens_on_unread() {
    let want = Parsed { skip_response: true, ..Parsed::default() };
    for body in [r#"{"model":"m","messages":[]}"#, "not json", ""] {
        assert_eq!(parse(&Anthropic, "/v1/messages/count_tokens", body), want);
    }
}

#[test]
fn takes_results_of_tools_in_results_of_tools() {
    let n = 2_000;
    let nested = format!(
        r#"{{"messages":[{{"content":{}5{}}}]}}"#,
        r#"[{"type":"tool_result","content":"#.repeat(n),
        "}]".repeat(n)
    );
    assert_eq!(parse(&Anthropic, MESSAGES, &nested).pieces, []);
}

#[test]
fn reads_the_usage_of_a_document() {
    for (body, want) in [
        (
            r#"{"usage":{"input_tokens":3,"output_tokens":5,"cache_read_input_tokens":2}}"#,
            vec![usage([Some(3), Some(5), Some(2), Some(8)])],
        ),
        (r#"{"usage":{"input_tokens":"3","output_tokens":5}}"#, vec![usage([None, Some(5), None, None])]),
        (r#"{"usage":"x"}"#, vec![]),
        ("{}", vec![]),
    ] {
        reads_alike_however_it_is_cut(&Anthropic, ResponseKind::Whole, body, &want);
    }
}

#[test]
fn merges_the_usage_of_events() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1,"cache_read_input_tokens":60}}}"#;
    let text = r#"{"type":"content_block_delta","delta":{"text":"\"usage\" message_stop"}}"#;
    let delta = r#"{"type":"message_delta","usage":{"output_tokens":9}}"#;
    let stop = r#"{"type":"message_stop"}"#;
    let merged = usage([Some(100), Some(9), Some(60), Some(109)]);
    for (data, want) in [
        (&[start, text, delta, stop][..], merged),
        (&[start, text, delta, delta], merged),
        (&[start, text], usage([Some(100), None, Some(60), None])),
        (&[delta, stop], usage([None, Some(9), None, None])),
    ] {
        let events = events(data).replace("data: ", "event: x\ndata: ");
        reads_alike_however_it_is_cut(&Anthropic, ResponseKind::Events, &events, &[want]);
    }
}

proptest! {
    #[test]
    fn never_panics(body: Vec<u8>) {
        let _ = Anthropic.parse(MESSAGES, &Headers::default(), &body);
        for kind in [ResponseKind::Whole, ResponseKind::Events] {
            reports(&Anthropic, kind, &[&body]);
        }
    }
}
