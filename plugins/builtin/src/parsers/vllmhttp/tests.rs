//! Tests of vLLM's own path.

use super::super::testing::{parse, pieces, refusal};
use super::VllmHttp;

const GENERATE: &str = "/inference/v1/generate";

#[test]
fn reads_token_ids() {
    for (body, want) in [
        (r#"{"token_ids":[1]}"#, "ids [1]"),
        (r#"{"TOKEN_IDS":[0, 4294967295, 1.0]}"#, "ids [0, 4294967295, 1]"),
        (r#"{"token_ids":[1,null,3]}"#, "ids [1, 0, 3]"),
        (r#"{"token_ids":["a"],"token_ids":[2]}"#, "ids [2]"),
    ] {
        assert_eq!(pieces(&VllmHttp, GENERATE, body), [want], "{body}");
    }
}

#[test]
fn refuses_what_is_no_request() {
    for (body, why) in [
        ("nope", "expected a value at byte 0"),
        ("[]", "expected an object at byte 0"),
        ("{}", "must have non-empty token_ids field"),
        ("null", "must have non-empty token_ids field"),
        (r#"{"token_ids":[]}"#, "must have non-empty token_ids field"),
        (r#"{"token_ids":null}"#, "must have non-empty token_ids field"),
        (r#"{"token_ids":[1,-1,"x"]}"#, "token_ids[1]: invalid value"),
        (r#"{"token_ids":[1,4294967296]}"#, "token_ids[1]: invalid value"),
        (r#"{"token_ids":[1,1.5]}"#, "token_ids[1]: invalid value"),
        (r#"{"token_ids":["a"]}"#, "token_ids[0]: expected a number"),
        (r#"{"token_ids":[[1]]}"#, "token_ids[0]: expected a number"),
        (r#"{"token_ids":[true]}"#, "token_ids[0]: expected a number"),
        (r#"{"token_ids":"x"}"#, "token_ids: expected an array of numbers"),
        (r#"{"token_ids":{}}"#, "token_ids: expected an array of numbers"),
        (r#"{"token_ids":[1],"cache_salt":5}"#, "cache_salt: expected a string"),
        (r#"{"token_ids":[1],"features":5}"#, "features: expected hashes and placeholders by modality"),
        (
            r#"{"token_ids":[1],"features":{"mm_hashes":{"image":[5]}}}"#,
            "features: expected hashes and placeholders by modality",
        ),
    ] {
        assert_eq!(refusal(&VllmHttp, GENERATE, body.as_bytes()), format!("invalid generate request: {why}"), "{body}");
    }
    assert_eq!(refusal(&VllmHttp, "/inference/v1/generate/", b"{}"), "unsupported path: /inference/v1/generate/");
}

#[test]
fn reads_what_stands_beside_the_ids() {
    let body = r#"{"model":"m","stream":true,"cache_salt":"s","sampling_params":{"max_tokens":7},"token_ids":[1],"max_tokens":5}"#;
    let parsed = parse(&VllmHttp, GENERATE, body);
    assert_eq!(
        (parsed.model.as_deref(), parsed.stream, parsed.cache_salt.as_str(), parsed.max_output_tokens),
        (Some("m"), true, "s", Some(7))
    );
    assert!(parsed.model_aware);
    assert_eq!(parse(&VllmHttp, GENERATE, r#"{"token_ids":[1],"sampling_params":5}"#).max_output_tokens, None);
}

#[test]
fn pairs_hashes_with_places_and_sorts_them() {
    for (features, want) in [
        ("null", vec![]),
        (r#"{"mm_hashes":{"image":["h"]}}"#, vec![]),
        (
            r#"{"mm_placeholders":{"image":[{"offset":9,"length":2},{"offset":5,"length":1}],"audio":[{"offset":7,"length":3}]},
                "kwargs_data":{"image":["x"]},"mm_hashes":{"audio":["a"],"image":["h1","h2","h3"]}}"#,
            vec![("h2", 5, 1), ("a", 7, 3), ("h1", 9, 2)],
        ),
    ] {
        let parsed = parse(&VllmHttp, GENERATE, &format!(r#"{{"token_ids":[1],"features":{features}}}"#));
        let read: Vec<_> =
            parsed.features.iter().map(|(hash, offset, length)| (hash.as_str(), *offset, *length)).collect();
        assert_eq!(read, want, "{features}");
    }
}
