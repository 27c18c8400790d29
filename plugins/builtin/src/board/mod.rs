//! Plugins that do their work at the board: one file each says what its parameters ask for.

pub mod core_metrics;
pub mod endpoint_notification;
mod engines;
pub mod file_discovery;
pub mod gpus;
pub mod k8s_notification;
pub mod metrics_source;
pub mod models;
pub mod multicluster_metrics;
mod selector;
