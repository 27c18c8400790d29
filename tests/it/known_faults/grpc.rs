//! Direct clients: thousands of picks over gRPC without an Envoy in between.

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

const GENERATE: &str = "/inference/v1/generate";
const TOKENS: &str = r#"{"model":"m","token_ids":[1,2,3]}"#;

async fn one(setup: Setup) -> (Picker, Engine) {
    let engine = Engine::start().await;
    (setup.start(&endpoints(&[engine.port])).await, engine)
}

fn by_requests() -> Setup {
    Setup::scorers(&["active-request-scorer"])
}

#[tokio::test]
async fn four_headers_and_a_body_are_enough_and_the_answer_is_raw() {
    let (picker, engine) = one(by_requests()).await;
    let talk = picker.open().await;
    let length = TOKENS.len().to_string();
    let headers =
        [(":method", "POST"), (":path", GENERATE), ("content-type", "application/json"), ("content-length", &*length)];
    talk.send(head(&headers, false)).await;
    talk.send(piece(TOKENS, true)).await;
    let answers = talk.rest().await.unwrap();
    // What reads the answer looks at raw values only.
    assert_eq!((kind(&answers[0]), set(&answers[0], DESTINATION)), ("request headers", Some(engine.address())));
}

#[tokio::test]
async fn a_thousand_clients_that_leave_at_once_leave_nothing() {
    let (picker, engine) = one(by_requests()).await;
    let channel = picker.channel().await;
    for _ in 0..1000 {
        let mut talk = Talk::open(channel.clone()).await;
        assert_eq!(talk.ask(GENERATE, TOKENS).await, Ok(engine.address()));
    }
    until("zero", async || picker.in_flight().await == [0]).await;
    assert_eq!(picker.sum("llm_d_epp_request_total", &[]).await, 1000.0);
    assert_eq!(picker.sum("llm_d_epp_request_running", &[]).await, 0.0);
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
}

#[tokio::test]
async fn streams_of_one_request_id_do_not_meet() {
    let (picker, engine) = one(by_requests()).await;
    let channel = picker.channel().await;
    let mut held = Vec::new();
    for i in 0..400 {
        let mut talk = Talk::open(channel.clone()).await;
        let id: &[_] = if i < 200 { &[("x-request-id", "r1")] } else { &[] };
        talk.send(post_with(GENERATE, id)).await;
        talk.send(piece(TOKENS, true)).await;
        let answer = talk.answer().await;
        assert_eq!(set(&answer, DESTINATION), Some(engine.address()));
        assert_eq!(set(&answer, "x-request-id").is_some(), i >= 200);
        held.push((talk, set(&answer, "x-request-id")));
    }
    let made: std::collections::BTreeSet<_> = held.iter().filter_map(|(_, id)| id.clone()).collect();
    assert_eq!(made.len(), 200);
    assert_eq!(picker.in_flight().await, [400]);
    held.truncate(100);
    until("a hundred", async || picker.in_flight().await == [100]).await;
    held.clear();
    until("zero", async || picker.in_flight().await == [0]).await;
}

#[tokio::test]
async fn five_thousand_streams_are_open_on_one_connection() {
    let (picker, engine) = one(by_requests()).await;
    let channel = picker.channel().await;
    let mut held = Vec::new();
    for _ in 0..5000 {
        let mut talk = Talk::open(channel.clone()).await;
        assert_eq!(talk.ask(GENERATE, TOKENS).await, Ok(engine.address()));
        held.push(talk);
    }
    assert_eq!(picker.in_flight().await, [5000]);
    drop(held);
    until("zero", async || picker.in_flight().await == [0]).await;
}

#[tokio::test]
async fn tls_agrees_on_http_2() {
    let (picker, _engine) = one(by_requests().flag("--secure-serving=true")).await;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the usual versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(epp::trust::AcceptAny::new(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(("127.0.0.1", picker.grpc)).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
}

#[tokio::test]
async fn a_message_may_be_as_large_as_the_flag_says() {
    let (picker, engine) = one(by_requests().flag("--grpc-max-recv-msg-size=32Mi")).await;
    let channel = picker.channel().await;
    let mut other = Talk::open(channel.clone()).await;
    other.send(post(COMPLETIONS)).await;
    let body = |mib: usize| format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "x".repeat(mib << 20));
    let mut large = Talk::open(channel.clone()).await;
    assert_eq!(large.ask(COMPLETIONS, &body(25)).await, Ok(engine.address()));
    let mut larger = Talk::open(channel).await;
    assert_eq!(larger.ask(COMPLETIONS, &body(33)).await, Err(Refused::Stream(tonic::Code::ResourceExhausted)));
    other.send(piece(r#"{"model":"m","prompt":"x"}"#, true)).await;
    assert_eq!(other.target().await, Ok(engine.address()));
}

#[tokio::test]
async fn a_framed_message_of_any_length_is_refused_and_nothing_breaks() {
    let (picker, engine) = one(by_requests()).await;
    let frame = Bytes::from_static(b"\x00\xff\xff\xff\xff0123456789");
    for path in ["/vllm.grpc.engine.VllmEngine/Generate", COMPLETIONS, GENERATE, "/generate"] {
        let mut talk = picker.open().await;
        talk.send(post(path)).await;
        talk.send(piece(frame.clone(), true)).await;
        // A path that nobody parses goes on as it is where the config allows that.
        match talk.target().await {
            Ok(target) => assert_eq!(target, engine.address(), "{path}"),
            Err(Refused::Answer { status, .. }) => assert_eq!(status, 400, "{path}"),
            Err(other) => panic!("{path}: {other:?}"),
        }
    }
    assert_eq!(picker.pick(GENERATE, TOKENS).await, Ok(engine.address()));
}
