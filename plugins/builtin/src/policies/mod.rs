//! Flow-control policies: one file a way to order requests, to let flows take turns, or to limit what a priority uses.

pub mod edf;
pub mod fcfs;
pub mod global_strict;
pub mod priority_holdback;
pub mod program_aware;
mod program_metrics;
mod programs;
pub mod round_robin;
pub mod slo_deadline;
pub mod soft_reflective;
pub mod static_limit;

#[cfg(test)]
mod testing;
