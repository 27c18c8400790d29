//! The standard gRPC health service: what it says of which name, and when.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::ext_proc::service;

/// Names whose answer follows readiness. The empty one stands for the whole server.
const READINESS: [&str; 3] = ["", "readiness", service::NAME];
const LIVENESS: &str = "liveness";

/// Tells health services whether the picker is ready.
#[derive(Clone)]
pub struct Health(HealthReporter);

impl Health {
    /// Makes the reporter; everything is reported as serving.
    pub async fn serving() -> Self {
        let health = Self(HealthReporter::new());
        health.0.set_service_status(LIVENESS, ServingStatus::Serving).await;
        health.set_ready(true).await;
        health
    }

    /// Changes what is said of readiness, to watchers too. Liveness stays as it is.
    pub async fn set_ready(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in READINESS {
            self.0.set_service_status(name, status).await;
        }
    }

    /// The service that answers.
    pub fn service(&self) -> tonic_health::pb::health_server::HealthServer<tonic_health::server::HealthService> {
        let service = tonic_health::server::HealthService::from_health_reporter(self.0.clone());
        tonic_health::pb::health_server::HealthServer::new(service)
    }
}
