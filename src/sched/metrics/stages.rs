//! How long a request is in each room. Below every room that reports to it, so it is found here.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::Histogram;

use crate::telemetry::families::{Histograms, histograms};

/// From a microsecond, which a quick room takes, to the minutes that a request may wait.
static SECONDS: &[f64] = &[
    0.000001, 0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
    0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];

/// The rooms that take time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the first message to the last byte of the request.
    Door,
    /// Reading the request.
    Parse,
    /// Waiting for admission.
    Queue,
    /// Being kept back until those that belong together are there.
    Gather,
    /// Filling columns.
    Produce,
    /// Filtering, scoring and picking.
    Judge,
    /// Putting the answer together.
    Reply,
    /// From the answer to the end of the stream.
    After,
}

impl Stage {
    const ALL: [Self; 8] =
        [Self::Door, Self::Parse, Self::Queue, Self::Gather, Self::Produce, Self::Judge, Self::Reply, Self::After];

    /// The value of the label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Door => "door",
            Self::Parse => "parse",
            Self::Queue => "queue",
            Self::Gather => "gather",
            Self::Produce => "produce",
            Self::Judge => "judge",
            Self::Reply => "reply",
            Self::After => "after",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    stage: &'static str,
}

/// The time in each room. One for the process.
#[derive(Debug)]
pub struct StageMetrics {
    family: Histograms<Labels>,
    series: [OnceLock<Histogram>; Stage::ALL.len()],
}

impl Default for StageMetrics {
    fn default() -> Self {
        Self { family: histograms(SECONDS), series: Default::default() }
    }
}

impl MetricFamilies for StageMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
        let help = "[ALPHA] Time of a request in a room";
        registry.register("epp_stage_duration_seconds", help, self.family.clone());
    }
}

impl StageMetrics {
    /// Puts the family on the page of the hub.
    pub fn of(hub: &MetricHub) -> Arc<Self> {
        hub.families()
    }

    /// A request was this long in a room.
    pub fn observe(&self, stage: Stage, took: Duration) {
        let labels = Labels { stage: stage.label() };
        self.series[stage as usize]
            .get_or_init(|| self.family.get_or_create_owned(&labels))
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::exposition::{Format, page};

    #[test]
    fn each_room_has_its_own_series_once_it_was_entered() {
        let hub = MetricHub::default();
        let metrics = StageMetrics::of(&hub);
        assert_eq!(page(&hub, Format::Text).expect("no collector"), "");
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            metrics.observe(stage, Duration::from_secs(i as u64));
        }
        let page = page(&hub, Format::Text).expect("no collector");
        for (i, stage) in
            ["door", "parse", "queue", "gather", "produce", "judge", "reply", "after"].into_iter().enumerate()
        {
            let line = format!("epp_stage_duration_seconds_sum{{stage=\"{stage}\"}} {i}.0\n");
            assert!(page.contains(&line), "{line} is not in\n{page}");
        }
    }
}
