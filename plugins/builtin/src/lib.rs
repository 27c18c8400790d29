//! Every plugin that comes with the endpoint picker.

pub mod attributes;
mod base64;
pub mod board;
pub mod context_length;
mod custom;
pub mod detectors;
mod duration;
pub mod filters;
pub mod handlers;
pub mod json;
pub mod parsers;
mod per_row;
pub mod pickers;
pub mod producers;
pub mod registry;
mod schema;
pub mod scorers;
mod session;
mod topology;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod testing;
