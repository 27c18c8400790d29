//! What a stream answers to which messages, as text: messages in, answers out.

mod any_order;
mod direct;
mod eviction;
mod truth;

use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::{EndpointId, EndpointMeta, EndpointName, Ledger, MetricHub, Observed, Snapshot, SnapshotRow};
use futures_util::FutureExt;

use super::*;
use crate::app::plan_of;
use crate::ext_proc::bodies::{Bodies, BodyLimits};
use crate::ext_proc::context::Options;
use crate::ext_proc::metrics::RequestMetrics;
use crate::ext_proc::wire::{HeaderMap, HeaderValue, HttpTrailers, Mutation};
use crate::flow::control::Control;
use crate::generation::Generation;
use crate::sched::calls::NoCalls;
use crate::sched::metrics::{SchedMetrics, StageMetrics};

const CONFIG: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
    - {type: active-request-scorer}\n- {type: openai-parser}\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}\n\
    schedulingProfiles: [{name: default, plugins: [{pluginRef: active-request-scorer}]}]\n";
const MAX_BODY: usize = 200_000;
const PATIENCE: Duration = Duration::from_secs(60);
const BODIES: BodyLimits = BodyLimits { each: MAX_BODY, together: 2 * MAX_BODY, patience: Some(PATIENCE) };

/// How Envoy is set up.
#[derive(Clone, Copy, Debug)]
struct Setup {
    request: i32,
    response: i32,
    without_waiting: bool,
}

const DUPLEX: Setup = Setup { request: 4, response: 4, without_waiting: false };
const LEAN: Setup = Setup { request: 2, response: 0, without_waiting: false };
const STREAMED: Setup = Setup { request: 1, response: 1, without_waiting: true };
const HEADERS_FIRST: Setup = Setup { request: 1, response: 1, without_waiting: false };

/// A picker with so many endpoints, 10.0.0.1:8000 and on.
struct Bench {
    cx: Arc<Context>,
    ids: Vec<EndpointId>,
}

impl Bench {
    fn new(n_endpoints: u32) -> Self {
        Self::of(CONFIG, n_endpoints)
    }

    fn of(config: &str, n_endpoints: u32) -> Self {
        let hub = MetricHub::default();
        let plan = plan_of(config, &hub);
        let rows = (0..n_endpoints).map(|i| {
            let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
            let meta = EndpointMeta::new(name, format!("10.0.0.{}", i + 1), 8000, Default::default(), 0);
            SnapshotRow { id: EndpointId::new(i, i + 1), meta: Arc::new(meta), observed: Observed::default() }
        });
        let snapshot = Snapshot::new(1, rows, Instant::now(), Duration::from_secs(2));
        let ids = snapshot.ids().to_vec();
        let snapshots = Arc::new(ArcSwap::from_pointee(snapshot));
        let generation = Generation::new(1, plan, &Arc::new(SchedMetrics::new(&hub)), &hub);
        let cx = Context {
            flow: Control::new(generation.flow.clone(), "pool", Duration::ZERO, snapshots.clone(), &hub),
            snapshots,
            ledger: Arc::new(Ledger::default()),
            generations: Arc::new(ArcSwap::from_pointee(generation)),
            calls: Arc::new(NoCalls),
            metrics: RequestMetrics::new(&hub),
            stages: StageMetrics::of(&hub),
            streams: None,
            options: Options { subset_hint: true, emit_scores: false, explain: false, bodies: BODIES },
            bodies: Arc::new(Bodies::new(BODIES)),
            decisions: Default::default(),
            warned_of_headers_only: Default::default(),
        };
        Self { cx: Arc::new(cx), ids }
    }

    fn in_flight(&self) -> i64 {
        self.ids.iter().map(|id| self.cx.ledger.of(*id).0).sum()
    }
}

/// A stream and what it has been sent so far.
struct Talk<'a> {
    bench: &'a Bench,
    stream: Stream,
    setup: Option<Setup>,
}

impl<'a> Talk<'a> {
    fn new(bench: &'a Bench, setup: Setup) -> Self {
        Self { bench, stream: Stream::new(bench.cx.clone()), setup: Some(setup) }
    }

    /// Sends what `text` stands for; returns the answers.
    ///
    /// `H` request headers, `Hkey=value` with one more, `B…` a piece of the request's body, `T` its trailers; `h`, `b…`
    /// and `t` the same of the response, `-` the end of what Envoy sends. A `$` at the end ends the direction.
    fn say(&mut self, text: &str) -> Vec<String> {
        if text == "-" {
            self.stream.half_closed(ClientEnd::AfterAnswers, Instant::now());
        } else {
            let taken = self.send(text).now_or_never();
            taken.expect("nothing is waited for where no service is asked");
        }
        std::iter::from_fn(|| self.stream.next_answer()).map(|answer| said(&answer)).collect()
    }

    async fn send(&mut self, text: &str) {
        let message = ProcessingRequest {
            request: Some(request(text)),
            metadata_context: None,
            protocol_config: self.setup.take().map(|s| ProtocolConfiguration {
                request_body_mode: s.request,
                response_body_mode: s.response,
                send_body_without_waiting_for_header_response: s.without_waiting,
            }),
        };
        self.stream.take(message, Instant::now()).await;
    }
}

fn request(text: &str) -> Request {
    let end_of_stream = text.ends_with('$');
    let text = text.trim_end_matches('$');
    let (kind, rest) = text.split_at(1);
    let header = |(key, value): (&str, &str)| HeaderValue {
        key: key.to_owned(),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    let body = || HttpBody { body: Bytes::copy_from_slice(rest.as_bytes()), end_of_stream };
    match kind {
        "H" | "h" => {
            let first = if kind == "H" { (":path", "/v1/completions") } else { (":status", "200") };
            // Of two headers of one name the last one counts.
            let headers = [first].into_iter().chain(rest.split_once('=')).map(header).collect();
            let message = HttpHeaders { headers: Some(HeaderMap { headers }), end_of_stream };
            if kind == "H" { Request::RequestHeaders(message) } else { Request::ResponseHeaders(message) }
        }
        "B" => Request::RequestBody(body()),
        "b" => Request::ResponseBody(body()),
        "T" => Request::RequestTrailers(HttpTrailers {}),
        "t" => Request::ResponseTrailers(HttpTrailers {}),
        other => panic!("no message is called {other}"),
    }
}

fn said(answer: &ProcessingResponse) -> String {
    match answer.response.as_ref().expect("every answer says something") {
        Response::RequestHeaders(r) => format!("headers{}", changes(r)),
        Response::RequestBody(r) => format!("body{}", changes(r)),
        Response::RequestTrailers(_) => "trailers".into(),
        Response::ResponseHeaders(r) => format!("response headers{}", changes(r)),
        Response::ResponseBody(r) => format!("response body{}", changes(r)),
        Response::ResponseTrailers(_) => "response trailers".into(),
        Response::Immediate(r) => format!("immediate {}", r.status.map_or(0, |s| s.code)),
    }
}

fn changes(response: &PhaseResponse) -> String {
    let common = response.response.as_ref().expect("every phase is answered with something");
    let mut text = String::new();
    for option in common.header_mutation.iter().flat_map(|m| &m.set_headers) {
        let header = option.header.as_ref().expect("an option holds a header");
        let value = String::from_utf8_lossy(header.bytes());
        match header.key.as_str() {
            "x-gateway-destination-endpoint" => text += &format!(" to {value}"),
            "content-length" => text += &format!(" length {value}"),
            _ => {}
        }
    }
    match common.body_mutation.as_ref().and_then(|m| m.mutation.as_ref()) {
        Some(Mutation::Body(body)) => text += &format!(" = {}", String::from_utf8_lossy(body)),
        Some(Mutation::Streamed(piece)) => {
            let end = if piece.end_of_stream { "$" } else { "" };
            text += &format!(" {}{end}", String::from_utf8_lossy(&piece.body));
        }
        None => {}
    }
    text
}

/// Sends messages to a picker with one endpoint, and compares what each is answered with.
fn check(setup: Setup, messages: &[(&str, &[&str])]) {
    let bench = Bench::new(1);
    let mut talk = Talk::new(&bench, setup);
    for (i, (message, answers)) in messages.iter().enumerate() {
        assert_eq!(talk.say(message), *answers, "message {i}, {message}, of {setup:?}");
    }
}

const TO: &str = "headers to 10.0.0.1:8000";

#[test]
fn duplex_answers_headers_and_body_together() {
    check(
        DUPLEX,
        &[
            ("H", &[]),
            (r#"B{"model":"m","#, &[]),
            (r#"B"prompt":"x"}$"#, &["headers to 10.0.0.1:8000 length 26", r#"body {"model":"m","prompt":"x"}$"#]),
            ("h", &["response headers"]),
            ("bone", &["response body one"]),
            ("btwo$", &["response body two$"]),
        ],
    );
}

#[test]
fn trailers_end_a_body() {
    check(
        DUPLEX,
        &[
            ("H", &[]),
            (r#"B{"model":"m","prompt":"x"}"#, &[]),
            ("T", &[TO, r#"body {"model":"m","prompt":"x"}"#, "trailers"]),
            ("h", &["response headers"]),
            ("bone", &["response body one"]),
            ("t", &["response trailers"]),
        ],
    );
}

#[test]
fn buffered_answers_headers_at_once_and_tells_the_pick_with_the_body() {
    check(
        LEAN,
        &[
            ("H", &["headers"]),
            (r#"B{"model":"m","prompt":"x"}$"#, &["body to 10.0.0.1:8000"]),
            ("h", &["response headers"]),
            ("t", &["response trailers"]),
        ],
    );
}

#[test]
fn streamed_answers_every_piece_after_the_last() {
    check(
        STREAMED,
        &[
            ("H", &[]),
            (r#"B{"model":"m","#, &[]),
            (r#"B"prompt":"x"}$"#, &[TO, "body", "body"]),
            ("h", &["response headers"]),
            ("bone$", &["response body"]),
        ],
    );
}

#[test]
fn headers_first_picks_without_the_body() {
    check(HEADERS_FIRST, &[("H", &[TO]), ("Bany", &["body"]), ("Bthing$", &["body"]), ("h", &["response headers"])]);
}

#[test]
fn a_request_without_a_body_is_sent_on_at_once() {
    for setup in [DUPLEX, LEAN, STREAMED, HEADERS_FIRST] {
        check(setup, &[("H$", &[TO]), ("h$", &["response headers"])]);
    }
}

#[test]
fn a_last_piece_that_comes_twice_is_answered_once() {
    check(
        DUPLEX,
        &[
            ("H", &[]),
            (
                r#"B{"model":"m","prompt":"x"}$"#,
                &["headers to 10.0.0.1:8000 length 26", r#"body {"model":"m","prompt":"x"}$"#],
            ),
            (r#"B{"model":"m","prompt":"x"}$"#, &[]),
            ("B$", &[]),
            ("h", &["response headers"]),
        ],
    );
}

#[test]
fn a_response_without_a_request_passes() {
    check(
        DUPLEX,
        &[("h", &["response headers"]), ("bone$", &["response body one$"]), ("t", &["response trailers"]), ("H", &[])],
    );
}

#[test]
fn nothing_is_answered_after_a_refusal() {
    for (body, code) in [("B{$", "immediate 400"), (r#"B{"prompt":"x"}$"#, "immediate 400")] {
        check(DUPLEX, &[("H", &[]), (body, &[code]), ("T", &[]), ("h", &[]), ("bx$", &[]), ("t", &[]), ("H", &[])]);
    }
}

#[test]
fn a_path_that_no_parser_claims_is_refused() {
    check(DUPLEX, &[("H:path=/v9/none", &[]), (r#"B{"model":"m","prompt":"x"}$"#, &["immediate 400"])]);
}

#[test]
fn a_body_over_the_limit_is_refused_before_its_end() {
    let piece = format!("B{}", "x".repeat(MAX_BODY / 2 + 1));
    for setup in [DUPLEX, STREAMED] {
        check(setup, &[("H", &[]), (&piece, &[]), (&piece, &["immediate 413"]), ("B$", &[])]);
    }
}

#[test]
fn bodies_that_never_end_are_refused_once_they_are_too_large_together() {
    let (bench, piece) = (Bench::new(1), format!("B{}", "x".repeat(MAX_BODY)));
    let mut talks: Vec<_> = (0..3).map(|_| Talk::new(&bench, DUPLEX)).collect();
    let answers: Vec<Vec<String>> = talks.iter_mut().map(|talk| [talk.say("H"), talk.say(&piece)].concat()).collect();
    assert_eq!(answers, [vec![], vec![], vec!["immediate 429".to_owned()]]);
    drop(talks);
    let mut talk = Talk::new(&bench, DUPLEX);
    assert_eq!([talk.say("H"), talk.say(&piece)].concat(), [""; 0], "what they held is free again");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_refused() {
    let bench = Bench::new(1);
    let mut talk = Talk::new(&bench, DUPLEX);
    let late = |talk: &mut Talk<'_>| talk.stream.poll_late(&mut task::Context::from_waker(task::Waker::noop()));
    assert_eq!(talk.say("H"), [""; 0]);
    assert_eq!(late(&mut talk), Poll::Pending);
    tokio::time::advance(PATIENCE / 2).await;
    assert_eq!([talk.say("Bx"), talk.say("By")].concat(), [""; 0]);
    assert_eq!(late(&mut talk), Poll::Pending);
    tokio::time::advance(PATIENCE / 2 + Duration::from_millis(2)).await;
    assert_eq!(late(&mut talk), Poll::Ready(()));
    assert_eq!(said(&talk.stream.next_answer().unwrap()), "immediate 408");
    assert!(talk.stream.is_over());
}

#[test]
fn a_body_mode_that_cannot_be_served_is_refused() {
    for mode in [0, 3, 5, 77] {
        check(Setup { request: mode, ..DUPLEX }, &[("H", &["immediate 500"]), ("Bx$", &[])]);
    }
}

#[test]
fn without_endpoints_requests_are_refused() {
    let bench = Bench::new(0);
    for (messages, answer) in
        [(&["H$"][..], "immediate 500"), (&["H", r#"B{"model":"m","prompt":"x"}$"#][..], "immediate 503")]
    {
        let mut talk = Talk::new(&bench, DUPLEX);
        let answers: Vec<String> = messages.iter().flat_map(|m| talk.say(m)).collect();
        assert_eq!(answers, [answer]);
        assert!(talk.stream.is_over());
    }
}

#[test]
fn a_renamed_model_changes_the_body_and_back() {
    let rename = "Hx-llm-d-model-name-rewrite=engine";
    let body = r#"B{"model":"m","prompt":"x"}$"#;
    check(
        DUPLEX,
        &[
            (rename, &[]),
            (body, &["headers to 10.0.0.1:8000 length 31", r#"body {"model":"engine","prompt":"x"}$"#]),
            ("h", &["response headers"]),
            (r#"b{"model":"engine"}$"#, &[r#"response body {"model":"m"}$"#]),
        ],
    );
    check(
        LEAN,
        &[(rename, &["headers"]), (body, &[r#"body to 10.0.0.1:8000 length 31 = {"model":"engine","prompt":"x"}"#])],
    );
    check(
        STREAMED,
        &[
            (rename, &[]),
            (r#"B{"model":"m","#, &[]),
            (
                r#"B"prompt":"x"}$"#,
                &["headers to 10.0.0.1:8000 length 31", r#"body = {"model":"engine","prompt":"x"}"#, "body = "],
            ),
        ],
    );
}

#[test]
fn later_messages_cannot_change_how_envoy_is_set_up() {
    let bench = Bench::new(1);
    let mut talk = Talk::new(&bench, DUPLEX);
    assert!(talk.say("H").is_empty());
    talk.setup = Some(LEAN);
    let answers = talk.say(r#"B{"model":"m","prompt":"x"}$"#);
    assert_eq!(answers[0], "headers to 10.0.0.1:8000 length 26");
}

/// How many requests are in flight before and after the last of these messages.
fn in_flight(setup: Setup, messages: &[&str]) -> (i64, i64) {
    let bench = Bench::new(2);
    let mut talk = Talk::new(&bench, setup);
    let (last, first) = messages.split_last().expect("there are messages");
    for message in first {
        talk.say(message);
    }
    let before = talk.bench.in_flight();
    talk.say(last);
    (before, talk.bench.in_flight())
}

#[test]
fn a_request_is_in_flight_until_its_response_is_complete() {
    const BODY: &str = r#"B{"model":"m","prompt":"x"}$"#;
    for (setup, messages, expected) in [
        (DUPLEX, &["H", BODY][..], (0, 1)),
        (DUPLEX, &["H", BODY, "h"], (1, 1)),
        (DUPLEX, &["H", BODY, "h$"], (1, 0)),
        (DUPLEX, &["H", BODY, "h", "bx"], (1, 1)),
        (DUPLEX, &["H", BODY, "h", "bx", "b$"], (1, 0)),
        (DUPLEX, &["H", BODY, "h", "bx", "t"], (1, 0)),
        (LEAN, &["H", BODY, "h"], (1, 1)),
        (LEAN, &["H", BODY, "h", "t"], (1, 0)),
        (LEAN, &["H", BODY, "h", "-"], (1, 0)),
        (HEADERS_FIRST, &["H"], (0, 1)),
        (DUPLEX, &["H", "B{$"], (0, 0)),
    ] {
        assert_eq!(in_flight(setup, messages), expected, "{messages:?} of {setup:?}");
    }
}

#[test]
fn a_dropped_stream_gives_back_what_it_held() {
    let bench = Bench::new(2);
    let mut talk = Talk::new(&bench, LEAN);
    talk.say("H");
    talk.say(r#"B{"model":"m","prompt":"x"}$"#);
    assert_eq!(bench.in_flight(), 1);
    drop(talk);
    assert_eq!(bench.in_flight(), 0);
}
