//! Filters: one file a question. Each takes endpoints out by what the endpoints file says of them.

pub mod by_label;
mod by_membership;
pub mod label_selector;
pub mod role;
