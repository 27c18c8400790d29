//! ext_proc

pub mod metrics;
