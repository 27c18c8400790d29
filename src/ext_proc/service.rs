//! Room 1, the door: the gRPC service that Envoy and direct clients call, one state machine a stream.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use futures_util::FutureExt;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::time::Instant;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::ext_proc::context::Context;
use crate::ext_proc::metrics::OpenStream;
use crate::ext_proc::stream::Stream;
use crate::ext_proc::wire::{ProcessingRequest, ProcessingResponse};

/// The full name of the service.
pub const NAME: &str = "envoy.service.ext_proc.v3.ExternalProcessor";
/// The path of its one method.
pub const METHOD: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

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
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let open = Open {
            messages: request.into_inner(),
            counted: self.0.streams.as_ref().map(|s| s.open()),
            stream: Stream::new(self.0.clone()),
            failed: false,
        };
        std::future::ready(Ok(Response::new(stream::unfold(open, Open::next).boxed())))
    }
}

/// A stream with its two ends.
struct Open {
    messages: Streaming<ProcessingRequest>,
    stream: Stream,
    counted: Option<OpenStream>,
    failed: bool,
}

impl Open {
    /// The next answer: from what is ready, else from the messages that follow.
    async fn next(mut self) -> Option<(Result<ProcessingResponse, Status>, Self)> {
        loop {
            if self.failed {
                return None;
            }
            if let Some(answer) = self.stream.next_answer() {
                return Some((Ok(answer), self));
            }
            if self.stream.is_over() {
                self.ended(Code::Ok);
                return None;
            }
            let message = match self.messages.message().await {
                Ok(Some(message)) => message,
                Ok(None) => {
                    self.stream.half_closed(Instant::now());
                    self.ended(Code::Ok);
                    return None;
                }
                Err(status) => return self.fail(status),
            };
            let taken = AssertUnwindSafe(self.stream.take(message, Instant::now())).catch_unwind().await;
            if taken.is_err() {
                return self.fail(Status::internal("the picker failed on this stream"));
            }
        }
    }

    fn fail(mut self, status: Status) -> Option<(Result<ProcessingResponse, Status>, Self)> {
        // The library says "out of range" of a message over the limit; clients expect what other servers say.
        let status = match status.code() {
            Code::OutOfRange => Status::resource_exhausted(status.message()),
            _ => status,
        };
        self.failed = true;
        self.ended(status.code());
        Some((Err(status), self))
    }

    fn ended(&mut self, code: Code) {
        if let Some(counted) = &mut self.counted {
            counted.ends_with(name(code));
        }
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
