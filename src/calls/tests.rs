//! Answers good and bad, shared ones, and jobs.

use std::sync::mpsc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

fn call(url: String, body: &'static str) -> Call {
    Call { url, headers: vec![("traceparent", "00-1-2-01".into())], body: body.into(), timeout: PATIENCE }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/ask", listener.local_addr().unwrap());
    (listener, url)
}

async fn serve(listener: &TcpListener, reply: &[u8]) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = [0; 1024];
    let n = stream.read(&mut read).await.unwrap();
    let asked = String::from_utf8_lossy(&read[..n]).into_owned();
    assert!(asked.starts_with("POST /ask ") && asked.contains("traceparent: 00-1-2-01\r\n"), "{asked}");
    // The client may have read enough and gone.
    let _ = stream.write_all(reply).await;
}

async fn answer(reply: &str) -> Result<Bytes, String> {
    let (listener, url) = listen().await;
    let calls = HttpCalls::new(Tasks::default());
    tokio::join!(calls.call(call(url, "{}")), serve(&listener, reply.as_bytes())).0
}

#[tokio::test]
async fn the_body_of_a_good_answer_is_returned() {
    let got = answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    assert_eq!(got, Ok(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn another_status_is_an_error_that_tells_what_was_said() {
    let got = answer("HTTP/1.1 503 Busy\r\ncontent-length: 5\r\n\r\nno\"\r\n").await.unwrap_err();
    assert!(got.ends_with(r#"status 503: "no\"\r\n""#), "{got}");
    let long = "x".repeat(5000);
    let got = answer(&format!("HTTP/1.1 400 Bad\r\ncontent-length: 5000\r\n\r\n{long}")).await.unwrap_err();
    assert!(got.ends_with(&format!(" {:?}", &long[..MOST_TOLD])), "{got}");
}

#[tokio::test]
async fn an_answer_that_announces_more_than_it_has_is_an_error() {
    let got = answer("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n[").await;
    assert!(got.is_err(), "{got:?}");
}

#[tokio::test]
async fn a_call_to_nobody_is_an_error() {
    let calls = HttpCalls::new(Tasks::default());
    assert!(calls.call(call("http://127.0.0.1:1/x".into(), "")).await.is_err());
}

#[tokio::test]
async fn equal_questions_of_one_time_are_one_call() {
    let (listener, url) = listen().await;
    let calls = HttpCalls::new(Tasks::default());
    let asked = (0..8).map(|_| calls.call(call(url.clone(), "{}")));
    let other = calls.call(call(url.clone(), "{\"n\":2}"));
    let reply = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
    // The listener answers twice: more calls would get no answer.
    let served = async { tokio::join!(serve(&listener, reply), serve(&listener, reply)) };
    let (answers, other, _) = tokio::join!(join_all(asked), other, served);
    assert!(answers.into_iter().chain([other]).all(|answer| answer == Ok(Bytes::from_static(b"hi"))));
    // What has been answered is asked anew.
    let (again, ()) = tokio::join!(calls.call(call(url, "{}")), serve(&listener, reply));
    assert_eq!(again, Ok(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn a_call_outlives_the_request_that_began_it() {
    let (listener, url) = listen().await;
    let calls = HttpCalls::new(Tasks::default());
    let mut first = calls.call(call(url.clone(), "{}"));
    let second = calls.call(call(url.clone(), "{}"));
    assert_eq!((&mut first).now_or_never(), None);
    drop(first);
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let (answer, ()) = tokio::join!(second, serve(&listener, reply));
    assert_eq!(answer, Ok(Bytes::from_static(b"hi")));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_forgotten() {
    let (listener, url) = listen().await;
    let calls = HttpCalls::new(Tasks::default());
    drop(calls.call(call(url.clone(), "{}")));
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let (answer, ()) = tokio::join!(calls.call(call(url, "{}")), serve(&listener, reply));
    assert_eq!(answer, Ok(Bytes::from_static(b"hi")));
}

fn job(run: impl FnOnce() -> Result<Bytes, String> + Send + 'static) -> Job {
    Job { run: Box::new(|_| run()), timeout: PATIENCE }
}

#[tokio::test]
async fn a_job_is_done_and_one_that_breaks_off_is_an_error() {
    let calls = HttpCalls::new(Tasks::default());
    assert_eq!(calls.compute(job(|| Ok(Bytes::from_static(b"done")))).await, Ok(Bytes::from_static(b"done")));
    assert_eq!(calls.compute(job(|| Err("no".into()))).await, Err("no".into()));
    assert_eq!(calls.compute(job(|| panic!("broken"))).await, Err("the computation broke off".into()));
}

#[tokio::test]
async fn nobody_waits_for_a_job_that_takes_too_long() {
    let calls = HttpCalls::new(Tasks::default());
    let (end, ended) = mpsc::channel::<()>();
    let endless =
        Job { timeout: Duration::ZERO, ..job(move || ended.recv().map(|()| Bytes::new()).map_err(|e| e.to_string())) };
    assert_eq!(calls.compute(endless).await, Err("no result within 0ns".into()));
    drop(end);
}
