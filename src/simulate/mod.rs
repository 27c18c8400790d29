//! Recorded traffic in, report out: the pipeline that serves and the engine model, in time that is only counted.

pub mod arm;
mod balance;
mod cache_events;
pub mod calibration;
#[cfg(test)]
mod change_tests;
mod chooser;
mod clock;
mod disagg;
mod door;
mod lines;
mod live;
mod membership;
mod oracle;
mod picker;
mod picks;
mod pool;
pub mod report;
pub mod rollout;
mod run;
pub mod schedule;
mod serving;
pub mod simulation;
pub mod stage;
mod tally;
#[cfg(test)]
mod tests;
pub mod traffic;
mod waiters;
mod waiting;
