//! Messages that were missed are asked for.

use std::time::Duration;

use tokio::time::Instant;

use super::rig::{Peer, Port, Rig, WITH_REPLAY};

const A: (&str, &str, u16) = ("a", "10.0.0.1", 8000);

/// A rig, and both ports of its one engine.
fn begin() -> (Rig, Port, Port) {
    let mut rig = Rig::new(WITH_REPLAY, &[]);
    let ports = (rig.net.listen(A.1, 5557), rig.net.listen(A.1, 5558));
    rig.endpoints(&[A]);
    (rig, ports.0, ports.1)
}

/// Waits for a request, and answers it with messages of these numbers and the end.
async fn answer(replay: &mut Port, expected_from: u64, numbers: &[u64]) {
    let (mut peer, from) = replay.replay().await;
    assert_eq!(from, expected_from);
    peer.reply(numbers).await;
    peer.end().await;
    peer.closed().await;
}

#[tokio::test(start_paused = true)]
async fn the_history_is_asked_for_on_connecting_and_gaps_are_filled() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    answer(&mut replay, 0, &[0, 1]).await;
    engine.send(1, "known").await;
    engine.send(2, "live2").await;
    engine.send(2, "again").await;
    rig.is_told(&["a old0", "a old1", "a live2"]).await;
    engine.send(5, "live5").await;
    answer(&mut replay, 3, &[3, 4]).await;
    rig.is_told(&["a old3", "a old4", "a live5"]).await;
    // K34: what the replay has brought already is applied once.
    engine.send(7, "live7").await;
    answer(&mut replay, 6, &[6, 7]).await;
    engine.send(8, "live8").await;
    rig.is_told(&["a old6", "a old7", "a live8"]).await;
    let report = serde_json::to_value(rig.kv.report()).unwrap();
    let line = &report[0]["endpoints"][0];
    assert_eq!((line["replays"].as_u64(), line["replayed_messages"].as_u64()), (Some(3), Some(6)));
    assert_eq!((line["last_sequence"].as_u64(), line["errors"].as_u64()), (Some(8), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn without_a_history_the_first_message_is_where_it_begins() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    answer(&mut replay, 0, &[]).await;
    engine.send(7, "seven").await;
    answer(&mut replay, 0, &[]).await;
    engine.send(8, "eight").await;
    rig.is_told(&["a seven", "a eight"]).await;
}

/// K30.
#[tokio::test(start_paused = true)]
async fn an_interrupted_history_goes_on_where_it_stopped() {
    let (mut rig, mut live, mut replay) = begin();
    let _engine = live.publisher().await;
    let (mut peer, _) = replay.replay().await;
    peer.reply(&[0, 1]).await;
    let start = Instant::now();
    answer(&mut replay, 2, &[2]).await;
    assert_eq!(start.elapsed(), Duration::from_millis(2100));
    rig.is_told(&["a old0", "a old1", "a old2"]).await;
}

/// K31, K32: with a hole nothing is certain.
#[tokio::test(start_paused = true)]
async fn a_history_with_holes_is_given_up() {
    for (numbers, told) in [(&[1][..], &["a lost"][..]), (&[0, 2], &["a old0", "a lost"]), (&[1, 0], &["a lost"])] {
        let (mut rig, mut live, mut replay) = begin();
        let _engine = live.publisher().await;
        let (mut peer, _) = replay.replay().await;
        peer.reply(numbers).await;
        rig.is_told(told).await;
        peer.closed().await;
        let errors = "{pod_identifier=\"10.0.0.1:8000\",operation=\"replay\"} 1";
        assert_eq!(rig.metric("llm_d_epp_kv_cache_events_zmq_errors_total"), [errors]);
    }
}

/// K33.
#[tokio::test(start_paused = true)]
async fn a_silent_engine_is_asked_three_times_and_then_left_alone_for_a_while() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    let mut silent: Vec<Peer> = Vec::new();
    for _ in 0..3 {
        silent.push(replay.replay().await.0);
    }
    rig.is_told(&["a lost"]).await;
    let failed = Instant::now();
    // While nothing may be asked for, only what needs no history is taken.
    engine.send(5, "ahead").await;
    engine.send(6, "ahead").await;
    drop(engine);
    let mut engine = live.publisher().await;
    engine.send(7, "ahead").await;
    tokio::time::advance(failed + Duration::from_secs(30) - Instant::now()).await;
    engine.send(8, "live8").await;
    answer(&mut replay, 0, &[0, 1, 2, 3, 4, 5, 6, 7]).await;
    for seq in 0..8 {
        rig.is_told(&[&format!("a old{seq}")]).await;
    }
    rig.is_told(&["a live8"]).await;
    rig.is_told_nothing_more();
}

/// K35.
#[tokio::test(start_paused = true)]
async fn what_follows_a_gap_that_cannot_be_filled_is_left_out() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    answer(&mut replay, 0, &[]).await;
    engine.send(0, "zero").await;
    engine.send(2, "two").await;
    answer(&mut replay, 1, &[]).await;
    engine.send(3, "three").await;
    // The engine starts again, which ends the pause, too.
    engine.send(0, "anew").await;
    answer(&mut replay, 0, &[]).await;
    rig.is_told(&["a zero", "a lost", "a lost", "a anew"]).await;
}

/// K36, and known fault S14.
#[tokio::test(start_paused = true)]
async fn an_engine_that_starts_again_is_read_afresh() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    answer(&mut replay, 0, &[]).await;
    engine.send(0, "zero").await;
    engine.send(1, "one").await;
    engine.send(0, "anew").await;
    answer(&mut replay, 0, &[0]).await;
    engine.send(1, "next").await;
    rig.is_told(&["a zero", "a one", "a lost", "a old0", "a next"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_older_form_of_replies_is_read_once_a_topic_is_known() {
    let (mut rig, mut live, mut replay) = begin();
    let mut engine = live.publisher().await;
    let older = |seq: u64| [b"x".to_vec(), seq.to_be_bytes().to_vec()];
    let (mut peer, _) = replay.replay().await;
    peer.raw(&[b"", &older(0)[1], b"old0"]).await;
    peer.closed().await;
    engine.send(2, "two").await;
    let (mut peer, from) = replay.replay().await;
    assert_eq!(from, 0);
    peer.raw(&[b"", &older(0)[1], b"old0"]).await;
    peer.raw(&[&older(1)[1], b"old1"]).await;
    peer.raw(&[b"END", b""]).await;
    rig.is_told(&["a old0", "a old1", "a two"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_history_that_never_ends_is_given_up() {
    let (mut rig, mut live, mut replay) = begin();
    let _engine = live.publisher().await;
    let start = Instant::now();
    // Each attempt brings one message, so none is without progress.
    tokio::spawn(async move {
        loop {
            let (mut peer, from) = replay.replay().await;
            peer.reply(&[from]).await;
            peer.closed().await;
        }
    });
    let mut last = rig.told().await;
    while last != "a lost" {
        last = rig.told().await;
    }
    assert!(start.elapsed() >= Duration::from_secs(120) && start.elapsed() < Duration::from_secs(123));
}
