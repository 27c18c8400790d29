//! The standard gRPC health service: what it says of which name, and when.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use prost::Message;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::pb::{HealthCheckResponse, health_check_response};
use tonic_health::server::{HealthReporter, HealthService};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::ext_proc::service;

/// Names whose answer follows readiness. The empty one stands for the whole server.
const READINESS: [&str; 3] = ["", "readiness", service::NAME];
const LIVENESS: &str = "liveness";
const LIST: &str = "/grpc.health.v1.Health/List";

/// Tells health services whether the picker is ready.
#[derive(Clone)]
pub struct Health {
    reporter: HealthReporter,
    ready: Arc<AtomicBool>,
}

impl Health {
    /// Makes the reporter; everything is reported as serving.
    pub async fn serving() -> Self {
        let health = Self { reporter: HealthReporter::new(), ready: Arc::default() };
        health.reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
        health.set_ready(true).await;
        health
    }

    /// Changes what is said of readiness, to watchers too. Liveness stays as it is.
    pub async fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
        for name in READINESS {
            self.reporter.set_service_status(name, status(ready)).await;
        }
    }

    /// The service that answers.
    pub fn service(&self) -> Checks {
        let checks = HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()));
        Checks { checks, ready: self.ready.clone() }
    }
}

fn status(serving: bool) -> ServingStatus {
    if serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// Answers checks, and the method that lists every name with its status.
#[derive(Clone)]
pub struct Checks {
    checks: HealthServer<HealthService>,
    ready: Arc<AtomicBool>,
}

#[derive(Clone, PartialEq, Message)]
struct ListRequest {}

#[derive(Clone, PartialEq, Message)]
struct ListResponse {
    #[prost(btree_map = "string, message", tag = "1")]
    statuses: BTreeMap<String, HealthCheckResponse>,
}

/// The method `List`, with what it answers now.
struct List(ListResponse);

impl Service<tonic::Request<ListRequest>> for List {
    type Response = tonic::Response<ListResponse>;
    type Error = tonic::Status;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: tonic::Request<ListRequest>) -> Self::Future {
        std::future::ready(Ok(tonic::Response::new(self.0.clone())))
    }
}

impl Checks {
    fn list(&self) -> ListResponse {
        let says = |name: &str, serving| {
            let status = health_check_response::ServingStatus::from(status(serving)) as i32;
            (name.to_owned(), HealthCheckResponse { status })
        };
        let ready = self.ready.load(Relaxed);
        let names = READINESS.map(|name| says(name, ready));
        ListResponse { statuses: names.into_iter().chain([says(LIVENESS, true)]).collect() }
    }
}

impl NamedService for Checks {
    const NAME: &'static str = <HealthServer<HealthService> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for Checks {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() == LIST {
            let list = List(self.list());
            return Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(list, request).await) });
        }
        let mut checks = self.checks.clone();
        Box::pin(async move { checks.call(request).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_list_follows_readiness() {
        let health = Health::serving().await;
        let listed = |name: &str| health.service().list().statuses[name].status;
        assert_eq!((listed(service::NAME), listed(LIVENESS)), (1, 1));
        health.set_ready(false).await;
        assert_eq!((listed(service::NAME), listed(""), listed(LIVENESS)), (2, 2, 1));
    }
}
