//! One file a subcommand.

pub mod engine;
