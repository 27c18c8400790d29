//! The server that pickers are compared with: gRPC, the same messages and the same HTTP/2 settings, and nothing but a
//! constant for an answer. What it costs nobody who speaks `ext_proc` with this library can save.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{BoxStream, StreamExt};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::ext_proc::answer::Routing;
use crate::ext_proc::server::{http2, listen};
use crate::ext_proc::service;
use crate::ext_proc::wire::{BodyMode, PhaseResponse, ProcessingRequest, ProcessingResponse, Request, Response};

const LARGEST: usize = 64 << 20;

/// Serves until the process is ended.
///
/// # Errors
/// If the port cannot be had, or the listener fails.
pub async fn serve(port: u16) -> anyhow::Result<()> {
    let incoming = TcpListenerStream::new(listen(port)?).map(|stream| {
        let stream = stream?;
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(stream)
    });
    Ok(http2().add_service(Baseline).serve_with_incoming(incoming).await?)
}

#[derive(Clone)]
struct Baseline;

impl NamedService for Baseline {
    const NAME: &'static str = service::NAME;
}

impl tower_service::Service<http::Request<Body>> for Baseline {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<ProcessingResponse, ProcessingRequest>::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(LARGEST);
            Ok(grpc.streaming(Constant, request).await)
        })
    }
}

struct Constant;

impl StreamingService<ProcessingRequest> for Constant {
    type Response = ProcessingResponse;
    type ResponseStream = BoxStream<'static, Result<ProcessingResponse, Status>>;
    type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let mut lean = false;
        let answers = request.into_inner().map(move |message| {
            let message = message?;
            if let Some(config) = &message.protocol_config {
                lean = BodyMode::from_wire(config.request_body_mode) == BodyMode::Buffered;
            }
            Ok(match message.request {
                Some(Request::RequestBody(_)) if lean => routed(Response::RequestBody),
                Some(Request::RequestBody(piece)) => {
                    Response::RequestBody(PhaseResponse::streamed(piece.body, piece.end_of_stream)).into()
                }
                Some(Request::ResponseHeaders(_)) => Response::ResponseHeaders(PhaseResponse::unchanged()).into(),
                Some(Request::ResponseBody(piece)) => {
                    Response::ResponseBody(PhaseResponse::streamed(piece.body, piece.end_of_stream)).into()
                }
                _ if lean => Response::RequestHeaders(PhaseResponse::unchanged()).into(),
                _ => routed(Response::RequestHeaders),
            })
        });
        std::future::ready(Ok(tonic::Response::new(answers.boxed())))
    }
}

/// An answer that names the endpoint.
pub(super) fn routed(kind: fn(PhaseResponse) -> Response) -> ProcessingResponse {
    let routing = Routing { destination: "127.0.0.1:8000".into(), ..Routing::default() };
    let (common, metadata) = routing.into_parts();
    ProcessingResponse {
        response: Some(kind(PhaseResponse { response: Some(common) })),
        dynamic_metadata: Some(metadata),
    }
}
