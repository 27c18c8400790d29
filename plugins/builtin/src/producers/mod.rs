//! Producers: one file, or folder, a kind of data that filters and scorers read.

pub mod approx_prefix;
pub mod inflight_load;
mod inflight_metrics;
pub mod predicted_latency;
mod prefix_metrics;
pub mod session_id;
pub mod token;
