//! Every plugin that comes with the endpoint picker.

pub mod attributes;
pub mod board;
pub mod deciders;
pub mod detectors;
mod duration;
pub mod filters;
pub mod handlers;
pub mod json;
pub mod parsers;
pub mod pickers;
pub mod producers;
pub mod registry;
pub mod scorers;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod testing;
