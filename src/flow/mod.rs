//! Room 3: who may go in now, who waits, who is turned away.

pub mod admission;
pub mod refusal;
