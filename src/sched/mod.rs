//! Rooms 5 and 6: producers fill columns, filters clear bits, scorers fill slices, a picker chooses. Pure, and
//! synchronous but for two waits before judging: time and randomness come in, and nothing here does I/O.

pub mod calls;
pub mod cycle;
pub mod decisions;
pub mod draft;
pub mod failures;
mod gather;
pub mod inputs;
pub mod laps;
pub mod metrics;
pub mod pipeline;
pub mod profile;
pub mod record;
pub mod scratch;
pub mod subset;
pub mod tape;
#[cfg(test)]
mod tests;
pub mod trail;
pub mod truth;
