//! Every plugin that comes with the endpoint picker.

pub mod json;
pub mod parsers;
