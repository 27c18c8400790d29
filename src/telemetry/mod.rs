//! The page of metrics, the log, and the bounds on what labels may hold. What is measured is said where it happens.

pub mod exposition;
pub mod families;
pub mod labels;
pub mod line;
pub mod log;
pub mod process;
pub mod utc;
