//! Tests of SGLang's own path.

use epp_plugin_api::ResponseKind;

use super::super::testing::{events, parse, pieces, reads_alike_however_it_is_cut, refusal, usage};
use super::SglangHttp;

#[test]
fn reads_token_ids_and_no_model() {
    let body = r#"{"input_ids":[0, 4294967295],"model":"m","stream":true,"extra_key":"k","sampling_params":{"max_new_tokens":7}}"#;
    for path in ["/generate", "generate", "/generate/", " /generate "] {
        assert_eq!(pieces(&SglangHttp, path, body), ["ids [0, 4294967295]"]);
    }
    let parsed = parse(&SglangHttp, "/generate", body);
    assert_eq!((parsed.model, parsed.model_at, parsed.insert_at, parsed.model_aware), (None, None, None, false));
    assert_eq!((parsed.stream, parsed.cache_salt.as_str(), parsed.max_output_tokens), (true, "k", Some(7)));
}

#[test]
fn ignores_malformed_sampling_parameters() {
    for sampling in ["5", "\"x\"", "null", r#"{"max_new_tokens":-1}"#, r#"{"max_new_tokens":"5"}"#] {
        let body = format!(r#"{{"input_ids":[1],"extra_key":null,"stream":false,"sampling_params":{sampling}}}"#);
        assert_eq!(parse(&SglangHttp, "/generate", &body).max_output_tokens, None, "{sampling}");
    }
}

#[test]
fn refuses_what_is_no_request() {
    const FLAT: &str = "invalid generate request: input_ids must be an array of uint32 integers";
    const MISSING: &str = "invalid generate request: input_ids must be provided";
    for (body, text) in [
        (r#"{"text":"x"}"#, MISSING),
        (r#"{"input_ids":null}"#, MISSING),
        ("null", MISSING),
        (r#"{"input_ids":[]}"#, "invalid generate request: input_ids cannot be empty"),
        (r#"{"input_ids":"x"}"#, FLAT),
        (r#"{"input_ids":{}}"#, FLAT),
        (r#"{"input_ids":[-1]}"#, FLAT),
        (r#"{"input_ids":[4294967296]}"#, FLAT),
        (r#"{"input_ids":[1.5]}"#, FLAT),
        (r#"{"input_ids":["a"]}"#, FLAT),
        (r#"{"input_ids":[[1],[2]]}"#, FLAT),
        (r#"{"input_ids":[1],"extra_key":5}"#, "unsupported generate request: extra_key must be a string"),
        (r#"{"input_ids":[1],"stream":"yes"}"#, "invalid generate request: stream must be a boolean"),
        ("nope", "invalid generate request: expected a value at byte 0"),
        ("[]", "invalid generate request: expected an object at byte 0"),
    ] {
        assert_eq!(refusal(&SglangHttp, "/generate", body.as_bytes()), text, "{body}");
    }
    for path in ["/regenerate", "/prefix/generate", "//generate", "/generate//"] {
        assert_eq!(refusal(&SglangHttp, path, b"{}"), format!("unsupported path: {path}"));
    }
}

#[test]
fn reads_the_usage_of_a_document() {
    for (body, want) in [
        (
            r#"{"text":"x","meta_info":{"prompt_tokens":3,"completion_tokens":0,"cached_tokens":2}}"#,
            vec![usage([Some(3), Some(0), Some(2), None])],
        ),
        (r#"{"meta_info":{"prompt_tokens":3}}"#, vec![usage([Some(3), None, None, None])]),
        (r#"{"meta_info":{"cached_tokens":2}}"#, vec![]),
        (r#"{"meta_info":5}"#, vec![]),
        (r#"{"usage":{"prompt_tokens":3}}"#, vec![]),
    ] {
        reads_alike_however_it_is_cut(&SglangHttp, ResponseKind::Whole, body, &want);
    }
}

#[test]
fn reads_the_usage_of_the_event_that_finishes() {
    let going = r#"{"meta_info":{"prompt_tokens":3,"completion_tokens":1,"finish_reason":null}}"#;
    let done =
        r#"{"meta_info":{"prompt_tokens":3,"completion_tokens":5,"cached_tokens":2,"finish_reason":{"type":"stop"}}}"#;
    let want = [usage([Some(3), Some(5), Some(2), None])];
    reads_alike_however_it_is_cut(&SglangHttp, ResponseKind::Events, &events(&[going, done, "[DONE]"]), &want);
    reads_alike_however_it_is_cut(&SglangHttp, ResponseKind::Events, &events(&[going, done]), &want);
    reads_alike_however_it_is_cut(&SglangHttp, ResponseKind::Events, &events(&[going, "[DONE]"]), &[]);
}
