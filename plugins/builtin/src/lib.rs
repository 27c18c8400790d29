//! Every plugin that comes with the endpoint picker.

pub mod parsers;
