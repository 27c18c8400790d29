//! Room 3: who may go in now, who waits, who is turned away.
//!
//! What decides is a plain state machine ([`queue`], [`eviction`], [`pace`]) that is told the time; around it is a thin
//! shell ([`control`]) that wakes whoever may go when something has changed. Nothing is polled.

pub mod admission;
mod band;
pub mod control;
pub mod core;
pub mod eviction;
pub mod fullness;
mod metrics;
pub mod outcome;
pub mod pace;
pub mod page;
pub mod queue;
pub mod refusal;
pub mod report;
pub mod settings;
mod ticket;

#[cfg(test)]
mod tests;
