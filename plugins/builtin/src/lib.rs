//! Every plugin that comes with the endpoint picker.

pub mod admitters;
pub mod attributes;
mod base64;
pub mod board;
pub mod context_length;
mod custom;
pub mod deciders;
pub mod detectors;
mod duration;
pub mod filters;
pub mod handlers;
pub mod hooks;
pub mod json;
pub mod parsers;
mod per_row;
pub mod pickers;
pub mod policies;
pub mod producers;
pub mod registry;
mod schema;
pub mod scorers;
pub mod screeners;
mod session;
mod size;
mod slo;
mod topology;

// Tests say `crate::testing` and `crate::conformance!`.
#[cfg(test)]
use epp_plugin_api::{conformance, testing};
