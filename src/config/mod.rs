//! From the text of a config to a checked plan; with discovery, the only part that knows YAML.

pub mod plan;
