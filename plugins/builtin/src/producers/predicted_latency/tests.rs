//! What is asked, how answers are judged, and what is taught.

use std::time::Duration;

use epp_plugin_api::{ProfileRun, Runs, Usage};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Rig, Row, cycle, request, snapshot};

crate::conformance!(TYPE, json!({"streamingMode": true, "contextTTL": 300000000000u64}));

const OBJECTIVES: [(&str, &str); 2] = [("x-slo-ttft-ms", "100"), ("x-slo-tpot-ms", "30")];

/// Predicts 50 ms and then `tpot` for an endpoint, with a request of the objective `joined` running there.
fn predicted(parameters: Value, objectives: &[(&str, &str)], tpot: f64, joined: Option<&str>) -> LatencyPrediction {
    let rig = Rig::default();
    let instance = rig.build(&TYPE, parameters);
    let (remote, producer) = (instance.remote.unwrap(), instance.producer.unwrap());
    let board = snapshot(1, [Row::heard(2.0, 3.0, 1.5)]);
    let (mut columns, among) = (Columns::default(), Candidates::all(1));
    columns.reset(1);
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(0)])], peer: None };
    let mut other = request(b"", Default::default());
    joined.into_iter().for_each(|ms| other.headers.set("x-slo-tpot-ms", ms.to_owned()));
    let _held = producer.picked(&cycle(&board, &other), &columns, &Picked { runs: &runs, primary: 0 });
    let mut request = request(b"", Default::default());
    objectives.iter().for_each(|(key, value)| request.headers.set(*key, (*value).to_owned()));
    let cx = cycle(&board, &request);
    let answer = json!({"predictions": [{"ttft_ms": 50, "tpot_ms": tpot}]}).to_string();
    assert_eq!(remote.answered(&cx, &mut columns, &among, Ok(answer.as_bytes())), Ok(()));
    columns.read(rig.slots.column::<LatencyPrediction>("predicted-latency-producer")).unwrap()[0]
}

#[track_caller]
fn check(got: LatencyPrediction, valid: (bool, bool), headroom: (f64, f64)) {
    assert_eq!((got.ttft_valid, got.tpot_valid), valid);
    assert_eq!((got.ttft_headroom, got.tpot_headroom), headroom);
}

#[test]
fn predictions_are_held_against_the_objectives() {
    let streaming = || json!({"streamingMode": true});
    check(predicted(streaming(), &OBJECTIVES, 20.0, None), (true, true), (50.0, 10.0));
    check(predicted(streaming(), &OBJECTIVES, 40.0, None), (true, false), (50.0, -10.0));
    check(predicted(streaming(), &[], 20.0, None), (true, true), (-50.0, -20.0));
    check(predicted(streaming(), &OBJECTIVES, 25.0, Some("20")), (true, false), (50.0, -5.0));
    check(predicted(streaming(), &OBJECTIVES, 25.0, Some("40")), (true, true), (50.0, 5.0));
    let buffered = json!({"streamingMode": true, "sloBufferFactor": 0.5});
    check(predicted(buffered, &OBJECTIVES, 20.0, None), (true, false), (50.0, -5.0));
}

#[test]
fn without_streaming_the_time_per_token_is_not_judged() {
    check(predicted(json!(null), &OBJECTIVES, 999.0, None), (true, true), (50.0, 0.0));
}

#[test]
fn the_service_is_told_what_it_accepts() {
    let remote = Rig::default().build(&TYPE, json!({"endpointRoleLabel": "kind"})).remote.unwrap();
    let mut row = Row::heard(2.0, 3.0, 1.5);
    row.labels.insert("kind".into(), "big".into());
    let (board, request) = (snapshot(1, [row]), request(b"", Default::default()));
    let mut columns = Columns::default();
    columns.reset(1);
    let question = remote.ask(&cycle(&board, &request), &columns, &Candidates::all(1));
    let Some(Question::Call(call)) = question else { panic!("expected a call, found {question:?}") };
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let expected = json!({"kv_cache_percentage": 1.0, "input_token_length": 0, "num_request_waiting": 2,
        "num_request_running": 3, "num_tokens_generated": 1, "prefix_cache_score": 0.0, "encoder_input_size": 0,
        "encoder_matched_size": 0, "pod_type": "big", "prefill_tokens_in_flight": 0, "decode_tokens_in_flight": 0});
    assert_eq!(body["requests"], json!([expected]));
    assert_eq!(call.timeout, Duration::from_millis(400));
}

#[test]
fn asks_nothing_for_more_endpoints_than_the_service_takes_or_if_told_not_to() {
    let asked = |parameters, rows| {
        let remote = Rig::default().build(&TYPE, parameters).remote.unwrap();
        let (board, request) = (snapshot(1, vec![Row::default(); rows]), request(b"", Default::default()));
        let mut columns = Columns::default();
        columns.reset(rows);
        remote.ask(&cycle(&board, &request), &columns, &Candidates::all(rows)).is_some()
    };
    assert!(asked(json!(null), 100) && !asked(json!(null), 101) && !asked(json!(null), 0));
    assert!(!asked(json!({"predictInProduce": false}), 1));
}

#[test]
fn without_an_answer_nothing_is_predicted() {
    let rig = Rig::default();
    let remote = rig.build(&TYPE, json!(null)).remote.unwrap();
    let (board, request) = (snapshot(1, vec![Row::default(); 2]), request(b"", Default::default()));
    let short = br#"{"predictions": [{"ttft_ms": 1, "tpot_ms": 1}]}"#;
    for answer in [Err("no answer".to_owned()), Ok(&short[..]), Ok(&b"?"[..])] {
        let mut columns = Columns::default();
        columns.reset(2);
        let among = Candidates::all(2);
        assert!(remote.answered(&cycle(&board, &request), &mut columns, &among, answer).is_err());
        assert!(columns.read(rig.slots.column::<LatencyPrediction>("predicted-latency-producer")).is_none());
    }
}

/// What is taught of an answer whose chunks came after so many milliseconds, the last one with the end.
fn taught(parameters: Value, chunks: &[u64], usage: Usage) -> Vec<(f64, f64)> {
    let producer = Rig::default().build(&TYPE, parameters).producer.unwrap();
    let (board, request) = (snapshot(1, [Row::default()]), request(b"", Default::default()));
    let mut columns = Columns::default();
    columns.reset(1);
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(0)])], peer: None };
    let cx = cycle(&board, &request);
    let mut held = producer.picked(&cx, &columns, &Picked { runs: &runs, primary: 0 }).unwrap();
    let at = |ms: u64| cx.now + Duration::from_millis(ms);
    chunks.iter().for_each(|ms| held.response_chunk(at(*ms)));
    let end = ResponseEnd { usage, streaming: true, now: at(*chunks.last().unwrap()) };
    let calls = held.response_ended(&end).calls;
    let Some(call) = calls.first() else { return Vec::new() };
    assert!(call.url.ends_with("/add_training_data_bulk"));
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let time = |entry: &Value, key: &str| entry[key].as_f64().unwrap();
    let entries = body["entries"].as_array().unwrap();
    entries.iter().map(|e| (time(e, "actual_ttft_ms"), time(e, "actual_tpot_ms"))).collect()
}

#[test]
fn the_training_service_is_told_what_answers_took() {
    let streaming = || json!({"streamingMode": true});
    assert_eq!(taught(streaming(), &[40, 50, 60], Usage::default()), [(40.0, 0.0), (0.0, 10.0)]);
    let usage = Usage { completion: Some(5), ..Usage::default() };
    assert_eq!(taught(streaming(), &[40, 50, 60], usage), [(40.0, 0.0), (0.0, 5.0)]);
    assert_eq!(taught(streaming(), &[40], usage), []);
    assert_eq!(taught(json!(null), &[40, 60], usage), [(60.0, 0.0)]);
}

#[test]
fn refuses_parameters_out_of_range() {
    for (parameters, culprit) in [
        (json!({"sloBufferFactor": 0}), "sloBufferFactor"),
        (json!({"contextTTL": "5m"}), "contextTTL"),
        (json!({"streaming": true}), "streaming"),
    ] {
        assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
    }
}
