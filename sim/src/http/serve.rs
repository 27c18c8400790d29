//! Answers HTTP requests to one engine.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::Answer;
use super::ask::{self, Dialect};
use super::body::{Reply, Stay};
use super::live::Live;
use super::shapes::{ErrorBody, ErrorInfo, ModelCard, ModelList};
use crate::kind::Kind;
use crate::metrics::Visit;
use crate::model::Refusal;

/// Names the engine that answered, by its port.
const X_ENGINE: HeaderName = HeaderName::from_static("x-engine");
/// Bytes of a request body at most.
const MOST_BODY: usize = 64 << 20;
/// How long to wait before the next connection when the system refuses one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Serves connections until it is dropped, and with it every connection.
pub(super) async fn serve(live: Arc<Live>, listener: TcpListener, metrics_delay: Duration) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((socket, _)) => {
                // small events must not wait for an acknowledgement; a socket without the option works, too
                let _ = socket.set_nodelay(true);
                let live = live.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| respond(live.clone(), request, metrics_delay));
                    let mut builder = http1::Builder::new();
                    let served = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), service);
                    if let Err(error) = served.await {
                        tracing::debug!(%error, "connection ended early");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no connection accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What a path stands for.
#[derive(Clone, Copy)]
enum Route {
    Health,
    Models,
    Metrics,
    ResetPrefixCache,
    Generate(Dialect),
}

impl Route {
    /// The route of a path, its method and its name in metrics.
    fn of(path: &str, kind: Kind) -> Option<(Self, Method, &'static str)> {
        Some(match path {
            "/health" => (Self::Health, Method::GET, "/health"),
            "/v1/models" => (Self::Models, Method::GET, "/v1/models"),
            "/metrics" => (Self::Metrics, Method::GET, "/metrics"),
            "/prometheus/metrics" if kind == Kind::Trtllm => (Self::Metrics, Method::GET, "/prometheus/metrics"),
            "/reset_prefix_cache" => (Self::ResetPrefixCache, Method::POST, "/reset_prefix_cache"),
            "/v1/completions" => (Self::Generate(Dialect::Completions), Method::POST, "/v1/completions"),
            "/v1/chat/completions" => (Self::Generate(Dialect::Chat), Method::POST, "/v1/chat/completions"),
            "/inference/v1/generate" => (Self::Generate(Dialect::VllmGenerate), Method::POST, "/inference/v1/generate"),
            "/generate" => (Self::Generate(Dialect::SglangGenerate), Method::POST, "/generate"),
            _ => return None,
        })
    }
}

async fn respond(
    live: Arc<Live>,
    request: Request<Incoming>,
    metrics_delay: Duration,
) -> Result<Response<Reply>, Infallible> {
    let since = Instant::now();
    let asked_method = request.method().clone();
    let length = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let (mut response, handler) = match Route::of(request.uri().path(), live.kind) {
        None => (error(StatusCode::NOT_FOUND, "NotFoundError", "expected a known path, found another"), "none"),
        Some((_, method, handler)) if method != asked_method => (wrong_method(&method), handler),
        Some((route, _, handler)) => (answer(&live, route, request).await, handler),
    };
    response.headers_mut().insert(X_ENGINE, HeaderValue::from(live.port));
    if matches!(handler, "/metrics" | "/prometheus/metrics") && !metrics_delay.is_zero() {
        tokio::time::sleep(metrics_delay).await;
    }
    if matches!(handler, "/metrics" | "/prometheus/metrics" | "/health") {
        return Ok(response);
    }
    let visit = Visit {
        handler,
        method: method_name(&asked_method),
        status: status_class(response.status()),
        request_bytes: length.unwrap_or(0),
        response_bytes: response.body().len().unwrap_or(0),
        took: Duration::ZERO,
    };
    Ok(response.map(|body| body.counted(Stay { live, since, visit })))
}

async fn answer(live: &Arc<Live>, route: Route, request: Request<Incoming>) -> Response<Reply> {
    match route {
        Route::Health => reply(StatusCode::OK, JSON, Vec::new()),
        Route::Models => models(live),
        Route::Metrics => reply(StatusCode::OK, EXPOSITION, live.page().into_bytes()),
        Route::ResetPrefixCache => {
            let body = format!("{{\"success\":{}}}", live.reset_prefix_cache());
            reply(StatusCode::OK, JSON, body.into_bytes())
        }
        Route::Generate(dialect) => match Limited::new(request.into_body(), MOST_BODY).collect().await {
            Ok(body) => generate(live, dialect, &body.to_bytes()).await,
            Err(e) if e.is::<LengthLimitError>() => {
                let message = format!("expected a body of at most {MOST_BODY} bytes, found more");
                error(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", &message)
            }
            Err(_) => bad_request("expected a body, found one that breaks off"),
        },
    }
}

async fn generate(live: &Arc<Live>, dialect: Dialect, body: &[u8]) -> Response<Reply> {
    let ask = match ask::read(dialect, body) {
        Ok(ask) => ask,
        Err(message) => return bad_request(&message),
    };
    let mut ticket = match live.submit(&ask.requests) {
        Ok(ticket) => ticket,
        Err(refusal @ Refusal::QueueFull { .. }) => {
            return error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", &refusal.to_string());
        }
        Err(refusal @ (Refusal::EmptyPrompt | Refusal::PromptTooLong { .. })) => {
            return bad_request(&refusal.to_string());
        }
    };
    let model = ask.model.clone().unwrap_or_else(|| live.model_name.clone());
    let mut answer = Answer::new(dialect, &ask, model, &live.answer_id(), unix_now().as_secs());
    if ask.stream {
        return typed(StatusCode::OK, EVENTS, Reply::events(answer, ticket));
    }
    while !answer.is_complete() {
        match ticket.pieces.recv().await {
            Some(piece) => answer.take(piece),
            None => return error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", "the engine stopped"),
        };
    }
    reply(StatusCode::OK, JSON, answer.whole())
}

fn models(live: &Live) -> Response<Reply> {
    let card = ModelCard {
        id: &live.model_name,
        object: "model",
        created: unix_now().as_secs(),
        owned_by: live.kind.name(),
        root: &live.model_name,
        parent: None,
        max_model_len: live.window(),
    };
    reply(StatusCode::OK, JSON, json(&ModelList { object: "list", data: [card] }))
}

fn bad_request(message: &str) -> Response<Reply> {
    error(StatusCode::BAD_REQUEST, "BadRequestError", message)
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response<Reply> {
    let info = ErrorInfo { message, r#type: kind, param: None, code: status.as_u16() };
    reply(status, JSON, json(&ErrorBody { error: info }))
}

fn wrong_method(allowed: &Method) -> Response<Reply> {
    let message = format!("expected {allowed}, found another method");
    let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", &message);
    let allowed = HeaderValue::from_str(allowed.as_str()).expect("a method is a header value");
    response.headers_mut().insert(ALLOW, allowed);
    response
}

fn reply(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Reply> {
    typed(status, content_type, Reply::whole(body))
}

fn typed(status: StatusCode, content_type: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain structs become JSON")
}

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// The time since the epoch; zero if the system's clock stands before it.
pub(super) fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
