//! One engine model, driven by a real clock (an HTTP engine) or a virtual one.

pub mod http;
pub mod kind;
mod metrics;
pub mod model;
