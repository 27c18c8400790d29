//! Measures pickers over real sockets: recorded requests go out as a client or Envoy sends them, to several pickers in
//! turns, and what each takes and costs is set side by side.

pub mod baseline;
pub mod client;
pub mod dial;
pub mod events;
pub mod load;
pub mod process;
pub mod report;
mod schedule;
pub mod served;
pub mod tally;
pub mod target;
#[cfg(test)]
mod tests;
pub mod work;
