//! Saturation detectors: one file a way to say how full the pool is.

pub mod utilization;
