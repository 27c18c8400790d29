//! sched

pub mod metrics;
