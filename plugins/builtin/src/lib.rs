//! Every plugin that comes with the endpoint picker.

pub mod admitters;
pub mod attributes;
pub mod board;
pub mod detectors;
mod duration;
pub mod filters;
pub mod handlers;
pub mod hooks;
pub mod json;
pub mod parsers;
pub mod pickers;
pub mod producers;
pub mod registry;
pub mod scorers;
pub mod screeners;
mod slo;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod testing;
