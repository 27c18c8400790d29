//! How one page is fetched, and what is no page.

use super::super::client::{Client, MOST_BYTES};
use super::super::target::{Place, Target, path};
use super::*;

fn target(engine: &Engine) -> Target {
    let place = Place { tls: false, host: "127.0.0.1".into(), port: engine.address.port() };
    Target::new(place, path("/metrics").expect("a path")).expect("a target")
}

async fn fetch(answers: impl Fn(&str) -> Answer + Send + 'static) -> Result<String, String> {
    let engine = Engine::start(answers).await;
    let mut body = b"left over".to_vec();
    let fetched = Client::new(None).fetch(&target(&engine), &mut body).await;
    fetched.map(|()| String::from_utf8(body).expect("text")).map_err(|e| e.to_string())
}

#[tokio::test]
async fn reads_a_page_however_it_is_sent() {
    let (a, b) = GOOD.split_at(100);
    let chunks = format!("{:x}\r\n{a}\r\n{:x}\r\n{b}\r\n0\r\n\r\n", a.len(), b.len());
    for answer in [
        page(GOOD),
        reply("200 OK", "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n", GOOD),
        reply("200 OK", "Content-Encoding: identity\r\n", GOOD),
        raw(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}")),
        raw(&format!("HTTP/1.0 200 OK\r\n\r\n{GOOD}")),
        raw(&format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{GOOD}")),
    ] {
        let shown = String::from_utf8_lossy(&answer.0).into_owned();
        assert_eq!(fetch(move |_| answer.clone()).await.as_deref(), Ok(GOOD), "{shown}");
    }
    assert_eq!(fetch(|_| page("")).await.as_deref(), Ok(""));
    assert_eq!(fetch(|_| page("no line end")).await.as_deref(), Ok("no line end"));
}

#[tokio::test]
async fn what_is_no_whole_page_is_an_error() {
    let gzip = reply("200 OK", "Content-Encoding: gzip\r\n", "x");
    let too_long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MOST_BYTES + 1);
    for (answer, expected) in [
        (reply("500 Oops", "", GOOD), "expected status 200, found 500"),
        (reply("204 No Content", "", ""), "expected status 200, found 204"),
        (reply("404 Not Found", "", ""), "expected status 200, found 404"),
        (reply("302 Found", "", ""), "expected status 200, found 302"),
        (gzip, "expected a page that is not encoded, found \"gzip\""),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\na 1\n"), "expected a whole answer, found: "),
        (
            raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n"),
            "expected a whole answer, found: ",
        ),
        (raw("HTTP/1.0 200 OK\r\n\r\na 1\nb 12"), "expected a whole page, found one that ends within a line"),
        (raw("hello\r\n\r\n"), "expected a whole answer, found: "),
        (raw(""), "expected a whole answer, found: "),
        (raw(&too_long), "expected at most 16777216 bytes, found more"),
    ] {
        let shown = String::from_utf8_lossy(&answer.0).into_owned();
        let error = fetch(move |_| answer.clone()).await.expect_err("no page");
        assert!(error.starts_with(expected), "{shown} {error}");
    }
}

#[tokio::test]
async fn only_an_engine_that_did_not_answer_is_asked_less_often() {
    for (answer, was_an_answer) in [
        (reply("500 Oops", "", ""), true),
        (reply("200 OK", "Content-Encoding: gzip\r\n", "x"), true),
        (reply("302 Found", "Location: /metrics\r\n", ""), true),
        (raw("hello\r\n\r\n"), false),
        (raw(""), false),
    ] {
        let shown = String::from_utf8_lossy(&answer.0).into_owned();
        let engine = Engine::start(move |_| answer.clone()).await;
        let error = Client::new(None).fetch(&target(&engine), &mut Vec::new()).await.expect_err("no page");
        assert_eq!(error.was_an_answer(), was_an_answer, "{shown}");
    }
}

#[tokio::test]
async fn an_endless_page_is_given_up_at_the_cap() {
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), b"# filler\n".repeat(MOST_BYTES / 9 + 2)].concat();
    let error = fetch(move |_| Answer(endless.clone(), false)).await.expect_err("no page");
    assert_eq!(error, "expected at most 16777216 bytes, found more");
}

#[tokio::test]
async fn nothing_at_the_port_is_an_error() {
    let engine = Engine::start(|_| page(GOOD)).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let port = closed.local_addr().expect("it is bound").port();
    drop(closed);
    let mut target = target(&engine);
    target.place.port = port;
    let error = Client::new(None).fetch(&target, &mut Vec::new()).await.expect_err("nobody is there");
    assert!(error.to_string().starts_with("cannot connect: ") && !error.was_an_answer(), "{error}");
}

#[tokio::test]
async fn follows_redirects() {
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
    {
        let answers = move |path: &str| match path {
            "/metrics" => reply(status, "Location: /b\r\n", "moved"),
            "/b" => reply(status, "Location: c/d\r\n", ""),
            "/c/d" => page(GOOD),
            _ => reply("404 Not Found", "", ""),
        };
        assert_eq!(fetch(answers).await.as_deref(), Ok(GOOD), "{status}");
    }
}

#[tokio::test]
async fn follows_a_redirect_to_another_host_and_comes_back() {
    let other = Engine::start(|_| page(GOOD)).await;
    let location = format!("Location: http://{}/m\r\n", other.address);
    let mut engine = Engine::start(move |_| reply("302 Found", &location, "")).await;
    let (mut client, mut body) = (Client::new(None), Vec::new());
    for _ in 0..2 {
        client.fetch(&target(&engine), &mut body).await.expect("a page");
        assert_eq!(body, GOOD.as_bytes());
    }
    engine.asked(2).await;
}

#[tokio::test]
async fn redirects_that_lead_nowhere_are_errors() {
    let itself = |_: &str| reply("302 Found", "Location: /metrics\r\n", "");
    assert!(fetch(itself).await.expect_err("no page").contains("found \"/metrics\""));
    let on_and_on = |path: &str| reply("302 Found", &format!("Location: {path}x\r\n"), "");
    assert_eq!(fetch(on_and_on).await, Err("expected at most 4 redirects, found more".to_owned()));
}

#[tokio::test]
async fn asks_with_little() {
    let mut engine = Engine::start(|_| page(GOOD)).await;
    Client::new(None).fetch(&target(&engine), &mut Vec::new()).await.expect("a page");
    let head = engine.asked(1).await.to_lowercase();
    let mut lines: Vec<_> = head.trim().lines().collect();
    lines.sort_unstable();
    let host = format!("host: {}", engine.address);
    assert_eq!(lines, ["get /metrics http/1.1", host.as_str(), "user-agent: epp"]);
}

#[tokio::test]
async fn keeps_its_connection_even_after_an_answer_that_is_no_page() {
    let engine = Engine::start(|_| page(GOOD)).await;
    let (mut client, mut body) = (Client::new(None), Vec::new());
    for i in 0..10 {
        if i % 2 == 0 {
            engine.now(|_| page(GOOD));
            client.fetch(&target(&engine), &mut body).await.expect("a page");
        } else {
            engine.now(|_| reply("500 Oops", "", "an explanation"));
            client.fetch(&target(&engine), &mut body).await.expect_err("no page");
        }
    }
    assert_eq!(engine.connections.load(Relaxed), 1);
}

#[tokio::test]
async fn connects_again_when_the_engine_hung_up() {
    let closing = |_: &str| Answer(page(GOOD).0, false);
    let engine = Engine::start(closing).await;
    let (mut client, mut body) = (Client::new(None), Vec::new());
    for _ in 0..5 {
        client.fetch(&target(&engine), &mut body).await.expect("a page");
    }
    assert_eq!(engine.connections.load(Relaxed), 5);
}
