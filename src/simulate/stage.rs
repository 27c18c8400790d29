//! Where simulated traffic is sent, and what the picker hears of it.

use std::time::Duration;

use epp_plugin_api::PluginType;
use epp_sim::model::ModelSettings;

use super::calibration::Transfer;
use super::schedule::Change;
use super::traffic::Traffic;

/// All of that; the same for all arms.
pub struct Stage<'a> {
    pub traffic: &'a Traffic,
    /// An engine an endpoint; at least one.
    pub engines: Vec<ModelSettings>,
    /// So many of them, the first ones, are for prefill and the others for decode; 0: each is for both.
    pub prefill: usize,
    /// What moving the blocks of a prompt takes.
    pub transfer: Transfer,
    /// What happens to engines, by time.
    pub changes: &'a [Change],
    pub seed: u64,
    /// How often every engine is asked for its load, and the list of endpoints is read.
    pub scrape_interval: Duration,
    /// How long it takes until the picker knows what an engine said.
    pub scrape_delay: Duration,
    /// How long it takes until the picker knows what an engine said of its cache.
    pub event_delay: Duration,
    /// How long what an engine said counts.
    pub staleness: Duration,
    /// The plugins that configs may name.
    pub registry: &'a [&'static PluginType],
}
