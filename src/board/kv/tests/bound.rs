//! Engines that connect to a socket of the picker.

use std::sync::Arc;

use tokio::io::{AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Peer, Rig, soon};
use crate::board::kv::zmtp::wire;

const A: (&str, &str, u16) = ("a", "10.0.0.1", 8000);
const B: (&str, &str, u16) = ("b", "fd00::1", 8000);

/// A rig with a bound socket on a port that was free a moment ago.
async fn begin() -> Rig {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut rig = Rig::idle();
    rig.endpoints(&[A, B]);
    let mut wanted = rig.wanted("kv@", None);
    wanted.subscription.bind = Some(address);
    rig.kv.start(vec![wanted], rig.changes()).unwrap();
    rig
}

impl Rig {
    /// An engine that connects.
    async fn engine(&self) -> Peer {
        let (ours, theirs) = duplex(1 << 10);
        let bound = self.kv.inner.lock().subscriptions[0].socket.as_ref().map(|s| s.bound.clone()).unwrap();
        self.tasks.spawn("kv publisher", bound.hear(ours));
        let mut peer = Peer::new(theirs, "XPUB").await;
        assert_eq!(peer.message().await, [b"\x01kv@"]);
        peer
    }
}

async fn say(engine: &mut Peer, topic: &str, seq: u64, payload: &str) {
    engine.raw(&[topic.as_bytes(), &seq.to_be_bytes(), payload.as_bytes()]).await;
}

#[tokio::test(start_paused = true)]
async fn the_topic_says_which_endpoint_speaks() {
    let mut rig = begin().await;
    let mut engine = rig.engine().await;
    for (topic, payload) in [
        ("kv@10.0.0.1:8000@m", "1"),
        ("kv@10.0.0.1:8001@m", "of nobody"),
        ("kv@10.0.0.1:8000@a@b", "four parts"),
        ("kv@10.0.0.1:8000", "two parts"),
        ("kv@[fd00::1]:8000@m", "2"),
        ("kv@fd00::1:8000@m", "3"),
    ] {
        say(&mut engine, topic, 0, payload).await;
    }
    engine.raw(&[b"kv@10.0.0.1:8000@m", b"x"]).await;
    say(&mut engine, "kv@10.0.0.1:8000@m", 1, "4").await;
    rig.is_told(&["a kv@10.0.0.1:8000@m 1", "b kv@[fd00::1]:8000@m 2", "b kv@fd00::1:8000@m 3"]).await;
    rig.is_told(&["a kv@10.0.0.1:8000@m 4"]).await;
    let report = serde_json::to_value(rig.kv.report()).unwrap();
    let socket = &report[0]["socket"];
    assert_eq!(
        (&socket["publishers"], &socket["unknown_endpoint"], &socket["errors"]),
        (&1.into(), &3.into(), &1.into())
    );
    assert_eq!(report[0]["endpoints"][0]["state"], "connected");
    let errors = rig.metric("llm_d_epp_kv_cache_events_zmq_errors_total");
    assert!(errors.contains(&"{pod_identifier=\"\",operation=\"unknown-endpoint\"} 3".to_owned()), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_comes_back_with_lower_numbers_has_lost_its_blocks_and_a_second_rank_has_not() {
    let mut rig = begin().await;
    let topic = "kv@10.0.0.1:8000@m";
    let mut engine = rig.engine().await;
    say(&mut engine, topic, 50, "old").await;
    let mut rank = rig.engine().await;
    say(&mut rank, topic, 3, "other rank").await;
    let told = [rig.told().await, rig.told().await];
    assert!(!told.contains(&"a lost".to_owned()), "{told:?}");
    drop(rank);
    drop(engine);
    soon(async {
        while rig.kv.report()[0].socket.as_ref().is_some_and(|s| s.publishers > 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut engine = rig.engine().await;
    say(&mut engine, topic, 0, "new").await;
    rig.is_told(&["a lost", "a kv@10.0.0.1:8000@m new"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_an_endpoint_says_after_it_is_gone_is_of_nobody() {
    let mut rig = begin().await;
    let mut engine = rig.engine().await;
    say(&mut engine, "kv@10.0.0.1:8000@m", 0, "1").await;
    rig.is_told(&["a kv@10.0.0.1:8000@m 1"]).await;
    rig.endpoints(&[B]);
    say(&mut engine, "kv@10.0.0.1:8000@m", 1, "2").await;
    say(&mut engine, "kv@[fd00::1]:8000@m", 1, "3").await;
    rig.is_told(&["b kv@[fd00::1]:8000@m 3"]).await;
    rig.kv.change(Vec::new());
    rig.is_told_nothing_more();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", taken.local_addr().unwrap());
    let rig = Rig::idle();
    let mut wanted = rig.wanted("kv@", None);
    wanted.subscription.bind = Some(address.clone());
    let line = rig.kv.start(vec![wanted.clone()], rig.changes()).unwrap_err().to_string();
    assert!(line.starts_with(&format!("cannot listen for KV events at {address}: ")), "{line}");
    // A changed config goes on trying, until the port is free.
    rig.kv.change(vec![wanted]);
    let (at, bound) =
        (taken.local_addr().unwrap(), rig.kv.inner.lock().subscriptions[0].socket.as_ref().unwrap().bound.clone());
    soon(async {
        while bound.last_error.lock().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(taken);
    let mut stream = soon(async {
        loop {
            match TcpStream::connect(at).await {
                Ok(stream) => return stream,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    stream.write_all(&wire::greeting()).await.unwrap();
    soon(stream.readable()).await.unwrap();
    drop(Arc::clone(&bound));
}
