//! Live messages of engines that are connected to.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::rig::{PORTS, Peer, Rig, soon};
use crate::board::kv::zmtp::wire::{self, Item};

const A: (&str, &str, u16) = ("a", "10.0.0.1", 8000);
const B: (&str, &str, u16) = ("b", "::1", 8000);

#[tokio::test(start_paused = true)]
async fn messages_come_in_order_and_others_are_left_out() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let mut engine = port.publisher().await;
    engine.send(0, "first").await;
    let seq = 7_u64.to_be_bytes();
    engine.raw(&[b"kv@pod@m"]).await;
    engine.raw(&[b"kv@pod@m", &seq]).await;
    engine.raw(&[b"kv@pod@m", &seq, b"x", b"y"]).await;
    engine.raw(&[b"kv@pod@m", &seq, b"1", b"2", b"3", b"4"]).await;
    engine.raw(&[b"kv@pod@m", &seq[..7], b"x"]).await;
    engine.raw(&[&[&b"kv@"[..], &[b'x'; 5000]].concat(), &seq, b"x"]).await;
    engine.raw(&[b"other@pod@m", &seq, b"x"]).await;
    engine.raw(&[b"kv@\xff@m", &[&seq[..], b"more"].concat(), b"second"]).await;
    engine.send(8, "").await;
    rig.is_told(&["a first", "a kv@\u{fffd}@m second", "a "]).await;
    let report = serde_json::to_value(rig.kv.report()).unwrap();
    let line = &report[0]["endpoints"][0];
    assert_eq!((line["messages"].as_u64(), line["errors"].as_u64()), (Some(3), Some(6)));
    assert_eq!((line["last_sequence"].as_u64(), line["state"].as_str()), (Some(8), Some("connected")));
    assert_eq!(line["address"], "tcp://10.0.0.1:5557");
    assert_eq!(
        rig.metric("llm_d_epp_kv_cache_events_messages_received_total"),
        ["{pod_identifier=\"10.0.0.1:8000\"} 3"]
    );
    let errors = "{pod_identifier=\"10.0.0.1:8000\",operation=\"message\"} 6";
    assert_eq!(rig.metric("llm_d_epp_kv_cache_events_zmq_errors_total"), [errors]);
    assert_eq!(rig.metric("llm_d_epp_kv_cache_events_active_subscribers"), [" 1"]);
}

/// Known fault S14: an engine that was started again in place kept its old blocks.
#[tokio::test(start_paused = true)]
async fn a_sequence_that_starts_again_gives_up_what_was_known_over_connections_too() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let mut engine = port.publisher().await;
    engine.send(50, "old").await;
    engine.send(0, "new").await;
    engine.send(1, "next").await;
    rig.is_told(&["a old", "a lost", "a new", "a next"]).await;
    drop(engine);
    let mut engine = port.publisher().await;
    engine.send(2, "goes on").await;
    drop(engine);
    let mut engine = port.publisher().await;
    engine.send(0, "again").await;
    rig.is_told(&["a goes on", "a lost", "a again"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_speaks_something_else_is_left_and_tried_again() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let start = Instant::now();
    let mut web = port.accept().await;
    web.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let silent = port.accept().await;
    let mut other = port.accept().await;
    // Longer than the handshake's patience: the silent one was waited for.
    assert!(start.elapsed() >= Duration::from_secs(5));
    let mut ready = wire::greeting().to_vec();
    wire::write_ready(&mut ready, "ROUTER");
    other.write_all(&ready).await.unwrap();
    let mut engine = port.publisher().await;
    engine.send(0, "good").await;
    rig.is_told(&["a good"]).await;
    let report = serde_json::to_value(rig.kv.report()).unwrap();
    let line = &report[0]["endpoints"][0];
    assert_eq!((line["reconnections"].as_u64(), line["errors"].as_u64()), (Some(3), Some(3)));
    assert_eq!(line["last_error"], "expected a socket of type PUB, found \"ROUTER\"");
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn subscribers_follow_the_endpoints() {
    let mut rig = Rig::new(PORTS, &[]);
    let (mut at_a, mut at_b) = (rig.net.listen(A.1, 5557), rig.net.listen(B.1, 5557));
    rig.endpoints(&[A, B]);
    let (mut a, mut b) = (at_a.publisher().await, at_b.publisher().await);
    b.send(0, "x").await;
    rig.is_told(&["b x"]).await;
    // What is on its way when an endpoint goes does not come any more.
    b.send(1, "late").await;
    rig.endpoints(&[A]);
    b.closed().await;
    // The one that stays keeps its connection.
    a.send(0, "y").await;
    rig.is_told(&["a y"]).await;
    assert_eq!(rig.metric("llm_d_epp_kv_cache_events_active_subscribers"), [" 1"]);
    assert_eq!(rig.metric("llm_d_epp_kv_cache_events_messages_received_total").len(), 1);
    // One that comes back is another endpoint: its numbers begin anew.
    rig.endpoints(&[B, A]);
    let mut b = at_b.publisher().await;
    b.send(0, "z").await;
    rig.is_told(&["b z"]).await;
    // Another address is another engine.
    let mut at_new = rig.net.listen("10.0.0.9", 5557);
    rig.endpoints(&[("b", "10.0.0.9", 8000), A]);
    b.closed().await;
    at_new.publisher().await.send(0, "moved").await;
    rig.is_told(&["b lost", "b moved"]).await;
    a.send(1, "still").await;
    rig.is_told(&["a still"]).await;
    rig.tasks.stop();
    a.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_config_keeps_the_subscriptions_that_are_as_before() {
    let mut rig = Rig::idle();
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let first = rig.wanted("kv@", Some(PORTS));
    rig.kv.start(vec![first.clone()], rig.changes()).unwrap();
    let mut engine = port.publisher().await;
    let other = rig.wanted("events@", Some(PORTS));
    rig.kv.change(vec![other.clone(), first]);
    let mut second = Peer::new(port.accept().await, "PUB").await;
    assert_eq!(second.message().await, [b"\x01events@"]);
    engine.send(0, "x").await;
    rig.is_told(&["a x"]).await;
    rig.kv.change(vec![other]);
    engine.closed().await;
    second.raw(&[b"events@", &[0; 8], b"y"]).await;
    rig.is_told(&["a events@ y"]).await;
    rig.kv.change(Vec::new());
    second.closed().await;
    assert_eq!(rig.metric("llm_d_epp_kv_cache_events_active_subscribers"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_long_payload_stays_before_what_comes_after_it() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let mut engine = port.publisher().await;
    let long = "x".repeat(300_000);
    for seq in 0..3 {
        engine.send(2 * seq, &long).await;
        engine.send(2 * seq + 1, "short").await;
    }
    for _ in 0..3 {
        rig.is_told(&["a 300000 bytes", "a short"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_panics_costs_one_message() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let mut engine = port.publisher().await;
    engine.send(0, "panic").await;
    engine.send(1, "good").await;
    rig.is_told(&["a good"]).await;
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_an_error_ends_the_connection() {
    let mut rig = Rig::new(PORTS, &[]);
    let mut port = rig.net.listen(A.1, 5557);
    rig.endpoints(&[A]);
    let mut engine = port.publisher().await;
    let mut out = Vec::new();
    wire::write_command(&mut out, "PING", b"\x00\x10context");
    wire::write_command(&mut out, "WIBBLE", b"");
    engine.io.write_all(&out).await.unwrap();
    let Item::Command(pong) = engine.item().await else { panic!("expected a command") };
    assert_eq!((&pong.name[..], &pong.data[..]), (&b"PONG"[..], &b"context"[..]));
    let mut out = Vec::new();
    wire::write_command(&mut out, "ERROR", b"\x04full");
    engine.io.write_all(&out).await.unwrap();
    assert_eq!(soon(engine.io.read(&mut [0; 8])).await.unwrap(), 0);
    port.publisher().await.send(0, "back").await;
    rig.is_told(&["a back"]).await;
    let report = serde_json::to_value(rig.kv.report()).unwrap();
    assert_eq!(report[0]["endpoints"][0]["last_error"], "the peer refuses: \"full\"");
}
