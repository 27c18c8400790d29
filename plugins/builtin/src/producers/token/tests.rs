//! What each backend makes of requests, and which parameters are refused.

use std::time::Duration;

use epp_plugin_api::{Answers, Api, Candidates, Headers, InferenceRequest, ParseError, Parser, Question, Remote};
use serde_json::{Value, json};

use crate::parsers::anthropic::Anthropic;
use crate::parsers::openai::OpenAi;
use crate::testing::{Rig, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!({"estimate": {}}));

fn tokens_of(pieces: Vec<Piece>) -> Option<usize> {
    let rig = Rig::default();
    let producer = rig.build(&TYPE, json!(null)).producer.unwrap();
    let (board, request) = (snapshot(1, []), request(b"hello", Parsed { pieces, ..Parsed::default() }));
    let mut columns = Columns::default();
    producer.produce(&cycle(&board, &request), &mut columns).unwrap();
    columns.read_request(rig.slots.request::<TokenizedPrompt>("token-producer")).map(TokenizedPrompt::tokens)
}

#[test]
fn a_request_without_a_prompt_has_no_tokens() {
    assert_eq!(tokens_of(vec![]), None);
    assert_eq!(tokens_of(vec![Piece::Text { at: 3..3, escaped: false }, Piece::NextPrompt]), None);
    assert_eq!(tokens_of(vec![Piece::Text { at: 0..5, escaped: false }]), Some(2));
}

#[test]
fn both_names_build_and_the_old_one_says_what_replaces_it() {
    let rig = Rig::default();
    assert!(rig.build(&ALIAS, json!(null)).producer.is_some());
    assert_eq!(ALIAS.replaced_by, Some("token-producer"));
}

#[test]
fn refuses_what_is_no_backend_and_unknown_modes() {
    for (parameters, culprit) in [
        (json!({"modelName": "x", "estimate": {}}), "one backend"),
        (json!({"modelName": "x", "local": {"tokenizer": "/t"}}), "one backend"),
        (json!({"vllm": {"url": "http://h"}}), "modelName: expected the name of a model"),
        (
            json!({"modelName": "x", "vllm": {"url": "https://h:1"}}),
            "vllm.url: expected an address such as http://localhost:8000, found \"https://h:1\": engines are not asked over TLS",
        ),
        (json!({"modelName": "x", "vllm": {"url": "h:8000"}}), "vllm.url: expected an address"),
        (json!({"modelName": "x", "vllm": {"url": "http:///x"}}), "vllm.url: expected an address"),
        (json!({"modelName": "x", "vllm": {"url": "http://h?a=1"}}), "vllm.url: expected an address"),
        (json!({"modelName": "x", "vllm": {"url": ""}}), "vllm.url: expected an address"),
        (json!({"modelName": "x", "vllm": {"timeout": "soon"}}), "vllm.timeout: expected a duration"),
        (json!({"modelName": "x", "vllm": {"mmTimeout": "0s"}}), "vllm.mmTimeout: expected a duration above 0"),
        (json!({"modelName": "x", "vllm": {"cache": {"maxPrompts": -1}}}), "maxPrompts"),
        (
            json!({"udsTokenizerConfig": {"socketFile": "/s"}}),
            "udsTokenizerConfig: a tokenizer behind a socket is not supported, expected vllm.url or local.tokenizer",
        ),
        (json!({"estimate": {"image": {"mode": "guess"}}}), "estimate.image.mode"),
        (json!({"estimate": {"video": {"frames": {"mode": "all"}}}}), "estimate.video.frames.mode"),
        (json!({"estimate": {"image": {"dynamic": {"factor": -1}}}}), "estimate.image.dynamic.factor"),
        (json!({"estimate": {"video": {"defaultDuration": -1}}}), "estimate.video.defaultDuration"),
        (json!({"model": "x"}), "model"),
    ] {
        let message = Rig::default().refused(&TYPE, parameters);
        assert!(message.contains(culprit), "{message}");
    }
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn a_build_without_tokenizers_says_how_to_get_one_that_has_them() {
    let message = Rig::default().refused(&TYPE, json!({"local": {"tokenizer": "/t"}}));
    assert!(message.starts_with("local: ") && message.contains("--features tokenizers"), "{message}");
}

/// A request to an API as its parser reads it.
fn sent(path: &str, body: &Value) -> InferenceRequest {
    let body = body.to_string().into_bytes();
    let none = Headers::default();
    let parsed: Result<Parsed, ParseError> = match path.ends_with("messages") {
        true => Anthropic.parse(path, &none, &body),
        false => OpenAi.parse(path, &none, &body),
    };
    InferenceRequest { path: path.into(), ..request(&body, parsed.unwrap()) }
}

fn completion(prompt: Value) -> InferenceRequest {
    sent("/v1/completions", &json!({"model": "m", "prompt": prompt, "temperature": 0}))
}

fn chat(content: Value) -> InferenceRequest {
    sent("/v1/chat/completions", &json!({"model": "m", "messages": [{"role": "user", "content": content}]}))
}

/// A producer that asks an engine.
struct Asker {
    rig: Rig,
    remote: Arc<dyn Remote>,
    producer: Arc<dyn Producer>,
    columns: Columns,
}

impl Asker {
    fn new(mut vllm: Value) -> Self {
        let rig = Rig::default();
        vllm.as_object_mut().unwrap().entry("url").or_insert(json!("http://h:1//"));
        let instance = rig.build(&TYPE, json!({"modelName": "the/model", "vllm": vllm}));
        let (remote, producer) = (instance.remote.unwrap(), instance.producer.unwrap());
        Self { rig, remote, producer, columns: Columns::default() }
    }

    /// What is asked for the request: the path and the body.
    fn asks(&mut self, request: &InferenceRequest) -> Result<Option<(String, Value, Duration)>, String> {
        let board = snapshot(1, []);
        let cx = cycle(&board, request);
        self.columns.reset(0);
        self.producer.produce(&cx, &mut self.columns)?;
        Ok(match &self.remote.ask(&cx, &self.columns, &Candidates::all(0))[..] {
            [] => None,
            [Question::Call(call)] => {
                let path = call.url.strip_prefix("http://h:1").unwrap().to_owned();
                Some((path, serde_json::from_slice(&call.body).unwrap(), call.timeout))
            }
            others => panic!("expected a call, found {others:?}"),
        })
    }

    fn hears(&mut self, request: &InferenceRequest, answer: Result<&[u8], String>) -> Result<(), String> {
        let board = snapshot(1, []);
        let answers = Answers { bodies: &[answer], took: Duration::ZERO };
        self.remote.answered(&cycle(&board, request), &mut self.columns, &Candidates::all(0), answers)
    }

    /// The tokens of each prompt, as later producers read them.
    fn tokens(&self, request: &InferenceRequest) -> Option<Vec<Vec<u32>>> {
        let prompt = self.columns.read_request(self.rig.slots.request::<TokenizedPrompt>("token-producer"))?;
        let token = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        Some(prompt.prompts(request).map(|tokens| tokens.chunks(4).map(token).collect()).collect())
    }
}

const FIVE: Duration = Duration::from_secs(5);
const THIRTY: Duration = Duration::from_secs(30);

#[test]
fn what_is_sent_is_the_body_of_the_client_under_the_name_of_the_model() {
    let mut asker = Asker::new(json!({}));
    let asked = asker.asks(&completion(json!("hi"))).unwrap();
    let body = json!({"model": "the/model", "prompt": "hi", "temperature": 0});
    assert_eq!(asked, Some(("/v1/completions/render".into(), body, FIVE)));
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": tools});
    let asked = asker.asks(&sent("/v1/chat/completions", &body)).unwrap();
    let body = json!({"model": "the/model", "messages": body["messages"], "tools": tools});
    assert_eq!(asked, Some(("/v1/chat/completions/render".into(), body, FIVE)));
}

#[test]
fn messages_are_sent_as_a_chat() {
    let system = json!({"role": "system", "content": "be kind"});
    let hi = json!({"role": "user", "content": "hi"});
    let body = json!({"model": "m", "max_tokens": 5, "system": "be kind", "messages": [hi]});
    let asked = Asker::new(json!({})).asks(&sent("/v1/messages", &body)).unwrap();
    let body = json!({"model": "the/model", "messages": [system, hi]});
    assert_eq!(asked, Some(("/v1/chat/completions/render".into(), body, FIVE)));
}

#[test]
fn chats_whose_contents_are_lists_are_waited_for_longer() {
    let mut asker = Asker::new(json!({"timeout": "1s", "mmTimeout": "2s"}));
    let list = json!([{"type": "text", "text": "hi"}]);
    for (request, seconds) in [(chat(json!("hi")), 1), (chat(list), 2), (completion(json!(["a", "b"])), 1)] {
        assert_eq!(asker.asks(&request).unwrap().unwrap().2, Duration::from_secs(seconds));
    }
    assert_eq!(Asker::new(json!({})).asks(&chat(json!([{"type": "text", "text": "x"}]))).unwrap().unwrap().2, THIRTY);
}

#[test]
fn the_trace_of_the_request_goes_on_in_the_call() {
    let asker = Asker::new(json!({}));
    let mut request = completion(json!("hi"));
    request.headers.set("traceparent", "00-1-2-01".into());
    request.headers.set("authorization", "secret".into());
    let (board, mut columns) = (snapshot(1, []), Columns::default());
    let cx = cycle(&board, &request);
    asker.producer.produce(&cx, &mut columns).unwrap();
    let asked = asker.remote.ask(&cx, &columns, &Candidates::all(0));
    let [Question::Call(call)] = &asked[..] else { panic!("expected a call, found {asked:?}") };
    assert_eq!(call.headers, [("traceparent", "00-1-2-01".to_owned())]);
}

#[test]
fn the_answer_is_the_tokens_of_the_prompts() {
    let mut asker = Asker::new(json!({}));
    let request = completion(json!(["a", "b"]));
    asker.asks(&request).unwrap();
    assert_eq!(asker.tokens(&request), None);
    asker.hears(&request, Ok(br#"[{"token_ids":[1,2]},{"token_ids":[3]}]"#)).unwrap();
    assert_eq!(asker.tokens(&request), Some(vec![vec![1, 2], vec![3]]));
}

#[test]
fn the_media_of_the_answer_are_known() {
    let mut asker = Asker::new(json!({}));
    let request = chat(json!([{"type": "image_url", "image_url": {"url": "https://h/a.png"}}]));
    asker.asks(&request).unwrap();
    let features = r#"{"mm_hashes":{"image":["h"]},"mm_placeholders":{"image":[{"offset":1,"length":2}]}}"#;
    let answer = format!(r#"{{"token_ids":[1,2,3],"features":{features}}}"#);
    asker.hears(&request, Ok(answer.as_bytes())).unwrap();
    let key = asker.rig.slots.request::<TokenizedPrompt>("token-producer");
    let prompt = asker.columns.read_request(key).unwrap();
    assert_eq!(prompt.features(&request), [("h".to_owned(), 1, 2)]);
}

#[test]
fn token_ids_are_taken_as_they_are() {
    let mut asker = Asker::new(json!({}));
    let request = completion(json!([[7, 8], [9]]));
    assert_eq!(asker.asks(&request), Ok(None));
    assert_eq!(asker.tokens(&request), Some(vec![vec![7, 8], vec![9]]));
}

#[test]
fn what_is_not_rendered_has_no_tokens_and_says_why() {
    let mut asker = Asker::new(json!({}));
    for (path, body) in [
        ("/v1/responses", json!({"model": "m", "input": "hi"})),
        ("/v1/embeddings", json!({"model": "m", "input": "hi"})),
        ("/v1/conversations", json!({"model": "m", "items": [{"type": "message", "role": "user", "content": "hi"}]})),
    ] {
        let request = sent(path, &body);
        assert!(asker.asks(&request).unwrap_err().contains("expected completions, a chat or messages"), "{path}");
        assert_eq!(asker.tokens(&request), None);
    }
    // There is nothing to be rendered.
    assert_eq!(asker.asks(&request(b"", Parsed::default())), Ok(None));
}

#[test]
fn without_tokens_in_the_answer_the_request_has_none_and_is_asked_for_again() {
    let mut asker = Asker::new(json!({}));
    let request = completion(json!("hi"));
    for answer in [Err("status 500".into()), Ok("[]"), Ok("{}"), Ok(r#"[{"token_ids":["x"]}]"#), Ok("\u{fffd}")] {
        assert!(asker.asks(&request).unwrap().is_some());
        assert!(asker.hears(&request, answer.map(str::as_bytes)).is_err());
        assert_eq!(asker.tokens(&request), None);
    }
    asker.asks(&request).unwrap();
    assert_eq!(asker.hears(&request, Ok(br#"[{"token_ids":[]}]"#)), Ok(()));
    assert_eq!(asker.tokens(&request), None);
    assert!(asker.asks(&request).unwrap().is_some());
}

#[test]
fn equal_bodies_are_asked_for_once() {
    let mut asker = Asker::new(json!({}));
    let request = completion(json!("hi"));
    asker.asks(&request).unwrap();
    asker.hears(&request, Ok(br#"[{"token_ids":[1,2]}]"#)).unwrap();
    assert_eq!(asker.asks(&request), Ok(None));
    assert_eq!(asker.tokens(&request), Some(vec![vec![1, 2]]));
    assert!(asker.asks(&completion(json!("ho"))).unwrap().is_some());
    // The same body means something else to another API.
    let body = json!({"model": "m", "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "temperature": 0});
    let (one, other) = (sent("/v1/completions", &body), sent("/v1/chat/completions", &body));
    asker.asks(&one).unwrap();
    asker.hears(&one, Ok(br#"[{"token_ids":[1]}]"#)).unwrap();
    assert!(asker.asks(&other).unwrap().is_some());
    assert_eq!((one.parsed.api, other.parsed.api), (Api::Completions, Api::Chat));
}

#[test]
fn nothing_is_remembered_if_it_should_not_be() {
    let mut asker = Asker::new(json!({"cache": {"maxPrompts": 0}}));
    let request = completion(json!("hi"));
    for _ in 0..2 {
        assert!(asker.asks(&request).unwrap().is_some());
        asker.hears(&request, Ok(br#"[{"token_ids":[1]}]"#)).unwrap();
        assert_eq!(asker.tokens(&request), Some(vec![vec![1]]));
    }
}
