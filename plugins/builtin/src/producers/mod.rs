//! Producers: one file, or folder, a kind of data that filters and scorers read.

pub mod approx_prefix;
mod block_keys;
pub mod burst;
mod encoder_cache;
mod encoder_metrics;
mod index_size;
pub mod inflight_load;
mod inflight_metrics;
pub mod mm_embeddings;
pub mod p2p_source;
pub mod precise;
pub mod predicted_latency;
mod prefix_metrics;
mod ratios;
pub mod recent_load;
pub mod session_id;
pub mod token;
pub mod topology;
