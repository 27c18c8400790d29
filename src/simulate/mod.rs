//! Recorded traffic in, report out: the pipeline that serves and the engine model, in time that is only counted.

pub mod arm;
mod balance;
pub mod calibration;
mod clock;
mod lines;
mod picker;
mod pool;
pub mod report;
pub mod rollout;
pub mod simulation;
mod tally;
#[cfg(test)]
mod tests;
pub mod traffic;
