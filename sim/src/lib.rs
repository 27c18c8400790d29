//! One engine model, driven by a real clock (an HTTP engine) or a virtual one.

mod kind;
mod metrics;
pub mod model;
