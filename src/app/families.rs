//! Every metric family that there can be, on one page: what [`super::serve`] puts there, moved or not.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{MetricHub, Slots};

use crate::board;
use crate::config::{self, Environment};
use crate::ext_proc::metrics::{RequestMetrics, StreamMetrics};
use crate::flow::control::Control;
use crate::flow::page;
use crate::generation::Generation;
use crate::recording::RecordingMetrics;
use crate::reload::ReloadMetrics;
use crate::sched::failures::ProducerFailures;
use crate::sched::metrics::{SchedMetrics, StageMetrics};
use crate::sched::truth::Truth;
use crate::telemetry;

/// Requests wait, and every bound of the queue is set, so that each share of one is shown.
const CONFIG: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins: [{type: random-picker}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: random-picker}]}]
flowControl: {maxBytes: 1Gi, maxRequests: 1000, enableEviction: true}
";

/// A hub with the families of the picker itself; those of plugins come with the plugins that are built on it.
///
/// # Panics
/// If the config above is refused.
pub fn every_family() -> MetricHub {
    let hub = MetricHub::that_shows_all();
    let env = Environment {
        registry: super::registry(),
        slots: &Slots::default(),
        metrics: &hub,
        staleness: Duration::ZERO,
        allow_experimental: false,
        previous: None,
    };
    let plan = config::load(CONFIG, &env).expect("the config above is right");
    let metrics = Arc::new(SchedMetrics::new(&hub));
    let generation = Generation::new(1, plan, &metrics, &hub);
    page::show(&Control::new(generation.flow, "", Duration::ZERO, Arc::default(), &hub), "", &hub);
    board::list_families(&hub);
    hub.families::<RecordingMetrics>();
    hub.families::<ReloadMetrics>();
    hub.families::<ProducerFailures>();
    RequestMetrics::new(&hub);
    StageMetrics::of(&hub);
    StreamMetrics::of(&hub);
    Truth::of(&hub);
    telemetry::process::register(&hub);
    hub
}
