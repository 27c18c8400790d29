//! Saturation detectors: one file a way to say how full the pool is.

pub mod concurrency;
pub mod kv_token_budget;
pub mod utilization;
