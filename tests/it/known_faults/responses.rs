//! What is read off responses as they go by, and what is put back into them.

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

async fn one() -> (Picker, Engine) {
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["active-request-scorer"]).start(&endpoints(&[engine.port])).await;
    (picker, engine)
}

/// Sends a request, then this response; returns what the client gets.
async fn exchange(
    picker: &Picker,
    path: &str,
    more: &[(&str, &str)],
    head: &[(&str, &str)],
    pieces: &[&[u8]],
) -> Vec<u8> {
    let talk = picker.open().await;
    talk.send(post_with(path, more)).await;
    let body = r#"{"model":"alias","prompt":"x","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#;
    talk.send(piece(body, true)).await;
    talk.send(response_head(head)).await;
    for (i, bytes) in pieces.iter().enumerate() {
        talk.send(response_piece(*bytes, i + 1 == pieces.len())).await;
    }
    let answers = talk.rest().await.unwrap();
    let bodies: Vec<_> = answers.into_iter().filter(|a| kind(a) == "response body").collect();
    joined(&bodies)
}

const EVENTS: [(&str, &str); 2] = [(":status", "200"), ("content-type", "text/event-stream")];
const WHOLE: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];

#[tokio::test]
async fn usage_in_a_piece_before_the_last_is_counted_once() {
    let (picker, _engine) = one().await;
    let usage =
        b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12}}\n\n";
    exchange(&picker, COMPLETIONS, &[], &EVENTS, &[usage, b"data: [DONE]\n\n"]).await;
    for (family, tokens) in [("input", 7.0), ("output", 5.0)] {
        let sum = picker.sum(&format!("llm_d_epp_request_{family}_tokens_sum"), &[]).await;
        let count = picker.sum(&format!("llm_d_epp_request_{family}_tokens_count"), &[]).await;
        assert_eq!((sum, count), (tokens, 1.0), "{family}");
    }
}

#[tokio::test]
async fn usage_of_messages_is_merged_from_its_events() {
    let (picker, _engine) = one().await;
    let start = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":100,\"cache_read_input_tokens\":60}}}\n\n";
    let delta = b"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n";
    let stop = b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    exchange(&picker, "/v1/messages", &[], &EVENTS, &[start, delta, stop]).await;
    for (family, tokens) in [("input", 100.0), ("cached", 60.0), ("output", 9.0)] {
        let sum = picker.sum(&format!("llm_d_epp_request_{family}_tokens_sum"), &[]).await;
        assert_eq!(sum, tokens, "{family}");
    }
}

#[tokio::test]
async fn text_that_looks_like_the_end_is_not_the_end() {
    let (picker, _engine) = one().await;
    let said = b"data: {\"choices\":[{\"text\":\"data: [DONE]\"}]}\n\n";
    let usage = b"data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":5}}\n\n";
    let got = exchange(&picker, COMPLETIONS, &[], &EVENTS, &[said, usage, b"data: [DONE]\n\n"]).await;
    assert_eq!(got, [&said[..], usage, b"data: [DONE]\n\n"].concat());
    assert_eq!(picker.sum("llm_d_epp_request_input_tokens_sum", &[]).await, 7.0);
}

#[tokio::test]
async fn odd_usage_harms_nobody() {
    let (picker, _engine) = one().await;
    for usage in ["\"oops\"", r#"{"prompt_token_details":0}"#, "[]", r#"{"prompt_tokens":-5}"#] {
        let body = format!("{{\"usage\":{usage}}}");
        assert_eq!(exchange(&picker, COMPLETIONS, &[], &WHOLE, &[body.as_bytes()]).await, body.as_bytes(), "{usage}");
    }
    assert_eq!(picker.sum("llm_d_epp_request_input_tokens_count", &[]).await, 0.0);
    exchange(&picker, COMPLETIONS, &[], &WHOLE, &[br#"{"usage":{"prompt_tokens":"1024"}}"#]).await;
    assert_eq!(picker.sum("llm_d_epp_request_input_tokens_sum", &[]).await, 1024.0);
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
}

#[tokio::test]
async fn a_whole_response_has_no_time_per_token() {
    let (picker, _engine) = one().await;
    let body = br#"{"usage":{"prompt_tokens":7,"completion_tokens":5}}"#;
    for _ in 0..50 {
        exchange(&picker, COMPLETIONS, &[], &WHOLE, &[body]).await;
    }
    until("fifty ends", async || picker.sum("llm_d_epp_request_duration_seconds_count", &[]).await == 50.0).await;
    for family in ["itl", "tpot"] {
        let count = picker.sum(&format!("llm_d_epp_request_streaming_{family}_seconds_count"), &[]).await;
        assert_eq!(count, 0.0, "{family}");
    }
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
}

#[tokio::test]
async fn clients_see_the_model_that_they_asked_for() {
    let (picker, _engine) = one().await;
    let rewrite = [("x-llm-d-model-name-rewrite", "base-model")];
    let whole = "{\"id\":\"1\",\"model\":\"base-model\",\"choices\":[{\"text\":\"I am base-model, \\\"model\\\":\\\"base-model\\\"\"}]}";
    let got = exchange(&picker, COMPLETIONS, &rewrite, &WHOLE, &[whole.as_bytes()]).await;
    assert_eq!(String::from_utf8(got).unwrap(), whole.replacen("base-model", "alias", 1));

    let event = "data: {\"model\":\"base-model\",\"choices\":[{\"delta\":{\"content\":\"base-model\"}}]}\n\n";
    let text = format!("{event}{event}data: [DONE]\n\n");
    let (first, second) = text.as_bytes().split_at(event.len() + 22);
    let got = exchange(&picker, CHAT, &rewrite, &EVENTS, &[first, second]).await;
    assert_eq!(String::from_utf8(got).unwrap(), text.replace("\"model\":\"base-model\"", "\"model\":\"alias\""));
}

#[tokio::test]
async fn an_encoded_response_is_left_alone() {
    let (picker, _engine) = one().await;
    let rewrite = [("x-llm-d-model-name-rewrite", "base-model")];
    let bytes = b"\x1f\x8b\x08\x00data: {\"model\":\"base-model\",\"usage\":{\"prompt_tokens\":7}}\n\n\xff";
    let encoded = [EVENTS[0], EVENTS[1], ("content-encoding", "gzip")];
    assert_eq!(exchange(&picker, COMPLETIONS, &rewrite, &encoded, &[bytes]).await, bytes);
    assert_eq!(picker.sum("llm_d_epp_request_input_tokens_count", &[]).await, 0.0);
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
}

/// The length that the engine gave is that of a body with its own name of the model.
#[tokio::test]
async fn the_length_goes_where_the_model_is_put_back() {
    let (picker, _engine) = one().await;
    for (more, removed) in [(&[("x-llm-d-model-name-rewrite", "base-model")][..], &["content-length"][..]), (&[], &[])]
    {
        let talk = picker.open().await;
        talk.send(post_with(COMPLETIONS, more)).await;
        talk.send(piece(r#"{"model":"alias","prompt":"x"}"#, true)).await;
        talk.send(response_head(&[WHOLE[0], WHOLE[1], ("content-length", "22")])).await;
        let answers = talk.rest().await.unwrap();
        let answer = answers.iter().find(|a| kind(a) == "response headers").expect("an answer to the headers");
        assert_eq!(removes(answer), removed, "{more:?}");
    }
}
