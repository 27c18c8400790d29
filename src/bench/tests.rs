//! Whole rounds against the constant server and against servers that do worse.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::bench::baseline;
use crate::bench::client::{Client, Mode};
use crate::bench::dial::{Dial, Speaks};
use crate::bench::load::{Plan, Round, run};
use crate::bench::report::Figures;
use crate::bench::served::Servers;
use crate::bench::target::{Patience, Target};
use crate::bench::work::tests::{wanting, work};
use crate::bench::work::{Pace, Prompts, Wants};
use crate::ext_proc::server::http2;
use crate::ext_proc::service;
use crate::ext_proc::wire::{PhaseResponse, ProcessingRequest, ProcessingResponse, Request as Phase, Response};

/// The second prompt goes out in several pieces where bodies are streamed.
const TRACE: &str = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 10, \"hash_ids\": [1]}\n\
                     {\"timestamp\": 20, \"input_length\": 16384, \"output_length\": 0, \"hash_ids\": [1, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131]}\n\
                     {\"timestamp\": 40, \"input_length\": 30, \"output_length\": 7, \"hash_ids\": [2]}\n";

fn patience() -> Patience {
    let long = Duration::from_secs(10);
    Patience { answer: long, response: long, token_time: Duration::from_micros(10) }
}

async fn client(address: &str, mode: Mode) -> Client {
    Client::connect(address, &Dial::Clear, mode, 2, Duration::from_secs(10)).await.unwrap()
}

async fn round(mode: Mode, pace: Pace, prompts: Prompts) -> Round {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = tokio::spawn(baseline::serve(port));
    let target = Target::Picker(client(&format!("127.0.0.1:{port}"), mode).await);
    let plan = Plan { pace, patience: patience() };
    let ended = Arc::new(AtomicUsize::new(0));
    let round = run(&Arc::new(target), &Arc::new(work(TRACE, prompts, 10, 1)), plan, None, &ended).await.unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 3);
    server.abort();
    round
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_picked_for_once_and_the_warm_up_is_not_counted() {
    for mode in [Mode::Direct, Mode::Lean, Mode::Duplex] {
        for (pace, prompts) in [(Pace::Scaled(1.0), Prompts::Ids), (Pace::AtOnce(2), Prompts::Text)] {
            let round = round(mode, pace, prompts).await;
            let Round { sent, tally, issued, .. } = &round;
            assert_eq!((*sent, tally.latency.len(), tally.failed, &tally.complaint), (2, 2, 0, &None), "{mode:?}");
            assert!(tally.service.min() > 1000 && tally.latency.min() >= tally.service.min(), "{mode:?}");
            assert_eq!(tally.picks.iter().next(), Some((&"127.0.0.1:8000".to_owned(), &2)));
            assert_eq!(issued.map(|i| i.asked), matches!(pace, Pace::Scaled(_)).then_some(Duration::from_millis(20)));
            assert_eq!(Figures::of(&round).answered, 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_is_a_failure_and_no_latency() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Takes connections, and drops each.
    let server = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let target = Target::Picker(client(&address, Mode::Direct).await);
    let plan = Plan { pace: Pace::AtOnce(1), patience: patience() };
    let round = run(&Arc::new(target), &Arc::new(work(TRACE, Prompts::Ids, 10, 0)), plan, None, &Arc::default()).await;
    let tally = round.unwrap().tally;
    assert_eq!((tally.latency.len(), tally.failed), (0, 3));
    assert!(tally.complaint.is_some());
    server.abort();
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let refused = Client::connect(&address, &Dial::Clear, Mode::Direct, 1, Duration::ZERO).await;
    assert!(format!("{:#}", refused.unwrap_err()).contains(&address));
}

/// A picker that opens streams, and answers, when it has the whole body.
#[derive(Clone)]
struct Late;

impl NamedService for Late {
    const NAME: &'static str = service::NAME;
}

impl tower_service::Service<http::Request<tonic::body::Body>> for Late {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let codec = ProstCodec::<ProcessingResponse, ProcessingRequest>::default();
        Box::pin(async move { Ok(Grpc::new(codec).streaming(Self, request).await) })
    }
}

impl StreamingService<ProcessingRequest> for Late {
    type Response = ProcessingResponse;
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;
    type Future = BoxFuture<'static, Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        Box::pin(async move {
            let mut messages = request.into_inner();
            while let Some(message) = messages.message().await? {
                if matches!(&message.request, Some(Phase::RequestBody(piece)) if piece.end_of_stream) {
                    break;
                }
            }
            let body = Response::RequestBody(PhaseResponse::streamed("{}".into(), true));
            let answers = futures_util::stream::iter([Ok(baseline::routed(Response::RequestHeaders)), Ok(body.into())]);
            Ok(tonic::Response::new(answers.chain(messages.map(|m| m.map(|_| ProcessingResponse::default()))).boxed()))
        })
    }
}

/// A client that waits for the stream to be open before it sends the body would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picker_may_say_nothing_before_it_has_the_whole_body() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(http2().add_service(Late).serve_with_incoming(TcpListenerStream::new(listener)));
    for mode in [Mode::Direct, Mode::Duplex] {
        let target = Target::Picker(client(&address, mode).await);
        let plan = Plan { pace: Pace::AtOnce(1), patience: patience() };
        let work = Arc::new(work(TRACE, Prompts::Ids, 10, 0));
        let tally = run(&Arc::new(target), &work, plan, None, &Arc::default()).await.unwrap().tally;
        assert_eq!((tally.answered, tally.complaint), (3, None), "{mode:?}");
    }
    server.abort();
}

const ONE: &str = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 2, \"hash_ids\": [1]}\n";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\nx-engine: 8001\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const TOKEN: &str = "data: {\"choices\":[{\"token_ids\":[5]}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\n";
const DONE: &str = "data: [DONE]\n\n";

fn chunked(pieces: &[&str]) -> String {
    let chunks = pieces.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len()));
    format!("{HEAD}{}", chunks.collect::<String>())
}

/// Sends one request to a server that answers every connection with these bytes, and then closes it.
async fn served(answer: String) -> Round {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            let _ = socket.read(&mut asked).await;
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    let servers = Servers::new(Dial::Clear, http::HeaderName::from_static("x-engine"));
    let target = Target::Server(servers, address);
    let plan = Plan { pace: Pace::AtOnce(1), patience: patience() };
    let work = Arc::new(wanting(ONE, Wants::Response));
    let round = run(&Arc::new(target), &work, plan, None, &Arc::default()).await.unwrap();
    server.abort();
    round
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_stream_over_http_is_measured_and_counted() {
    let round = served(chunked(&[TOKEN, TOKEN, USAGE, DONE, ""])).await;
    let responses = &round.tally.responses;
    assert_eq!((round.tally.answered, round.tally.failed, &round.tally.complaint), (1, 0, &None));
    assert_eq!((responses.prompt_tokens, responses.cached_tokens, responses.output_tokens), (3, 1, 2));
    assert_eq!((responses.ttft.len(), responses.tpot.len(), responses.without_usage), (1, 1, 0));
    assert!(responses.headers.max() <= responses.ttft.max() && responses.ttft.max() <= responses.e2e.max());
    assert_eq!(round.tally.picks, [("8001".to_owned(), 1)].into());
    assert!(Figures::of(&round).responses.is_some());
    let round = served(chunked(&[TOKEN, TOKEN, DONE, ""])).await;
    assert_eq!((round.tally.responses.output_tokens, round.tally.responses.without_usage), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_whole_response_over_http_is_told_in_a_line() {
    let refused = "HTTP/1.1 503 Service Unavailable\r\nx-llm-d-request-dropped-reason: rejected-no-endpoints\r\ncontent-length: 0\r\n\r\n";
    for (answer, refusals, says) in [
        (refused.to_owned(), 1, "answered with 503, rejected-no-endpoints"),
        (chunked(&[TOKEN]), 0, "the response broke off after 1 tokens"),
        (chunked(&[TOKEN, ""]), 0, "found one that breaks off after 1 tokens"),
        (chunked(&["data: {\"choices\":[{\"tok", ""]), 0, "expected a response in JSON, found none"),
        (chunked(&[DONE, ""]), 0, "expected a response with tokens, found one without"),
        (String::new(), 0, "no answer from 127.0.0.1:"),
        ("SSH-2.0\r\n".to_owned(), 0, "no answer from 127.0.0.1:"),
    ] {
        let tally = served(answer).await.tally;
        let said = tally.complaint.unwrap();
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
        assert_eq!((tally.answered, tally.refused, tally.failed), (0, refusals, 1 - refusals), "{said}");
    }
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let servers = Servers::new(Dial::Clear, http::HeaderName::from_static("x-engine"));
    let why = servers.connect(&format!("127.0.0.1:{port}")).await.unwrap_err();
    assert!(format!("{why:#}").starts_with(&format!("cannot reach 127.0.0.1:{port}: ")), "{why:#}");
}

/// Certificates are checked for real in the end-to-end tests; here is what is said when they are not there.
#[test]
fn a_file_of_certificates_that_is_not_there_is_named() {
    let why = Dial::tls(Some(Path::new("/nowhere/ca.pem")), Speaks::Http1).err().unwrap();
    assert!(format!("{why:#}").starts_with("/nowhere/ca.pem: "), "{why:#}");
}
