//! Pickers: one file an algorithm. Each chooses up to a number of endpoints by their totals.

pub mod max_score;
pub mod random;
pub mod weighted_random;

use epp_plugin_api::{BuildContext, BuildError};
use schemars::JsonSchema;
use serde::Deserialize;

/// The parameters that every picker has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// How many endpoints to answer, best first; fewer if there are fewer candidates. Zero and less count as 1.
    /// Default 1. The first is where the request goes; the others are for a proxy that retries.
    max_num_of_endpoints: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_num_of_endpoints: 1 }
    }
}

fn max_endpoints(cx: &BuildContext<'_>) -> Result<usize, BuildError> {
    let cfg: Config = cx.config()?;
    Ok(usize::try_from(cfg.max_num_of_endpoints).unwrap_or(1).max(1))
}
