//! Screeners: one file a way to take endpoints out before anything is produced for them.

pub mod rollout;
mod selector;
mod shares;
