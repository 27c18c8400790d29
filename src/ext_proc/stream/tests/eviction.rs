//! Streams that wait, and streams that are ended to make room for them.

use std::pin::pin;

use super::*;

const CONFIG: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins:\n\
    - {type: random-picker}\n- {type: concurrency-detector, parameters: {maxConcurrency: 1}}\n- {type: openai-parser}\n\
    requestHandler: {parsers: [{pluginRef: openai-parser}]}\nobjectives: {high: 10, batch: -1}\n\
    schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]\n\
    flowControl: {enableEviction: true, saturationDetector: {pluginRef: concurrency-detector}}\n";
const BATCH: &str = "Hx-llm-d-inference-objective=batch";
const HIGH: &str = "Hx-llm-d-inference-objective=high";
const BODY: &str = r#"B{"model":"m","prompt":"x"}$"#;

fn message(text: &str) -> ProcessingRequest {
    ProcessingRequest { request: Some(request(text)), metadata_context: None, protocol_config: None }
}

/// Whether the stream has been ended, and what it says then.
fn ended(talk: &mut Talk<'_>) -> Option<String> {
    let mut cx = task::Context::from_waker(task::Waker::noop());
    talk.stream.poll_evicted(&mut cx).is_ready().then(|| said(&talk.stream.next_answer().expect("it says so")))
}

#[test]
fn a_stream_waits_until_another_has_ended() {
    let bench = Bench::of(CONFIG, 1);
    let mut first = Talk::new(&bench, DUPLEX);
    first.say("H");
    assert_eq!(first.say(BODY).len(), 2);
    let mut second = Talk::new(&bench, DUPLEX);
    second.say("H");
    let mut waits = Box::pin(second.stream.take(message(BODY), Instant::now()));
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!(first.say("h$"), ["response headers"]);
    assert!(waits.as_mut().now_or_never().is_some());
    drop(waits);
    assert_eq!(said(&second.stream.next_answer().unwrap()), "headers to 10.0.0.1:8000 length 26");
    drop((first, second));
    assert_eq!(bench.in_flight(), 0);
}

/// Ends a stream of low priority after these messages, for another of high priority.
fn check(after: &[&str]) {
    let bench = Bench::of(CONFIG, 1);
    let mut victim = Talk::new(&bench, DUPLEX);
    for text in [BATCH, BODY].iter().chain(after) {
        victim.say(text);
    }
    assert_eq!(ended(&mut victim), None);
    let mut high = Talk::new(&bench, DUPLEX);
    high.say(HIGH);
    {
        let mut waits = pin!(high.stream.take(message(BODY), Instant::now()));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(ended(&mut victim), Some("immediate 429".into()));
        assert!(victim.stream.is_over());
        assert!(waits.as_mut().now_or_never().is_some());
    }
    assert!(said(&high.stream.next_answer().unwrap()).starts_with("headers to"));
    assert_eq!((ended(&mut victim), bench.in_flight()), (None, 1));
    assert_eq!(victim.say("bmore"), [""; 0]);
}

#[test]
fn a_stream_is_ended_before_its_response_and_in_it() {
    check(&[]);
    check(&["h"]);
    check(&["h", "bsome"]);
}

#[test]
fn a_stream_whose_response_is_complete_is_left_alone() {
    let bench = Bench::of(CONFIG, 1);
    let mut done = Talk::new(&bench, DUPLEX);
    for text in [BATCH, BODY, "h", "ball$"] {
        done.say(text);
    }
    let mut high = Talk::new(&bench, DUPLEX);
    high.say(HIGH);
    assert_eq!(high.say(BODY).len(), 2);
    assert_eq!(ended(&mut done), None);
}

#[test]
fn a_client_that_leaves_while_it_waits_is_counted_and_frees_its_place() {
    let bench = Bench::of(CONFIG, 1);
    let mut first = Talk::new(&bench, DUPLEX);
    first.say("H");
    first.say(BODY);
    let mut second = Talk::new(&bench, DUPLEX);
    second.say("H");
    {
        let mut waits = pin!(second.stream.take(message(BODY), Instant::now()));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(bench.cx.flow.report(false).unwrap().requests, 1);
    }
    assert_eq!(bench.cx.flow.report(false).unwrap().requests, 0);
}
