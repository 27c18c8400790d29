//! How requests wait, as one generation of the config says it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{FairnessPolicy, OrderingPolicy, Saturation, UsageLimitPolicy};

/// Everything about waiting that a config decides.
#[derive(Clone)]
pub struct Settings {
    /// Over all bands; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Over all bands; `None`: no limit.
    pub max_requests: Option<u64>,
    /// How long a request may wait; `None`: for ever.
    pub ttl: Option<Duration>,
    /// How long a request may wait while there is no endpoint; `None`: for ever.
    pub no_endpoint_ttl: Option<Duration>,
    /// One for each priority, the highest first.
    pub bands: Vec<BandSettings>,
    /// The model for a priority without a band, which only a request read under an older config can have.
    pub default_band: BandSettings,
    /// The same for priorities below zero.
    pub negative_band: BandSettings,
    pub usage_limit: Arc<dyn UsageLimitPolicy>,
    pub saturation: Arc<dyn Saturation>,
    /// Whether requests under way may be ended for others of higher priority.
    pub eviction: bool,
}

/// How requests of one priority wait.
#[derive(Clone)]
pub struct BandSettings {
    pub priority: i32,
    pub max_bytes: u64,
    pub max_requests: u64,
    pub fairness: Arc<dyn FairnessPolicy>,
    pub ordering: Arc<dyn OrderingPolicy>,
}

impl Settings {
    /// What holds for a priority: its own band, or the model for it.
    pub fn band(&self, priority: i32) -> BandSettings {
        if let Some(own) = self.bands.iter().find(|band| band.priority == priority) {
            return own.clone();
        }
        let model = if priority < 0 { &self.negative_band } else { &self.default_band };
        BandSettings { priority, ..model.clone() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settings({} bands)", self.bands.len())
    }
}

impl fmt::Debug for BandSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BandSettings({})", self.priority)
    }
}
