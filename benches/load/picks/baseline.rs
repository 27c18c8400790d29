//! The server that is compared with: gRPC, the same messages and the same HTTP/2 settings, and nothing but a constant
//! for an answer. What it costs nobody who speaks `ext_proc` with this library can save.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use epp::ext_proc::answer::Routing;
use epp::ext_proc::server::{http2, listen};
use epp::ext_proc::wire::{BodyMode, PhaseResponse, ProcessingRequest, ProcessingResponse, Request, Response};
use futures_util::stream::{BoxStream, StreamExt};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

const LARGEST: usize = 64 << 20;

/// Serves until the process is ended.
pub fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async {
        let incoming = TcpListenerStream::new(listen(port).expect("the port is free")).map(|stream| {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        });
        http2().add_service(Baseline).serve_with_incoming(incoming).await.expect("the listener stays");
    });
}

#[derive(Clone)]
struct Baseline;

impl NamedService for Baseline {
    const NAME: &'static str = epp::ext_proc::service::NAME;
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
                _ if lean => Response::RequestHeaders(PhaseResponse::unchanged()).into(),
                _ => routed(Response::RequestHeaders),
            })
        });
        std::future::ready(Ok(tonic::Response::new(answers.boxed())))
    }
}

fn routed(kind: fn(PhaseResponse) -> Response) -> ProcessingResponse {
    let routing = Routing { destination: "127.0.0.1:8000".into(), ..Routing::default() };
    let (common, metadata) = routing.into_parts();
    ProcessingResponse {
        response: Some(kind(PhaseResponse { response: Some(common) })),
        dynamic_metadata: Some(metadata),
    }
}
