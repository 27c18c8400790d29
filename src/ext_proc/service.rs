//! Room 1, the door: the gRPC service that Envoy and direct clients call, one state machine a stream.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream as _};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::ext_proc::context::Context;
use crate::ext_proc::metrics::OpenStream;
use crate::ext_proc::pick::Opened;
use crate::ext_proc::stream::{ClientEnd, Stream};
use crate::ext_proc::wire::{ProcessingRequest, ProcessingResponse};

/// The full name of the service.
pub const NAME: &str = "envoy.service.ext_proc.v3.ExternalProcessor";
/// The path of its one method.
pub const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// When a stream was opened, for who can tell better than the service itself.
#[derive(Clone, Copy, Debug)]
pub struct OpenedAt(pub Instant);

/// `ExternalProcessor` with its one method.
#[derive(Clone)]
pub struct ExternalProcessor {
    cx: Arc<Context>,
    limits: MessageLimits,
}

/// Largest gRPC messages, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MessageLimits {
    pub receive: usize,
    pub send: usize,
}

impl ExternalProcessor {
    /// Makes the service.
    pub fn new(cx: Arc<Context>, limits: MessageLimits) -> Self {
        Self { cx, limits }
    }
}

impl NamedService for ExternalProcessor {
    const NAME: &'static str = NAME;
}

impl tower_service::Service<http::Request<Body>> for ExternalProcessor {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let (method, limits) = (Process(self.cx.clone()), self.limits);
        Box::pin(async move {
            if request.uri().path() != METHOD {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = Grpc::new(ProstCodec::<ProcessingResponse, ProcessingRequest>::default())
                .accept_compressed(CompressionEncoding::Gzip)
                .max_decoding_message_size(limits.receive)
                .max_encoding_message_size(limits.send);
            // Many clients say that they take compressed answers; only one that compresses is worth the work.
            if request.headers().contains_key("grpc-encoding") {
                grpc = grpc.send_compressed(CompressionEncoding::Gzip);
            }
            Ok(grpc.streaming(method, request).await)
        })
    }
}

struct Process(Arc<Context>);

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = Answers;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let timeout = request.metadata().get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
        let at = request.extensions().get().map_or_else(Instant::now, |OpenedAt(at)| *at);
        let deadline = timeout.and_then(|timeout| at.checked_add(timeout));
        let stream = Stream::opened(self.0.clone(), Opened { at, deadline });
        let open = Open {
            messages: request.into_inner(),
            counted: self.0.streams.as_ref().map(|s| s.open()),
            waiting: Some(Box::new(stream)),
            taking: None,
            kept_open: false,
        };
        std::future::ready(Ok(Response::new(Answers(Some(open)))))
    }
}

/// The answers of a stream. What the stream holds is given back as soon as there are no more.
struct Answers(Option<Open>);

impl futures_util::Stream for Answers {
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(open) = &mut self.0 else { return Poll::Ready(None) };
        let answer = ready!(open.poll_answer(cx)).transpose();
        let code = match &answer {
            Some(Ok(_)) => return Poll::Ready(answer),
            Some(Err(status)) => status.code(),
            None => Code::Ok,
        };
        if let Some(counted) = &mut open.counted {
            counted.ends_with(name(code));
        }
        self.0 = None;
        Poll::Ready(answer)
    }
}

/// A stream with its two ends. Either the stream waits for a message, or it is taking one.
struct Open {
    messages: Streaming<ProcessingRequest>,
    waiting: Option<Box<Stream>>,
    taking: Option<Taking>,
    /// Whether the client was seen to have answers and still to have more to say.
    kept_open: bool,
    counted: Option<OpenStream>,
}

/// Gives the stream back once it has taken a message, which may ask something of others. A fault in it costs this
/// stream alone.
type Taking = BoxFuture<'static, Result<Box<Stream>, Box<dyn Any + Send>>>;

impl Open {
    /// The next answer: from what is ready, else from the messages that follow. `None`: there are no more.
    fn poll_answer(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<Option<ProcessingResponse>, Status>> {
        loop {
            if let Some(taking) = &mut self.taking {
                let taken = ready!(taking.as_mut().poll(cx));
                self.taking = None;
                self.waiting = Some(taken.map_err(|_| Status::internal("the picker failed on this stream"))?);
            }
            let Some(stream) = &mut self.waiting else { return Poll::Ready(Ok(None)) };
            if let Some(answer) = stream.next_answer() {
                return Poll::Ready(Ok(Some(answer)));
            }
            if stream.is_over() {
                return Poll::Ready(Ok(None));
            }
            if stream.poll_evicted(cx).is_ready() {
                continue;
            }
            let next = Pin::new(&mut self.messages).poll_next(cx);
            self.kept_open |= next.is_pending();
            if next.is_pending() && stream.poll_late(cx).is_ready() {
                continue;
            }
            let Some(message) = ready!(next) else {
                let end = if self.kept_open { ClientEnd::AfterAnswers } else { ClientEnd::BeforeAnswers };
                stream.half_closed(end, Instant::now());
                return Poll::Ready(Ok(None));
            };
            self.kept_open = false;
            let message = message.map_err(as_others_say)?;
            self.taking = self.waiting.take().map(|stream| taking(stream, message));
        }
    }
}

fn taking(mut stream: Box<Stream>, message: ProcessingRequest) -> Taking {
    let take = async move {
        stream.take(message, Instant::now()).await;
        stream
    };
    AssertUnwindSafe(take).catch_unwind().boxed()
}

/// Reads the header in which a client says how long it waits: up to eight digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let n: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(n * 3600)),
        "M" => Some(Duration::from_secs(n * 60)),
        "S" => Some(Duration::from_secs(n)),
        "m" => Some(Duration::from_millis(n)),
        "u" => Some(Duration::from_micros(n)),
        "n" => Some(Duration::from_nanos(n)),
        _ => None,
    }
}

/// The library says "out of range" of a message over the limit; clients expect what other servers say.
fn as_others_say(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(status.message()),
        _ => status,
    }
}

/// The name of a gRPC status in metrics.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_digits_and_a_unit() {
        for (text, expected) in [
            ("5S", Some(Duration::from_secs(5))),
            ("250m", Some(Duration::from_millis(250))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("7u", Some(Duration::from_micros(7))),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("999999999S", None),
            ("5é", None),
        ] {
            assert_eq!(timeout(text), expected, "{text}");
        }
    }
}
