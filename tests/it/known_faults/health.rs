//! When the picker says that it serves, and how it ends.

use std::time::Duration;

use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup, refusal_to_start};
use crate::harness::talk::*;
use crate::harness::{PATIENCE, endpoints, until};

const ASK: &str = r#"{"model":"m","prompt":"x"}"#;
const NAME: &str = "envoy.service.ext_proc.v3.ExternalProcessor";

async fn one(drain: &str) -> (Picker, Engine) {
    let engine = Engine::start().await;
    let setup = Setup::scorers(&["active-request-scorer"]).flag(&format!("--drain-timeout={drain}"));
    (setup.start(&endpoints(&[engine.port])).await, engine)
}

async fn health(picker: &Picker) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", picker.health)).expect("a URL");
    HealthClient::new(endpoint.connect().await.expect("the health port is open"))
}

async fn check(client: &mut HealthClient<Channel>, service: &str) -> Result<ServingStatus, Code> {
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.map(|r| r.into_inner().status()).map_err(|s| s.code())
}

#[tokio::test]
async fn a_signal_drains_what_is_open_and_serves_what_still_comes() {
    let (mut picker, engine) = one("1s").await;
    let mut client = health(&picker).await;
    let channel = picker.channel().await;
    let mut open = Vec::new();
    for _ in 0..20 {
        let mut talk = Talk::open(channel.clone()).await;
        talk.ask(COMPLETIONS, ASK).await.unwrap();
        open.push(talk);
    }
    picker.signal("TERM");
    until("not ready", async || check(&mut client, "").await == Ok(ServingStatus::NotServing)).await;
    assert_eq!(check(&mut client, "liveness").await, Ok(ServingStatus::Serving));
    assert_eq!((picker.get("/readyz").await.0, picker.get("/healthz").await.0), (503, 200));
    assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()));
    for talk in open {
        talk.send(response_head(&[(":status", "200")])).await;
        talk.send(response_piece("x", true)).await;
        assert_eq!(talk.rest().await.unwrap().len(), 3);
    }
    assert!(picker.ended().await.success());
}

#[tokio::test]
async fn streams_that_stay_silent_do_not_hold_up_the_end() {
    let (mut picker, _engine) = one("100ms").await;
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(picker.hold(COMPLETIONS, ASK).await.unwrap());
    }
    picker.signal("TERM");
    assert!(picker.ended().await.success());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    // Far longer than any test waits.
    let (mut picker, _engine) = one("1h").await;
    picker.signal("TERM");
    until("draining", async || picker.log().contains("\"msg\":\"draining\"")).await;
    picker.signal("TERM");
    assert_eq!(picker.ended().await.code(), Some(1));
}

#[tokio::test]
async fn health_is_asked_by_name_and_watched() {
    let (picker, _engine) = one("1h").await;
    let mut client = health(&picker).await;
    for (service, expected) in [
        ("", Ok(ServingStatus::Serving)),
        (NAME, Ok(ServingStatus::Serving)),
        ("liveness", Ok(ServingStatus::Serving)),
        ("nope", Err(Code::NotFound)),
    ] {
        assert_eq!(check(&mut client, service).await, expected, "{service:?}");
    }
    let mut watch = client.watch(HealthCheckRequest { service: NAME.into() }).await.unwrap().into_inner();
    let mut next = async || {
        let news = tokio::time::timeout(PATIENCE, watch.message()).await.expect("news in time");
        news.unwrap().expect("a status").status()
    };
    assert_eq!(next().await, ServingStatus::Serving);
    picker.signal("TERM");
    assert_eq!(next().await, ServingStatus::NotServing);
}

#[tokio::test]
async fn the_first_pick_after_ready_has_an_endpoint() {
    for _ in 0..5 {
        let engine = Engine::start().await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut picker = Setup::scorers(&["queue-scorer"])
            .flag(&format!("--metrics-port={port}"))
            .spawn(Some(&endpoints(&[engine.port])));
        picker.metrics = port;
        let ready = async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok();
        until("an open port", ready).await;
        until("ready", async || picker.get("/readyz").await.0 == 200).await;
        picker.find_ports();
        assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()));
    }
}

#[tokio::test]
async fn a_port_in_use_ends_the_start_with_its_number() {
    let (first, _engine) = one("1s").await;
    for (flag, port) in
        [("--grpc-port", first.grpc), ("--grpc-health-port", first.health), ("--metrics-port", first.metrics)]
    {
        let second = Setup::scorers(&["queue-scorer"]).flag(&format!("{flag}={port}")).spawn(Some("endpoints: []"));
        let log = tokio::time::timeout(Duration::from_secs(60), refusal_to_start(second)).await.unwrap();
        assert!(log.contains(&format!("port {port}")) && log.contains("in use"), "{flag}: {log}");
    }
}
