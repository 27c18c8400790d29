//! Rooms 1, 7 and 8 of one stream: which message may come in which phase, and what is answered to it.
//!
//! Never answers a body before its headers, never refuses once a response is under way unless it is ended to make room for
//! another, and picks at most once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{self, Poll, ready};

use bytes::Bytes;
use epp_plugin_api::{Call, InferenceRequest, Report, Served};
use prost_types::value::Kind;
use tokio::time::Instant;

use crate::ext_proc::after;
use crate::ext_proc::answer::{Routing, immediate, push_pieces, reported};
use crate::ext_proc::bodies::BodyChunks;
use crate::ext_proc::context::Context;
use crate::ext_proc::exchange::{Exchange, InFlight, Reader, Renamed};
use crate::ext_proc::pick::{Opened, Pick, pick};
use crate::ext_proc::reading::{EXPLAIN, ReadRequest, RequestHead, read};
use crate::ext_proc::wire::{
    BodyMode, CommonResponse, HeaderMutation, HttpBody, HttpHeaders, Metadata, PhaseResponse, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration, Request, Response, TrailersResponse,
};
use crate::flow::control::Slot;
use crate::flow::refusal::Refusal;
use crate::sched::cycle::Outcome;
use crate::sched::metrics::Stage;
use crate::sched::record::DecisionRecord;
use crate::sched::subset::Subset;

const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";
const LB_NAMESPACE: &str = "envoy.lb";
const SERVED_KEY: &str = "x-gateway-destination-endpoint-served";
const SEEN_MARK: &str = "x-went-into-resp-headers";

/// How far a stream has come.
enum Phase {
    Start,
    /// The request's body is coming.
    Reading(Incoming),
    /// The request was sent on.
    Routed(Box<Exchange>),
    /// The response is going by. There is no exchange if it came without a request.
    Responding(Option<Box<Exchange>>, Box<after::Response>),
    /// Nothing more is answered.
    Over,
}

struct Incoming {
    head: RequestHead,
    body: BodyChunks,
    /// Messages of the body so far.
    messages: usize,
}

/// How Envoy sends the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestMode {
    /// Headers and body are answered together, after the last piece.
    Duplex,
    /// Headers are answered at once, then the body comes in one message.
    Buffered,
    /// Each piece is answered; they come before the headers are answered.
    Streamed,
    /// Each piece is answered; they come once the headers are answered.
    HeadersFirst,
    Unservable(BodyMode),
}

impl RequestMode {
    fn new(config: &ProtocolConfiguration) -> Self {
        match BodyMode::from_wire(config.request_body_mode) {
            BodyMode::FullDuplexStreamed => Self::Duplex,
            BodyMode::Buffered => Self::Buffered,
            BodyMode::Streamed if config.send_body_without_waiting_for_header_response => Self::Streamed,
            BodyMode::Streamed => Self::HeadersFirst,
            mode @ (BodyMode::None | BodyMode::BufferedPartial | BodyMode::Grpc | BodyMode::Unknown(_)) => {
                Self::Unservable(mode)
            }
        }
    }
}

/// When the client has said all that it had to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// Before it had the answers to it: it does not tell how the request ends.
    BeforeAnswers,
    AfterAnswers,
}

/// The state of one stream.
pub struct Stream {
    cx: Arc<Context>,
    phase: Phase,
    request_mode: RequestMode,
    response_mode: BodyMode,
    opened: Opened,
    out: VecDeque<ProcessingResponse>,
}

impl Stream {
    /// A stream that is opened now, and on which nothing has been said yet.
    pub fn new(cx: Arc<Context>) -> Self {
        Self::opened(cx, Opened { at: Instant::now(), deadline: None })
    }

    /// A stream that was opened so.
    pub fn opened(cx: Arc<Context>, opened: Opened) -> Self {
        Self {
            cx,
            phase: Phase::Start,
            request_mode: RequestMode::Duplex,
            response_mode: BodyMode::FullDuplexStreamed,
            opened,
            out: VecDeque::new(),
        }
    }

    /// Whether the request has just been ended to make room for another; otherwise wakes the task when it is.
    pub fn poll_evicted(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let (Phase::Routed(exchange) | Phase::Responding(Some(exchange), _)) = &mut self.phase else {
            return Poll::Pending;
        };
        let Some(load) = &mut exchange.load else { return Poll::Pending };
        ready!(load.slot.poll_evicted(cx));
        tracing::debug!("request ended to make room for one of higher priority");
        self.out.push_back(immediate(&Refusal::Evicted));
        self.phase = Phase::Over;
        Poll::Ready(())
    }

    /// Whether the request has just been refused because its body takes too long; otherwise wakes the task when it is.
    pub fn poll_late(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        let Phase::Reading(incoming) = &mut self.phase else { return Poll::Pending };
        ready!(incoming.body.poll_late(incoming.head.received, &self.cx.bodies, cx));
        self.give_body_up(&Refusal::BodyTooSlow, Instant::now());
        Poll::Ready(())
    }

    /// The next answer to be sent.
    pub fn next_answer(&mut self) -> Option<ProcessingResponse> {
        self.out.pop_front()
    }

    /// Whether nothing more will be answered.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Takes a message; what it is answered with can be fetched afterwards.
    pub async fn take(&mut self, message: ProcessingRequest, now: Instant) {
        if let (Phase::Start, Some(config)) = (&self.phase, &message.protocol_config) {
            self.request_mode = RequestMode::new(config);
            self.response_mode = BodyMode::from_wire(config.response_body_mode);
        }
        match message.request {
            Some(Request::RequestHeaders(headers)) => self.request_headers(headers, now).await,
            Some(Request::RequestBody(body)) => self.request_body(body, message.metadata_context, now).await,
            Some(Request::RequestTrailers(_)) => self.request_trailers(message.metadata_context, now).await,
            Some(Request::ResponseHeaders(headers)) => {
                self.response_headers(&headers, message.metadata_context.as_ref(), now)
            }
            Some(Request::ResponseBody(body)) => self.response_body(body, now),
            Some(Request::ResponseTrailers(_)) => self.response_trailers(now),
            None => tracing::debug!("a message without a phase is ignored"),
        }
    }

    /// Envoy has said all that it had to say. Without response bodies that is how the end of a response is seen.
    pub fn half_closed(&mut self, end: ClientEnd, now: Instant) {
        match &mut self.phase {
            Phase::Responding(Some(exchange), response) if self.response_mode == BodyMode::None => {
                response.finish(exchange, now);
            }
            Phase::Routed(exchange) if end == ClientEnd::BeforeAnswers => exchange.each(|held| held.end_unknown()),
            Phase::Start | Phase::Reading(_) | Phase::Routed(_) | Phase::Responding(..) | Phase::Over => {}
        }
        self.send_open_calls();
    }

    async fn request_headers(&mut self, message: HttpHeaders, now: Instant) {
        if !matches!(self.phase, Phase::Start) {
            tracing::debug!("request headers out of order are ignored");
            return;
        }
        let end = message.end_of_stream;
        let head = RequestHead::new(message, now);
        tracing::debug!(request = head.id, "request received");
        if end {
            return self.route_without_body(head, now);
        }
        match self.request_mode {
            RequestMode::Duplex | RequestMode::Streamed => {}
            RequestMode::Buffered => self.answer(Response::RequestHeaders(PhaseResponse::unchanged())),
            RequestMode::HeadersFirst => return self.route_by_headers(head, now).await,
            RequestMode::Unservable(mode) => {
                let refusal = Refusal::BodyMode { direction: "request", mode: mode.name() };
                return self.refuse(&refusal, "", "", &head, now);
            }
        }
        self.phase = Phase::Reading(Incoming { head, body: BodyChunks::default(), messages: 0 });
    }

    async fn request_body(&mut self, message: HttpBody, metadata: Option<Metadata>, now: Instant) {
        if matches!(self.phase, Phase::Start) {
            let head = RequestHead::absent(now);
            self.phase = Phase::Reading(Incoming { head, body: BodyChunks::default(), messages: 0 });
        }
        match &mut self.phase {
            Phase::Reading(incoming) => {
                incoming.messages += 1;
                let is_last = message.end_of_stream || self.request_mode == RequestMode::Buffered;
                match incoming.body.push(message.body, is_last, &self.cx.bodies) {
                    Err(refusal) => self.give_body_up(&refusal, now),
                    Ok(()) if is_last => self.read_and_route(metadata, false, now).await,
                    Ok(()) => {}
                }
            }
            Phase::Routed(_) if matches!(self.request_mode, RequestMode::Streamed | RequestMode::HeadersFirst) => {
                self.answer(Response::RequestBody(PhaseResponse::unchanged()));
            }
            // Envoy has been seen to send the last piece twice.
            Phase::Start | Phase::Routed(_) | Phase::Responding(..) | Phase::Over => {
                tracing::debug!("a body after its end is ignored");
            }
        }
    }

    fn give_body_up(&mut self, refusal: &Refusal, now: Instant) {
        if let Phase::Reading(incoming) = std::mem::replace(&mut self.phase, Phase::Over) {
            self.refuse(refusal, "", "", &incoming.head, now);
        }
    }

    async fn request_trailers(&mut self, metadata: Option<Metadata>, now: Instant) {
        match self.phase {
            Phase::Reading(_) => self.read_and_route(metadata, true, now).await,
            Phase::Start | Phase::Routed(_) | Phase::Responding(..) => {
                self.answer(Response::RequestTrailers(TrailersResponse {}));
            }
            Phase::Over => {}
        }
    }

    /// Reads the request, whose body is complete, and sends it on its way.
    async fn read_and_route(&mut self, metadata: Option<Metadata>, trailers: bool, now: Instant) {
        let Phase::Reading(Incoming { mut head, body, messages }) = std::mem::replace(&mut self.phase, Phase::Over)
        else {
            return;
        };
        self.cx.stages.observe(Stage::Door, now - head.received);
        let generation = self.cx.generations.load_full();
        let result = read(&mut head, body.join(), &generation);
        self.cx.stages.observe(Stage::Parse, now.elapsed());
        let ReadRequest { mut request, parser, rewritten } = match result {
            Ok(read) => read,
            Err(u) => return self.refuse(&u.refusal, &u.model, &u.model, &head, now),
        };
        let subset = metadata.as_ref().filter(|_| self.cx.options.subset_hint).and_then(subset_hint);
        let picked = pick(&self.cx, &generation, &mut request, subset.as_ref(), &self.opened).await;
        let Pick { mut outcome, record, slot } = match picked {
            Ok(picked) => picked,
            Err(refusal) => return self.refuse(&refusal, &request.model, &request.target_model, &head, now),
        };

        let began = Instant::now();
        let body = rewritten.clone().unwrap_or_else(|| request.body.clone());
        let skip_response = request.parsed.skip_response;
        let explanation = self.explanation(&request, &record);
        let expected = std::mem::take(&mut outcome.expected);
        let (routing, load) = self.routing(outcome, slot, head, explanation.as_deref());
        let series =
            self.cx.metrics.series(&request.model, &request.target_model, &request.fairness_id, request.priority);
        series.accepted(body.len() as u64);
        let exchange = Exchange {
            received: request.received,
            reader: Some(Reader { parser, path: request.path }),
            stream: request.parsed.stream,
            renamed: Renamed::new(request.model, request.target_model),
            load: Some(load),
            expected: Some((expected, record)),
            explanation,
            _running: Some(series.running()),
            series,
        };
        self.phase = if skip_response { Phase::Over } else { Phase::Routed(Box::new(exchange)) };
        self.answer_request(routing, body, rewritten.is_some(), messages, trailers);
        let ended = Instant::now();
        self.cx.metrics.request_processed(ended - now);
        self.cx.stages.observe(Stage::Reply, ended - began);
    }

    /// The record as JSON, if the client asks for it and may have it.
    fn explanation(&self, request: &InferenceRequest, record: &DecisionRecord) -> Option<String> {
        let asked = self.cx.options.explain && request.headers.find(EXPLAIN).is_some_and(|v| v.trim() == "1");
        // Names and numbers always make JSON.
        asked.then(|| serde_json::to_string(record).unwrap_or_default())
    }

    fn routing(
        &self,
        outcome: Outcome,
        slot: Slot,
        head: RequestHead,
        explanation: Option<&str>,
    ) -> (Routing, InFlight) {
        let mut set = outcome.headers.set;
        if head.id_is_new {
            set.push(("x-request-id".into(), head.id));
        }
        let mut remove = outcome.headers.remove;
        remove.extend(head.to_remove);
        let scores = self.cx.options.emit_scores.then_some(outcome.scores);
        let scores = scores.map(|s| s.into_iter().map(|(meta, total)| (meta.host_port.clone(), total)).collect());
        tracing::debug!(endpoint = outcome.target.host_port, "endpoint picked");
        let routing = Routing {
            destination: outcome.destination,
            set,
            remove,
            content_length: None,
            scores,
            explanation: explanation.map(str::to_owned),
        };
        (routing, InFlight { held: outcome.held, _charge: outcome.charge, slot })
    }

    fn answer_request(&mut self, mut routing: Routing, body: Bytes, changed: bool, messages: usize, trailers: bool) {
        match self.request_mode {
            RequestMode::Duplex => {
                // A body that is followed by trailers is sent without a length.
                routing.content_length = Some(body.len()).filter(|&length| length > 0 && !trailers);
                self.answer_headers(routing);
                push_pieces(&mut self.out, body, !trailers, Response::RequestBody);
            }
            RequestMode::Buffered => {
                routing.content_length = Some(body.len()).filter(|_| changed);
                let (mut common, metadata) = routing.into_parts();
                common.body_mutation =
                    PhaseResponse::replaced(body).response.and_then(|r| r.body_mutation).filter(|_| changed);
                let response = Response::RequestBody(PhaseResponse { response: Some(common) });
                self.out.push_back(ProcessingResponse { response: Some(response), dynamic_metadata: Some(metadata) });
            }
            RequestMode::Streamed => {
                routing.content_length = Some(body.len()).filter(|_| changed);
                self.answer_headers(routing);
                for i in 0..messages {
                    let piece = match (changed, i) {
                        (false, _) => PhaseResponse::unchanged(),
                        (true, 0) => PhaseResponse::replaced(body.clone()),
                        (true, _) => PhaseResponse::replaced(Bytes::new()),
                    };
                    self.answer(Response::RequestBody(piece));
                }
            }
            RequestMode::HeadersFirst | RequestMode::Unservable(_) => self.answer_headers(routing),
        }
        if trailers {
            self.answer(Response::RequestTrailers(TrailersResponse {}));
        }
    }

    fn answer_headers(&mut self, routing: Routing) {
        let (common, metadata) = routing.into_parts();
        let response = Response::RequestHeaders(PhaseResponse { response: Some(common) });
        self.out.push_back(ProcessingResponse { response: Some(response), dynamic_metadata: Some(metadata) });
    }

    /// A request without a body goes to any endpoint: there is nothing to judge by.
    fn route_without_body(&mut self, head: RequestHead, now: Instant) {
        let snapshot = self.cx.snapshots.load();
        if snapshot.is_empty() {
            drop(snapshot);
            return self.refuse(&Refusal::EmptyPool, "", "", &head, now);
        }
        let at = epp_plugin_api::EndpointIdx(fastrand::u32(..snapshot.rows() as u32));
        let set = if head.id_is_new { vec![("x-request-id".into(), head.id)] } else { Vec::new() };
        let destination = snapshot.meta(at).host_port.clone();
        let routing =
            Routing { destination, set, remove: head.to_remove, content_length: None, scores: None, explanation: None };
        drop(snapshot);
        let exchange = Exchange {
            received: head.received,
            series: self.cx.metrics.series("", "", &head.fairness_id, 0),
            reader: None,
            stream: false,
            renamed: None,
            load: None,
            expected: None,
            explanation: None,
            _running: None,
        };
        self.phase = Phase::Routed(Box::new(exchange));
        self.answer_headers(routing);
    }

    /// Envoy keeps the body back until its headers are answered, so the pick is made without it.
    async fn route_by_headers(&mut self, mut head: RequestHead, now: Instant) {
        if !self.cx.warned_of_headers_only.swap(true, Relaxed) {
            tracing::warn!(
                "envoy sends STREAMED request bodies only after its headers are answered, so picks do not see the body; \
                 set send_body_without_waiting_for_header_response, or FULL_DUPLEX_STREAMED or BUFFERED"
            );
        }
        let generation = self.cx.generations.load_full();
        let mut request = head.without_body(&generation);
        let picked = pick(&self.cx, &generation, &mut request, None, &self.opened).await;
        let Pick { mut outcome, record, slot } = match picked {
            Ok(picked) => picked,
            Err(refusal) => return self.refuse(&refusal, "", &request.target_model, &head, now),
        };
        let explanation = self.explanation(&request, &record);
        let expected = std::mem::take(&mut outcome.expected);
        let (routing, load) = self.routing(outcome, slot, head, explanation.as_deref());
        let series = self.cx.metrics.series("", &request.target_model, &request.fairness_id, request.priority);
        series.accepted(0);
        let reader = generation.parsers.resolve(&request.path);
        let exchange = Exchange {
            received: request.received,
            reader: reader.map(|parser| Reader { parser: parser.clone(), path: request.path.clone() }),
            stream: false,
            renamed: None,
            load: Some(load),
            expected: Some((expected, record)),
            explanation,
            _running: Some(series.running()),
            series,
        };
        self.phase = Phase::Routed(Box::new(exchange));
        self.answer_headers(routing);
        self.cx.metrics.request_processed(now.elapsed());
    }

    fn response_headers(&mut self, message: &HttpHeaders, metadata: Option<&Metadata>, now: Instant) {
        let mut exchange = match std::mem::replace(&mut self.phase, Phase::Start) {
            Phase::Routed(exchange) => Some(exchange),
            Phase::Responding(exchange, _) => exchange,
            Phase::Start | Phase::Reading(_) => None,
            Phase::Over => {
                self.phase = Phase::Over;
                return;
            }
        };
        let bodies_are_seen = self.response_mode != BodyMode::None;
        let mut response = Box::new(after::Response::new(message, exchange.as_deref(), bodies_are_seen, now));
        let mut mutation = HeaderMutation::default();
        if response.rewrites() && !message.end_of_stream {
            // It is the length of a body with the engine's name of the model.
            mutation.remove_headers.push("content-length".into());
        }
        mutation.set(SEEN_MARK, "true");
        if let Some(exchange) = &mut exchange {
            let mut set = Vec::new();
            exchange.response_headers(&served(metadata), &mut set);
            set.extend(exchange.explanation.take().map(|json| (EXPLAIN.to_owned(), json)));
            set.into_iter().for_each(|(key, value)| mutation.set(key, value));
            if message.end_of_stream {
                response.finish(exchange, now);
                self.send_calls(response.take_calls());
            }
        }
        self.phase = Phase::Responding(exchange, response);
        let common = CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() };
        self.answer(Response::ResponseHeaders(PhaseResponse { response: Some(common) }));
    }

    fn response_body(&mut self, message: HttpBody, now: Instant) {
        let HttpBody { body, end_of_stream } = message;
        let (body, rewrites, reports) = match &mut self.phase {
            Phase::Responding(Some(exchange), response) => {
                let body = response.chunk(body, end_of_stream, exchange, now);
                if end_of_stream {
                    response.finish(exchange, now);
                }
                (body, response.rewrites(), response.take_reports())
            }
            Phase::Responding(None, _) | Phase::Start | Phase::Reading(_) | Phase::Routed(_) => {
                (body, false, Vec::new())
            }
            Phase::Over => return,
        };
        match self.response_mode {
            BodyMode::Streamed | BodyMode::Buffered | BodyMode::BufferedPartial => {
                let response = if rewrites { PhaseResponse::replaced(body) } else { PhaseResponse::unchanged() };
                self.answer(Response::ResponseBody(response));
            }
            BodyMode::FullDuplexStreamed | BodyMode::None | BodyMode::Grpc | BodyMode::Unknown(_) => {
                push_pieces(&mut self.out, body, end_of_stream, Response::ResponseBody);
            }
        }
        self.report(reports);
        self.send_open_calls();
    }

    /// Puts what plugins report into the metadata of the answer that goes out last.
    fn report(&mut self, reports: Vec<Report>) {
        if let Some(last) = self.out.back_mut().filter(|_| !reports.is_empty()) {
            last.dynamic_metadata = Some(reported(reports));
        }
    }

    fn send_open_calls(&mut self) {
        if let Phase::Responding(_, response) = &mut self.phase {
            let calls = response.take_calls();
            self.send_calls(calls);
        }
    }

    fn send_calls(&self, calls: Vec<Call>) {
        calls.into_iter().for_each(|call| self.cx.calls.send(call));
    }

    fn response_trailers(&mut self, now: Instant) {
        if let Phase::Responding(Some(exchange), response) = &mut self.phase {
            // The body ends here, and what it reports is read, too.
            if !response.is_complete() && self.response_mode != BodyMode::None {
                let rest = response.chunk(Bytes::new(), true, exchange, now);
                // Only a body that is sent on by us can still be added to.
                if !rest.is_empty() && self.response_mode == BodyMode::FullDuplexStreamed {
                    push_pieces(&mut self.out, rest, false, Response::ResponseBody);
                }
            }
            response.finish(exchange, now);
            let reports = response.take_reports();
            self.report(reports);
            self.send_open_calls();
        }
        if !self.is_over() {
            self.answer(Response::ResponseTrailers(TrailersResponse {}));
        }
    }

    fn answer(&mut self, response: Response) {
        self.out.push_back(response.into());
    }

    fn refuse(&mut self, refusal: &Refusal, model: &str, target: &str, head: &RequestHead, now: Instant) {
        tracing::debug!(request = head.id, code = refusal.code(), reason = refusal.reason(), "request refused");
        self.cx.metrics.series(model, target, &head.fairness_id, 0).error(refusal.code());
        self.cx.metrics.request_processed(now.elapsed());
        self.out.push_back(immediate(refusal));
        self.phase = Phase::Over;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Phase::Responding(exchange, response) = &self.phase else { return };
        let now = Instant::now();
        if let Some(exchange) = exchange.as_ref().filter(|_| response.failed()) {
            exchange.series.error("ModelServerError");
        }
        self.cx.metrics.response_processed(response.age(now));
        self.cx.stages.observe(Stage::After, response.age(now));
    }
}

impl Renamed {
    fn new(client: String, target: String) -> Option<Self> {
        (!client.is_empty() && !target.is_empty() && client != target).then_some(Self { client, target })
    }
}

/// Which endpoint the metadata of Envoy's load balancer names.
fn served(metadata: Option<&Metadata>) -> Served {
    let Some(lb) = metadata.and_then(|m| m.filter_metadata.get(LB_NAMESPACE)) else { return Served::NoMetadata };
    match lb.fields.get(SERVED_KEY).and_then(|v| v.kind.as_ref()) {
        Some(Kind::StringValue(endpoint)) => Served::By(endpoint.clone()),
        _ => Served::NotSaid,
    }
}

/// The subset hint of the metadata; `None` if there is none or it is no list.
fn subset_hint(metadata: &Metadata) -> Option<Subset> {
    let hint = metadata.filter_metadata.get(SUBSET_NAMESPACE)?.fields.get(SUBSET_KEY)?;
    let Some(Kind::ListValue(list)) = &hint.kind else { return None };
    Some(Subset::new(list.values.iter().filter_map(|item| match &item.kind {
        Some(Kind::StringValue(text)) => Some(text.as_str()),
        _ => None,
    })))
}

#[cfg(test)]
mod tests;
