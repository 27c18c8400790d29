//! Hooks: one file, or folder, a plugin that follows requests and only changes headers, metadata or the flow.

pub mod agent_identity;
pub mod attribute_reporter;
mod expression;
pub mod served_verifier;
