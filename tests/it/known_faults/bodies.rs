//! What request bodies may look like, and what is said of those that may not.

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

async fn pool(n: usize, setup: Setup) -> (Picker, Vec<Engine>) {
    let engines = Engine::fleet(n).await;
    let ports: Vec<_> = engines.iter().map(|e| e.port).collect();
    (setup.start(&endpoints(&ports)).await, engines)
}

fn prefix() -> Setup {
    Setup::scorers(&["prefix-cache-scorer"]).flag("--emit-endpoint-scores")
}

fn status(refused: &Refused) -> i32 {
    match refused {
        Refused::Answer { status, .. } => *status,
        Refused::Stream(_) | Refused::End => 0,
    }
}

#[tokio::test]
async fn prompts_of_tokens_are_taken_or_clearly_refused() {
    let (picker, _engines) = pool(1, prefix()).await;
    for (prompt, expected) in
        [(r#"["aa","bb"]"#, 0), ("[1,2,3]", 0), ("[[1,2],[3]]", 0), ("[1,-1]", 400), ("[1.5]", 400)]
    {
        let got = picker.pick(COMPLETIONS, &format!("{{\"model\":\"m\",\"prompt\":{prompt}}}")).await;
        assert_eq!(got.as_ref().map_or_else(status, |_| 0), expected, "{prompt}");
    }
}

#[tokio::test]
async fn the_query_of_a_path_chooses_nothing_and_stays() {
    let (picker, _engines) = pool(1, prefix()).await;
    let body = r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#;
    for path in ["/v1/messages?beta=true", "/v1/chat/completions?x=/v1/completions", "/v1/chat/completions/render"] {
        let mut talk = picker.open().await;
        talk.send(post(path)).await;
        talk.send(piece(body, true)).await;
        let answer = talk.answer().await;
        assert_eq!((kind(&answer), set(&answer, ":path")), ("request headers", None), "{path}");
    }
}

#[tokio::test]
async fn a_rewrite_supplies_a_missing_model() {
    let (picker, _engines) = pool(1, prefix()).await;
    let body = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    let talk = picker.open().await;
    talk.send(post_with(CHAT, &[("x-llm-d-model-name-rewrite", "base")])).await;
    talk.send(piece(body, true)).await;
    let sent = joined(&talk.rest().await.unwrap()[1..]);
    let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent, serde_json::json!({"model": "base", "messages": [{"role": "user", "content": "x"}]}));
    let Err(Refused::Answer { status, body, .. }) = picker.pick(CHAT, body).await else { panic!("no refusal") };
    assert!(status == 400 && body.contains("model"), "{status} {body}");
}

#[tokio::test]
async fn a_request_without_a_prompt_is_picked_without_an_error() {
    let (picker, engines) = pool(1, prefix()).await;
    let body = r#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(picker.pick("/v1/messages/count_tokens", body).await, Ok(engines[0].address()));
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
    assert_eq!(picker.sum("epp_produce_failures_total", &[]).await, 0.0);
}

#[tokio::test]
async fn a_rewritten_model_reaches_the_engine_and_nothing_else_changes() {
    let (picker, _engines) = pool(1, prefix()).await;
    let body = "{ \"prompt\" : \"alias\", \"model\":\"alias\" , \"n\": 1.0, \"x\": {\"model\": \"alias\"} }";
    let talk = picker.open().await;
    talk.send(post_with(COMPLETIONS, &[("x-llm-d-model-name-rewrite", "base-model")])).await;
    talk.send(piece(body, true)).await;
    let sent = joined(&talk.rest().await.unwrap()[1..]);
    assert_eq!(String::from_utf8(sent).unwrap(), body.replacen("\"model\":\"alias\"", "\"model\":\"base-model\"", 1));
}

#[tokio::test]
async fn null_is_as_good_as_absent() {
    let (picker, engines) = pool(1, prefix()).await;
    let body = r#"{"model":"m","prompt":"x","stream":null,"max_tokens":null,"logprobs":null}"#;
    assert_eq!(picker.pick(COMPLETIONS, body).await, Ok(engines[0].address()));
}

#[tokio::test]
async fn nothing_that_a_client_sends_is_repeated_in_errors_or_logs() {
    let (picker, _engines) = pool(1, prefix()).await;
    let cut = format!("{{\"prompt\":\"{}", "SECRET".repeat(350_000));
    let Err(Refused::Answer { status, body, .. }) = picker.pick(COMPLETIONS, &cut).await else { panic!("no refusal") };
    assert!(status == 400 && body.len() < 1024 && !body.contains("SECRET"), "{status} {body}");
    for (path, body) in [
        (COMPLETIONS, r#"{"SECRET":"SECRET"}"#),
        (CHAT, r#"{"model":"SECRET","messages":[{"role":"SECRET","content":7}]}"#),
        ("/SECRET", "SECRET"),
        ("/inference/v1/generate", r#"{"token_ids":["SECRET"]}"#),
    ] {
        if let Err(Refused::Answer { body, .. }) = picker.pick(path, body).await {
            assert!(!body.contains("SECRET"), "{path}: {body}");
        }
    }
    let (_, talk) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"SECRET"}"#).await.unwrap();
    talk.send(response_head(&[(":status", "500"), ("x-why", "SECRET")])).await;
    talk.send(response_piece("{\"error\":\"SECRET\"}", true)).await;
    talk.rest().await.unwrap();
    let talk = picker.open().await;
    talk.send(post_with("/v1/completions?SECRET", &[("x-request-id", "SECRET"), ("authorization", "SECRET")])).await;
    talk.send(piece("SECRET", true)).await;
    talk.rest().await.unwrap();
    assert!(!picker.log().contains("SECRET"), "{}", picker.log());
}

#[tokio::test]
async fn affinity_is_the_same_however_a_system_prompt_is_written() {
    let (picker, _engines) = pool(4, prefix()).await;
    let text = "You are a careful assistant. ".repeat(100);
    let ask = |system: serde_json::Value| {
        let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
        serde_json::json!({"model": "m", "max_tokens": 5, "system": system, "messages": messages}).to_string()
    };
    let first = picker.pick("/v1/messages", &ask(serde_json::json!([{"type": "text", "text": text}]))).await.unwrap();
    let second = scores_of(&picker, "/v1/messages", &ask(serde_json::json!(text))).await;
    assert_eq!(second[&first], 1.0, "{second:?}");
}

#[tokio::test]
async fn nothing_is_picked_before_the_body_has_ended() {
    let (picker, _engines) = pool(4, prefix()).await;
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "a long beginning ".repeat(100));
    let warm = picker.pick(COMPLETIONS, &body).await.unwrap();
    let (first, second) = body.split_at(700);
    let mut talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    talk.send(piece(first, false)).await;
    // Another pick goes by, so the first piece was surely seen.
    picker.pick(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
    until("only one more pick", async || picker.sum("llm_d_epp_request_total", &[]).await == 2.0).await;
    talk.send(piece(second, true)).await;
    assert_eq!(talk.target().await, Ok(warm));
}

async fn scores_of(picker: &Picker, path: &str, body: &str) -> std::collections::BTreeMap<String, f64> {
    let mut talk = picker.open().await;
    talk.send(post(path)).await;
    talk.send(piece(body, true)).await;
    scores(&talk.answer().await)
}
