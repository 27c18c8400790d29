//! Talks to engines over loopback as clients do. Time is paused, so that it passes only while everybody waits.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use epp_sim::http::{Engines, Settings, StartError};
use epp_sim::kind::Kind;
use epp_sim::model::ModelSettings;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// A keep-alive connection to an engine.
struct Client(SendRequest<Full<Bytes>>);

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// The JSON of each event of a stream, which ends as streams do.
    fn events(&self) -> Vec<Value> {
        let body = self.text.strip_suffix("data: [DONE]\n\n").unwrap();
        let events = body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
        events.map(|json| serde_json::from_str(json).unwrap()).collect()
    }
}

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let socket = TcpStream::connect(to).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(async move { connection.await.unwrap_or_default() });
        Self(sender)
    }

    async fn ask(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> Reply {
        let request = Request::builder().method(method).uri(path).header("host", "engine");
        let request = request.body(Full::new(body.into())).unwrap();
        self.0.ready().await.unwrap();
        let (head, body) = self.0.send_request(request).await.unwrap().into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Reply { status: head.status, headers: head.headers, text }
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.ask(Method::GET, path, "").await
    }

    async fn post(&mut self, path: &str, body: Value) -> Reply {
        self.ask(Method::POST, path, body.to_string()).await
    }
}

async fn start(kind: Kind) -> (Engines, Client) {
    let engines = Engines::start(Settings { kind, ..Settings::default() }).await.unwrap();
    let client = Client::connect(engines.addresses()[0]).await;
    (engines, client)
}

/// The value of the first series of a family.
fn metric(page: &str, name: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn metrics_come_as_late_as_they_are_to() {
    let late = Duration::from_millis(40);
    for metrics_delay in [Duration::ZERO, late] {
        let engines = Engines::start(Settings { metrics_delay, ..Settings::default() }).await.unwrap();
        let mut client = Client::connect(engines.addresses()[0]).await;
        let began = tokio::time::Instant::now();
        assert_eq!(client.get("/metrics").await.status, StatusCode::OK);
        assert_eq!(began.elapsed() >= late, metrics_delay == late);
    }
}

#[tokio::test(start_paused = true)]
async fn a_completion_has_the_fields_of_a_real_one() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = json!({"model": "m", "prompt": "x".repeat(400), "max_tokens": 20});
    for cached in [0, 96] {
        let reply = client.post("/v1/completions", body.clone()).await;
        assert_eq!(reply.status, StatusCode::OK);
        let mut reply = reply.json();
        assert!(reply["id"].take().as_str().unwrap().starts_with("cmpl-"));
        assert!(reply["created"].take().as_u64().is_some());
        assert_eq!(reply["choices"][0]["text"].take().as_str().unwrap().len(), 80);
        let want = json!({
            "id": null, "object": "text_completion", "created": null, "model": "m",
            "choices": [{"index": 0, "text": null, "logprobs": null, "finish_reason": "length", "stop_reason": null,
                "token_ids": null, "prompt_logprobs": null, "prompt_token_ids": null, "routed_experts": null}],
            "service_tier": null, "system_fingerprint": "vllm-0.32.0-0a38c960",
            "usage": {"prompt_tokens": 100, "total_tokens": 120, "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": cached}, "completion_tokens_details": null},
            "kv_transfer_params": null, "ec_transfer_params": null, "metrics": null,
        });
        assert_eq!(reply, want);
    }
}

#[tokio::test(start_paused = true)]
async fn several_prompts_and_choices_are_counted_once_a_prompt() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = json!({"prompt": [[1, 2, 3], [4, 5]], "n": 2, "max_tokens": 4});
    let reply = client.post("/v1/completions", body).await.json();
    assert_eq!(reply["choices"].as_array().unwrap().len(), 4);
    assert_eq!((&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]), (&json!(5), &json!(16)));
    assert_eq!(reply["model"], "sim");
}

#[tokio::test(start_paused = true)]
async fn a_chat_streams_a_token_an_event_and_then_the_usage() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3, "stream": true});
    let reply = client.post("/v1/chat/completions", body).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    let events = reply.events();
    assert_eq!(events.len(), 5);
    assert!(events.iter().all(|e| e["object"] == "chat.completion.chunk" && e["id"] == events[0]["id"]));
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert!(events[0].get("prompt_token_ids").is_some() && events[1].get("prompt_token_ids").is_none());
    let stops: Vec<bool> = events[..4].iter().map(|e| e["choices"][0].get("stop_reason").is_some()).collect();
    assert_eq!(stops, [false, false, false, true]);
    let reasons: Vec<&Value> = events[..4].iter().map(|e| &e["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons, [&json!(null), &json!(null), &json!(null), &json!("length")]);
    assert_eq!(events[4]["choices"], json!([]));
    assert_eq!(events[4]["usage"]["completion_tokens"], 3);
}

#[tokio::test(start_paused = true)]
async fn streamed_and_whole_answers_say_the_same() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = |stream| json!({"prompt": "same", "max_tokens": 6, "stream": stream});
    let whole = client.post("/v1/completions", body(false)).await.json();
    let events = client.post("/v1/completions", body(true)).await.events();
    let said: String = events.iter().filter_map(|e| e["choices"][0]["text"].as_str()).collect();
    assert_eq!(whole["choices"][0]["text"], said);
    assert_eq!(events.last().unwrap()["usage"]["total_tokens"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_goes_on_is_cached_with_its_answer() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let question = json!({"role": "user", "content": "q".repeat(400)});
    let reply = client.post("/v1/chat/completions", json!({"messages": [question], "max_tokens": 60})).await.json();
    let answer = reply["choices"][0]["message"].clone();
    assert_eq!(answer["role"], "assistant");
    let turn = json!({"messages": [question, answer, {"role": "user", "content": "and?"}], "max_tokens": 1});
    let usage = client.post("/v1/chat/completions", turn).await.json()["usage"].take();
    // 104 tokens of the first prompt and 59 of its answer fill ten blocks
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 160);
}

#[tokio::test(start_paused = true)]
async fn token_ids_go_in_and_come_out() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = json!({"model": "m", "token_ids": (0..200).collect::<Vec<_>>(), "sampling_params": {"max_tokens": 8}});
    let whole = client.post("/inference/v1/generate", body.clone()).await.json();
    let ids = whole["choices"][0]["token_ids"].as_array().unwrap();
    assert_eq!((ids.len(), &whole["usage"]["prompt_tokens"]), (8, &json!(200)));
    assert_eq!(whole["choices"][0]["weight_versions"], json!([{"version": "default", "start": 0, "end": 8}]));
    let mut streaming = body;
    streaming["stream"] = json!(true);
    let events = client.post("/inference/v1/generate", streaming).await.events();
    let streamed: Vec<&Value> = events.iter().filter_map(|e| e["choices"][0]["token_ids"].get(0)).collect();
    assert_eq!(streamed, ids.iter().collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["usage"]["prompt_tokens_details"]["cached_tokens"], 192);
}

#[tokio::test(start_paused = true)]
async fn sglang_tells_its_counts_in_meta_info() {
    let (_engines, mut client) = start(Kind::Sglang).await;
    let body = |stream| json!({"input_ids": (0..40).collect::<Vec<_>>(), "sampling_params": {"max_new_tokens": 3}, "stream": stream});
    let whole = client.post("/generate", body(false)).await.json();
    let info = &whole["meta_info"];
    assert_eq!((&info["prompt_tokens"], &info["completion_tokens"]), (&json!(40), &json!(3)));
    assert_eq!((&info["cached_tokens"], &info["finish_reason"]), (&json!(0), &json!({"type": "length", "length": 3})));
    let events = client.post("/generate", body(true)).await.events();
    let counts: Vec<_> = events.iter().map(|e| e["meta_info"]["completion_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 2, 3]);
    assert_eq!(events.iter().filter(|e| e["meta_info"]["finish_reason"].is_null()).count(), 2);
    assert_eq!((&events[2]["output_ids"], &events[2]["text"]), (&whole["output_ids"], &whole["text"]));
    assert_eq!(events[2]["meta_info"]["cached_tokens"], 32);
}

#[tokio::test(start_paused = true)]
async fn every_answer_names_its_engine() {
    let engines = Engines::start(Settings { count: 3, ..Settings::default() }).await.unwrap();
    for address in engines.addresses() {
        let mut client = Client::connect(address).await;
        for path in ["/health", "/v1/models", "/nothing"] {
            let port = address.port().to_string();
            assert_eq!(client.get(path).await.headers["x-engine"], port.as_str(), "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bad_requests_get_an_error_object_and_the_connection_lives_on() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    for (method, path, body, status) in [
        (Method::POST, "/v1/completions", "{\"prompt\":", 400),
        (Method::POST, "/v1/completions", "{}", 400),
        (Method::POST, "/v1/chat/completions", "[1]", 400),
        (Method::POST, "/inference/v1/generate", "{\"token_ids\":[-1]}", 400),
        (Method::POST, "/generate", "\u{0}", 400),
        (Method::GET, "/v1/completions", "", 405),
        (Method::POST, "/metrics", "", 405),
        (Method::GET, "/prometheus/metrics", "", 404),
        (Method::DELETE, "/", "", 404),
    ] {
        let reply = client.ask(method, path, body).await;
        assert_eq!((reply.status.as_u16(), &reply.json()["error"]["code"]), (status, &json!(status)), "{path} {body}");
        assert!(reply.json()["error"]["message"].is_string());
    }
    assert_eq!(client.get("/health").await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_beyond_the_cache_is_refused() {
    let model = ModelSettings { blocks: 4, ..ModelSettings::default() };
    let engines = Engines::start(Settings { model, ..Settings::default() }).await.unwrap();
    let mut client = Client::connect(engines.addresses()[0]).await;
    let reply = client.post("/v1/completions", json!({"prompt": "x".repeat(256)})).await;
    assert_eq!(reply.status, StatusCode::BAD_REQUEST);
    assert_eq!(reply.json()["error"]["message"], "the prompt must have fewer than 64 tokens, found 64");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_answers_503_and_is_counted() {
    let model = ModelSettings { queue: 1, ..ModelSettings::default() };
    let engines = Engines::start(Settings { model, ..Settings::default() }).await.unwrap();
    let mut client = Client::connect(engines.addresses()[0]).await;
    let reply = client.post("/v1/completions", json!({"prompt": "x", "n": 2})).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    let page = client.get("/metrics").await.text;
    assert_eq!(metric(&page, "vllm:admission_rejections_total"), 1.0);
    assert_eq!(engines.engines()[0].load().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_seat() {
    for stream in [true, false] {
        let (engines, mut watcher) = start(Kind::Vllm).await;
        let body = json!({"prompt": "x".repeat(4000), "max_tokens": 20_000, "stream": stream}).to_string();
        let head = format!("POST /v1/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut leaving = TcpStream::connect(engines.addresses()[0]).await.unwrap();
        leaving.write_all((head + &body).as_bytes()).await.unwrap();
        let engine = &engines.engines()[0];
        look_until(&mut watcher, || engine.load().running == 1).await;
        drop(leaving);
        look_until(&mut watcher, || engine.load().running == 0).await;
        assert_eq!((engine.load().waiting, engine.load().used_blocks), (0, 0));
        let aborted = "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\"";
        let page = watcher.get("/metrics").await.text;
        assert_eq!(metric(&page, aborted), 1.0, "stream {stream}");
    }
}

/// Makes requests, which lets time pass, until something is so.
async fn look_until(watcher: &mut Client, so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if so() {
            return;
        }
        watcher.post("/v1/completions", json!({"prompt": "y", "max_tokens": 1})).await;
    }
    panic!("it never was so");
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_cached() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let body = json!({"prompt": "x".repeat(400), "max_tokens": 1});
    for cached in [0, 0] {
        let usage = client.post("/v1/completions", body.clone()).await.json()["usage"].take();
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], cached);
        assert_eq!(client.ask(Method::POST, "/reset_prefix_cache", "").await.text, "{\"success\":true}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_the_requests() {
    for (kind, path, generated) in [
        (Kind::Vllm, "/metrics", "vllm:generation_tokens_total"),
        (Kind::Sglang, "/metrics", "sglang:generation_tokens_total"),
        (Kind::Trtllm, "/prometheus/metrics", "trtllm_generation_tokens_total"),
    ] {
        let (_engines, mut client) = start(kind).await;
        client.post("/v1/completions", json!({"prompt": "x", "max_tokens": 5})).await;
        let reply = client.get(path).await;
        assert_eq!(reply.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        let samples: String = reply.text.lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect();
        assert_eq!(metric(&samples, generated), 5.0, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_vllm_page_counts_http_requests_by_handler() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    client.post("/v1/completions", json!({"prompt": "x", "stream": true})).await;
    client.post("/v1/completions", json!({})).await;
    let page = client.get("/metrics").await.text;
    for status in ["2xx", "4xx"] {
        let series =
            format!("http_requests_total{{handler=\"/v1/completions\",method=\"POST\",status=\"{status}\"}} 1.0");
        assert!(page.contains(&series), "{series}");
    }
    assert!(!page.contains("handler=\"/metrics\""));
}

#[tokio::test(start_paused = true)]
async fn the_model_list_names_the_model_and_its_window() {
    let (_engines, mut client) = start(Kind::Vllm).await;
    let list = client.get("/v1/models").await.json();
    assert_eq!((&list["data"][0]["id"], &list["data"][0]["max_model_len"]), (&json!("sim"), &json!(32768)));
}

#[tokio::test]
async fn a_taken_port_stops_the_start() {
    let first = Engines::start(Settings::default()).await.unwrap();
    let address = first.addresses()[0];
    let error = Engines::start(Settings { base_port: address.port(), ..Settings::default() }).await.unwrap_err();
    assert!(matches!(error, StartError::Listen { address: at, .. } if at == address));
}

#[tokio::test]
async fn a_stopped_engine_gives_its_port_back() {
    let (engines, mut client) = start(Kind::Vllm).await;
    assert_eq!(client.get("/health").await.status, StatusCode::OK);
    let address = engines.addresses()[0];
    engines.stop().await;
    let again = Engines::start(Settings { base_port: address.port(), ..Settings::default() }).await.unwrap();
    assert_eq!(again.addresses(), [address]);
}

#[tokio::test]
async fn a_port_range_beyond_the_last_port_is_refused() {
    let error = Engines::start(Settings { base_port: 65535, count: 2, ..Settings::default() }).await.unwrap_err();
    assert!(matches!(error, StartError::Ports { .. } | StartError::Listen { .. }), "{error}");
}
