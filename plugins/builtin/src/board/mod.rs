//! Plugins that do their work at the board: one file each says what its parameters ask for.

pub mod core_metrics;
pub mod endpoint_notification;
mod engines;
pub mod file_discovery;
pub mod metrics_source;
mod selector;
