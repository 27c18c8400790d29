//! What is asked, how answers are judged, and what is taught.

use std::time::Duration;

use epp_plugin_api::{Parting, ProfileRun, ResponseEnd, Runs, Usage};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Rig, Row, cycle, request, snapshot};

crate::conformance!(TYPE, json!({"streamingMode": true, "contextTTL": 300000000000u64}));

/// What a service says to one call.
type Said = Result<String, String>;

/// Has the answers read.
fn answered(remote: &dyn Remote, cx: &Cycle<'_>, columns: &mut Columns, said: &[Said]) -> Result<(), String> {
    let bodies: Vec<_> = said.iter().map(|s| s.as_ref().map(String::as_bytes).map_err(Clone::clone)).collect();
    let answers = Answers { bodies: &bodies, took: Duration::from_millis(7) };
    remote.answered(cx, columns, &Candidates::all(cx.snapshot.rows()), answers)
}

const OBJECTIVES: [(&str, &str); 2] = [("x-slo-ttft-ms", "100"), ("x-slo-tpot-ms", "30")];

/// Predicts 50 ms and then `tpot` for an endpoint, with a request of the objective `joined` running there.
fn predicted(parameters: Value, objectives: &[(&str, &str)], tpot: f64, joined: Option<&str>) -> LatencyPrediction {
    let rig = Rig::default();
    let instance = rig.build(&TYPE, parameters);
    let (remote, producer) = (instance.remote.unwrap(), instance.producer.unwrap());
    let board = snapshot(1, [Row::heard(2.0, 3.0, 1.5)]);
    let mut columns = Columns::default();
    columns.reset(1);
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(0)])], peer: None };
    let mut other = request(b"", Default::default());
    joined.into_iter().for_each(|ms| other.headers.set("x-slo-tpot-ms", ms.to_owned()));
    let _held = producer.picked(&cycle(&board, &other), &columns, &Picked { runs: &runs, primary: 0 });
    let mut request = request(b"", Default::default());
    objectives.iter().for_each(|(key, value)| request.headers.set(*key, (*value).to_owned()));
    let cx = cycle(&board, &request);
    let answer = json!({"predictions": [{"ttft_ms": 50, "tpot_ms": tpot}]}).to_string();
    assert_eq!(answered(&*remote, &cx, &mut columns, &[Ok(answer)]), Ok(()));
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
    let questions = remote.ask(&cycle(&board, &request), &columns, &Candidates::all(1));
    let [Question::Call(call), ..] = &questions[..] else { panic!("expected a call, found {questions:?}") };
    let body: Value = serde_json::from_slice(&call.body).unwrap();
    let expected = json!({"kv_cache_percentage": 1.0, "input_token_length": 0, "num_request_waiting": 2,
        "num_request_running": 3, "num_tokens_generated": 1, "prefix_cache_score": 0.0, "encoder_input_size": 0,
        "encoder_matched_size": 0, "pod_type": "big", "prefill_tokens_in_flight": 0, "decode_tokens_in_flight": 0});
    assert_eq!(body["requests"], json!([expected]));
    assert_eq!(call.timeout, Duration::from_millis(400));
}

/// What is asked for so many endpoints at the first request and at the next: rows of each call, or its page.
fn asked(parameters: Value, rows: usize) -> [Vec<String>; 2] {
    let remote = Rig::default().build(&TYPE, parameters).remote.unwrap();
    let (board, request) = (snapshot(1, vec![Row::default(); rows]), request(b"", Default::default()));
    let mut columns = Columns::default();
    columns.reset(rows);
    let cx = cycle(&board, &request);
    [(); 2].map(|()| {
        let calls = remote.ask(&cx, &columns, &Candidates::all(rows));
        let shown = |question: &Question| match question {
            Question::Call(call) if call.body.is_empty() => call.url.rsplit_once('/').unwrap().1.to_owned(),
            Question::Call(call) => {
                let body: Value = serde_json::from_slice(&call.body).unwrap();
                body["requests"].as_array().unwrap().len().to_string()
            }
            Question::Job(job) => panic!("expected calls, found {job:?}"),
        };
        calls.iter().map(shown).collect()
    })
}

#[test]
fn asks_for_a_hundred_endpoints_a_call_and_once_in_a_while_for_the_status() {
    assert_eq!(asked(json!(null), 100), [vec!["100", "status"], vec!["100"]]);
    assert_eq!(asked(json!(null), 250), [vec!["100", "100", "50", "status"], vec!["100", "100", "50"]]);
}

#[test]
fn asks_nothing_for_nobody_or_if_told_not_to() {
    assert_eq!(asked(json!(null), 0), [vec![""; 0], vec![]]);
    assert_eq!(asked(json!({"predictInProduce": false}), 1), [vec![""; 0], vec![]]);
}

/// An answer of so many predictions that count up from `from`.
fn predictions(from: usize, n: usize) -> Said {
    let predictions: Vec<_> = (from..from + n).map(|i| json!({"ttft_ms": i, "tpot_ms": 1})).collect();
    Ok(json!({"predictions": predictions}).to_string())
}

/// The predicted times to the first token of so many endpoints, by these answers.
fn ttfts(rows: usize, said: &[Said]) -> Result<Vec<f64>, String> {
    let rig = Rig::default();
    let remote = rig.build(&TYPE, json!(null)).remote.unwrap();
    let (board, request) = (snapshot(1, vec![Row::default(); rows]), request(b"", Default::default()));
    let mut columns = Columns::default();
    columns.reset(rows);
    let ended = answered(&*remote, &cycle(&board, &request), &mut columns, said);
    let column = columns.read(rig.slots.column::<LatencyPrediction>("predicted-latency-producer"));
    assert_eq!(ended.is_ok(), column.is_some());
    ended.map(|()| column.unwrap().iter().map(|said| said.ttft).collect())
}

#[test]
fn each_endpoint_gets_the_prediction_of_its_place() {
    let counted: Vec<f64> = (0..230).map(f64::from).collect();
    let three = [predictions(0, 100), predictions(100, 100), predictions(200, 30)];
    assert_eq!(ttfts(230, &three).as_ref(), Ok(&counted));
    // A service that says too much shifts nobody.
    let [first, second, third] = three;
    assert_eq!(ttfts(230, &[predictions(0, 103), second.clone(), third.clone()]), Ok(counted));
    assert!(ttfts(230, &[first.clone(), predictions(100, 99), third.clone()]).is_err());
    assert!(ttfts(230, &[first, second, Err("no answer".into())]).is_err());
}

#[test]
fn without_an_answer_nothing_is_predicted() {
    let short = predictions(0, 1);
    for answer in [Err("no answer".to_owned()), short, Ok("?".into())] {
        assert!(ttfts(2, &[answer]).is_err());
    }
}

#[test]
fn the_status_is_shown_and_predictions_do_not_wait_for_a_good_one() {
    let rig = Rig::default();
    let instance = rig.build(&TYPE, json!(null));
    let (remote, state) = (instance.remote.unwrap(), instance.state.unwrap());
    let (board, request) = (snapshot(1, [Row::default()]), request(b"", Default::default()));
    let mut columns = Columns::default();
    columns.reset(1);
    let mut hear = |status| answered(&*remote, &cycle(&board, &request), &mut columns, &[predictions(0, 1), status]);
    assert_eq!(hear(Ok(r#"{"is_ready": true, "quantile": 0.9}"#.into())), Ok(()));
    assert!(state().contains(r#""is_ready":true"#), "{}", state());
    assert_eq!(hear(Err("no answer".into())), Ok(()));
    assert!(state().contains("no answer"), "{}", state());
    let took = "llm_d_epp_request_ttft_prediction_duration_seconds_sum{";
    assert!(rig.page().lines().any(|line| line.starts_with(took) && line.ends_with(" 0.014")), "{}", rig.page());
}

/// A request on a rig of one endpoint whose prediction is 50 ms and 20 ms.
fn observed(rig: &Rig, producer: &dyn Producer) -> (Box<dyn Held>, tokio::time::Instant) {
    let mut request = request(b"", Default::default());
    OBJECTIVES.iter().for_each(|(key, value)| request.headers.set(*key, (*value).to_owned()));
    let board = snapshot(1, [Row::default()]);
    let said = LatencyPrediction { ttft: 50.0, tpot: 20.0, ..LatencyPrediction::default() };
    let columns = rig.column("predicted-latency-producer", &[said]);
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(0)])], peer: None };
    let cx = cycle(&board, &request);
    (producer.picked(&cx, &columns, &Picked { runs: &runs, primary: 0 }).unwrap(), cx.now)
}

/// What comes of an answer whose chunks came after so many milliseconds, the last one with the end.
fn ended(rig: &Rig, parameters: Value, chunks: &[u64], usage: Usage) -> Parting {
    let producer = rig.build(&TYPE, parameters).producer.unwrap();
    let (mut held, start) = observed(rig, &*producer);
    let at = |ms: u64| start + Duration::from_millis(ms);
    chunks.iter().for_each(|ms| held.response_chunk(at(*ms)));
    held.response_ended(&ResponseEnd { usage, streaming: true, now: at(*chunks.last().unwrap()) })
}

/// What such an answer teaches.
fn taught(parameters: Value, chunks: &[u64], usage: Usage) -> Vec<(f64, f64)> {
    let calls = ended(&Rig::default(), parameters, chunks, usage).calls;
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
fn what_answers_of_a_second_teach_goes_in_one_call() {
    let rig = Rig::default();
    let producer = rig.build(&TYPE, json!(null)).producer.unwrap();
    let (_, start) = observed(&rig, &*producer);
    let rows = [0, 10, 900, 1000, 1010].map(|ms| {
        let (mut held, _) = observed(&rig, &*producer);
        let now = start + Duration::from_millis(ms);
        let calls = held.response_ended(&ResponseEnd { usage: Usage::default(), streaming: false, now }).calls;
        let bodies = calls.iter().map(|call| serde_json::from_slice::<Value>(&call.body).unwrap());
        bodies.map(|body| body["entries"].as_array().unwrap().len()).collect::<Vec<_>>()
    });
    assert_eq!(rows, [vec![1], vec![], vec![], vec![3], vec![]]);
}

#[test]
fn what_answers_took_is_shown_beside_what_was_predicted() {
    let rig = Rig::default();
    ended(&rig, json!({"streamingMode": true}), &[120, 130, 140], Usage::default());
    let page = rig.page();
    for (name, value) in [
        ("request_predicted_ttft_seconds_sum", "0.05"),
        ("request_predicted_tpot_seconds_sum", "0.02"),
        (r#"slo_violation_total{..,type="ttft"}"#, "1"),
        (r#"slo_violation_total{..,type="tpot"}"#, "0"),
        (r#"inference_request_metric{..,type="tpot"}"#, "0.01"),
    ] {
        let (start, end) = name.split_once("..").unwrap_or((name, ""));
        let ours = |line: &&str| line.contains(start) && line.contains(end) && line.starts_with("llm_d_epp_");
        let line = page.lines().find(ours).unwrap_or_default();
        assert!(line.ends_with(&format!(" {value}")), "{name}: {line} in {page}");
    }
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
