//! The order, shape and number of answers on a stream.

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

async fn one() -> (Picker, Engine) {
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["active-request-scorer"]).start(&endpoints(&[engine.port])).await;
    (picker, engine)
}

fn kinds(answers: &[epp::ext_proc::wire::ProcessingResponse]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = answers.iter().map(kind).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn a_last_piece_that_comes_twice_changes_nothing() {
    let (picker, engine) = one().await;
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "x".repeat(40 * 32 * 1024 - 25)).into_bytes();
    let pieces: Vec<_> = body.chunks(32 * 1024).collect();
    let talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    for (i, bytes) in pieces.iter().enumerate() {
        talk.send(piece(*bytes, i + 1 == pieces.len())).await;
    }
    talk.send(piece(pieces[pieces.len() - 1], true)).await;
    talk.send(response_head(&[(":status", "200")])).await;
    let mut talk = talk;
    let mut answers = vec![talk.answer().await];
    while kind(&answers[answers.len() - 1]) != "response headers" {
        answers.push(talk.answer().await);
    }
    assert_eq!(kinds(&answers), ["request headers", "request body", "response headers"]);
    assert_eq!(set(&answers[0], DESTINATION), Some(engine.address()));
    assert_eq!(joined(&answers[1..answers.len() - 1]), body);
    assert_eq!(picker.in_flight().await, [1]);
    assert_eq!(picker.sum("llm_d_epp_request_total", &[]).await, 1.0);
}

#[tokio::test]
async fn headers_are_answered_first_and_pieces_in_order() {
    let (picker, _engine) = one().await;
    let talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    for (text, end) in [("{\"model\":\"m\",", false), ("\"prompt\":", false), ("\"x\"}", true)] {
        talk.send(piece(text, end)).await;
    }
    let answers = talk.rest().await.unwrap();
    assert_eq!(kinds(&answers), ["request headers", "request body"]);
    assert_eq!(joined(&answers[1..]), b"{\"model\":\"m\",\"prompt\":\"x\"}");
}

#[tokio::test]
async fn every_piece_of_a_response_goes_on_as_a_piece() {
    let (picker, _engine) = one().await;
    let (_, talk) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
    talk.send(response_head(&[(":status", "200")])).await;
    for (text, end) in [("a", false), ("b", false), ("c", true)] {
        talk.send(response_piece(text, end)).await;
    }
    let answers = talk.rest().await.unwrap();
    assert_eq!(kinds(&answers), ["request body", "response headers", "response body"]);
    let bodies: Vec<_> = answers.into_iter().filter(|a| kind(a) == "response body").collect();
    assert_eq!(joined(&bodies), b"abc");
}

#[tokio::test]
async fn trailers_end_a_body() {
    let (picker, engine) = one().await;
    let talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    talk.send(piece(r#"{"model":"m","prompt":"x"}"#, false)).await;
    talk.send(trailers()).await;
    let answers = talk.rest().await.unwrap();
    assert_eq!(kinds(&answers), ["request headers", "request body", "request trailers"]);
    assert_eq!(set(&answers[0], DESTINATION), Some(engine.address()));
    assert_eq!(streamed(&answers[1]).map(|(_, end)| end), Some(false));
}

#[tokio::test]
async fn a_request_without_a_body_is_sent_on_at_once() {
    let (picker, engine) = one().await;
    let get = head(&[(":method", "GET"), (":path", "/v1/models")], true);
    let mut talk = picker.open().await;
    talk.send(get.clone()).await;
    assert_eq!(talk.target().await, Ok(engine.address()));
    picker.endpoints("endpoints: []");
    until("the empty list", async || picker.knows(0).await).await;
    let mut talk = picker.open().await;
    talk.send(get).await;
    let Err(Refused::Answer { reason, .. }) = talk.target().await else { panic!("expected a refusal") };
    assert_eq!(reason.as_deref(), Some("rejected-no-endpoints"));
}

#[tokio::test]
async fn hop_by_hop_headers_of_a_response_are_left_alone() {
    let (picker, _engine) = one().await;
    let (_, talk) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
    let headers = [
        (":status", "200"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive"),
        ("content-type", "text/event-stream"),
    ];
    talk.send(response_head(&headers)).await;
    let answers = talk.rest().await.unwrap();
    let answer = answers.iter().find(|a| kind(a) == "response headers").expect("an answer to the headers");
    assert_eq!(sets(answer).iter().map(|(k, _)| k.as_str()).collect::<Vec<_>>(), ["x-went-into-resp-headers"]);
    assert!(removes(answer).is_empty());
}

#[tokio::test]
async fn the_length_is_that_of_the_body_that_goes_on() {
    let (picker, _engine) = one().await;
    let body = "{ \"model\" : \"alias\",\n\n  \"prompt\" : \"x\" }";
    for more in [&[][..], &[("x-llm-d-model-name-rewrite", "a-much-longer-name")]] {
        let talk = picker.open().await;
        let length = body.len().to_string();
        talk.send(post_with(COMPLETIONS, &[more, &[("content-length", &length)]].concat())).await;
        talk.send(piece(body, true)).await;
        let answers = talk.rest().await.unwrap();
        let sent = joined(&answers[1..]);
        assert_eq!(set(&answers[0], "content-length"), Some(sent.len().to_string()), "{more:?}");
        let expected = body.replace("alias", if more.is_empty() { "alias" } else { "a-much-longer-name" });
        assert_eq!(sent, expected.as_bytes(), "{more:?}");
    }
}

#[tokio::test]
async fn metadata_names_the_endpoint_of_the_header() {
    let (picker, engine) = one().await;
    let mut talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    talk.send(piece(r#"{"model":"m","prompt":"x"}"#, true)).await;
    let answer = talk.answer().await;
    assert_eq!(set(&answer, DESTINATION), Some(engine.address()));
    assert_eq!(metadata(&answer, DESTINATION), Some(prost_types::value::Kind::StringValue(engine.address())));
}

#[tokio::test]
async fn a_client_that_leaves_is_no_failure() {
    let (picker, _engine) = one().await;
    let before = picker.open().await;
    before.send(post(COMPLETIONS)).await;
    drop(before);
    let (_, after) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
    assert_eq!(picker.in_flight().await, [1]);
    drop(after);
    until("the release", async || picker.in_flight().await == [0]).await;
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
    assert_eq!(picker.sum("llm_d_epp_request_error_total", &[]).await, 0.0);
    assert_eq!(picker.sum("llm_d_epp_request_running", &[]).await, 0.0);
}

#[tokio::test]
async fn a_response_without_its_request_passes() {
    let (picker, engine) = one().await;
    let mut get = picker.open().await;
    get.send(head(&[(":method", "GET"), (":path", "/v1/models")], true)).await;
    assert_eq!(get.target().await, Ok(engine.address()));
    for talk in [get, picker.open().await] {
        talk.send(response_head(&[(":status", "200")])).await;
        talk.send(response_piece("{\"data\":[]}", true)).await;
        let answers = talk.rest().await.unwrap();
        assert_eq!(kinds(&answers), ["response headers", "response body"]);
        assert_eq!(joined(&answers[1..]), b"{\"data\":[]}");
    }
    assert!(picker.pick(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.is_ok());
}

#[tokio::test]
async fn a_response_under_way_is_never_refused() {
    let (picker, _engine) = one().await;
    let (_, talk) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
    talk.send(response_head(&[(":status", "200"), ("content-type", "application/json")])).await;
    talk.send(response_piece("{\"usage\":{\"prompt", false)).await;
    talk.send(response_piece(&b"\xff\x00}}}{"[..], true)).await;
    let answers = talk.rest().await.unwrap();
    assert_eq!(kinds(&answers), ["request body", "response headers", "response body"]);
    let bodies: Vec<_> = answers.into_iter().filter(|a| kind(a) == "response body").collect();
    assert_eq!(joined(&bodies), b"{\"usage\":{\"prompt\xff\x00}}}{");
}

#[tokio::test]
async fn a_status_that_is_no_number_is_unknown() {
    let (picker, _engine) = one().await;
    for status in [&[(":status", "abc")][..], &[]] {
        let (_, talk) = picker.hold(COMPLETIONS, r#"{"model":"m","prompt":"x"}"#).await.unwrap();
        talk.send(response_head(status)).await;
        talk.send(response_piece("x", true)).await;
        let answers = talk.rest().await.unwrap();
        assert_eq!(kinds(&answers), ["request body", "response headers", "response body"], "{status:?}");
    }
    assert_eq!(picker.sum("llm_d_epp_request_error_total", &[]).await, 0.0);
}

const BUFFERED: i32 = 2;
const FULL_DUPLEX: i32 = 4;
const NONE: i32 = 0;

#[tokio::test]
async fn a_buffered_body_is_answered_once_and_does_not_travel_back() {
    let (picker, engine) = one().await;
    let mut talk = picker.open().await;
    talk.send(with_modes(post(COMPLETIONS), BUFFERED, NONE)).await;
    let answer = talk.answer().await;
    assert_eq!((kind(&answer), sets(&answer).len()), ("request headers", 0));
    talk.send(piece(r#"{"model":"m","prompt":"x"}"#, true)).await;
    talk.send(piece(r#"{"model":"m","prompt":"x"}"#, true)).await;
    talk.send(response_head(&[(":status", "200")])).await;
    let answer = talk.answer().await;
    assert_eq!((kind(&answer), set(&answer, DESTINATION)), ("request body", Some(engine.address())));
    assert_eq!((streamed(&answer), set(&answer, "content-length")), (None, None));
    assert_eq!(kind(&talk.answer().await), "response headers");
    assert_eq!(picker.in_flight().await, [1]);
    assert!(talk.rest().await.unwrap().is_empty());
    until("the release", async || picker.in_flight().await == [0]).await;
}

#[tokio::test]
async fn without_response_bodies_the_end_of_the_stream_is_the_end_of_the_request() {
    let (picker, engine) = one().await;
    let mut talk = picker.open().await;
    talk.send(with_modes(post(COMPLETIONS), FULL_DUPLEX, NONE)).await;
    talk.send(piece(r#"{"model":"m","prompt":"x"}"#, true)).await;
    assert_eq!(talk.target().await, Ok(engine.address()));
    talk.send(response_head(&[(":status", "200")])).await;
    assert_eq!((kind(&talk.answer().await), kind(&talk.answer().await)), ("request body", "response headers"));
    assert_eq!(picker.in_flight().await, [1]);
    talk.rest().await.unwrap();
    until("the release", async || picker.in_flight().await == [0]).await;
    assert_eq!(picker.sum("llm_d_epp_request_duration_seconds_count", &[]).await, 1.0);
}
