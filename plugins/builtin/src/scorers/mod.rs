//! Scorers: one file a question. Each says of every candidate how good it is, from 0 to 1.

pub mod active_request;
pub mod endpoint_attribute;
pub mod header_label_affinity;
pub mod kv_cache;
pub mod latency;
pub mod load_aware;
pub mod lora_affinity;
pub mod mm_embeddings;
pub mod multicluster;
pub mod no_hit_lru;
pub mod prefix_cache;
pub mod queue;
pub mod recent_load;
mod relative;
pub mod running_requests;
pub mod session_affinity;
pub mod token_load;
pub mod topology_affinity;
mod used_order;

use epp_plugin_api::Candidates;

/// Sets the score of every candidate by its row; a plain loop where all rows are candidates.
fn fill(among: &Candidates, scores: &mut [f64], of: impl Fn(usize) -> f64) {
    if among.count() == scores.len() {
        for (row, score) in scores.iter_mut().enumerate() {
            *score = of(row);
        }
    } else {
        for idx in among.iter() {
            scores[idx.row()] = of(idx.row());
        }
    }
}
