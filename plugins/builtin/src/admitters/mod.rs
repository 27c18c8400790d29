//! Admitters: one file a way to turn requests away before they are judged.

pub mod latency_slo;
pub mod probabilistic;
