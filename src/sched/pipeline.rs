//! The pipeline of one generation: built once from a checked plan, with every handle resolved.

use std::sync::Arc;

use epp_plugin_api::{
    Admitter, EndpointId, Gather, Hooks, MetricHub, Producer, ProfileHandler, Remote, Saturation, Screener,
};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;

use crate::config::plan::{Plan, Planned};
use crate::sched::failures::ProducerFailures;
use crate::sched::metrics::{SchedMetrics, StageMetrics, Timer};
use crate::sched::profile::{Names, Profile, Weighted};
use crate::sched::scratch::ScratchPool;
use crate::sched::tape::About;
use crate::sched::truth::Truth;

/// Producers, profiles and their handler, ready to run.
pub struct Pipeline {
    pub(super) producers: Vec<NamedProducer>,
    pub(super) read_hooks: Vec<(Arc<dyn Hooks>, Timer)>,
    pub(super) pick_hooks: Vec<(Arc<dyn Hooks>, Timer)>,
    pub(super) screeners: Vec<(Arc<dyn Screener>, Timer)>,
    pub(super) admitters: Vec<(Arc<dyn Admitter>, Timer)>,
    pub(super) profiles: Vec<Profile>,
    pub(super) handler: Arc<dyn ProfileHandler>,
    pub(super) handler_next: Timer,
    pub(super) handler_decide: Timer,
    /// Sheds requests of negative priority; `None`: they have waited instead.
    pub(super) saturation: Option<Arc<dyn Saturation>>,
    /// What a recording says of the config that it was built from.
    pub(super) about: Arc<About>,
    pub(super) metrics: Arc<SchedMetrics>,
    pub(super) stages: Arc<StageMetrics>,
    pub(super) truth: Arc<Truth>,
    pub(super) scratches: ScratchPool,
    /// Held from the first look at what is in flight until the pick is counted there, so that no two requests leave
    /// for one free place.
    pub(super) judging: Mutex<()>,
}

/// A producer and its timers.
pub struct NamedProducer {
    pub name: Arc<str>,
    pub producer: Option<Arc<dyn Producer>>,
    /// What is asked of a service for it.
    pub remote: Option<Arc<dyn Remote>>,
    /// Keeps requests back for it.
    pub gather: Option<Arc<dyn Gather>>,
    pub produce: Timer,
    pub picked: Timer,
    pub failures: Counter,
}

impl Pipeline {
    /// Builds the pipeline. The plan is checked, so every reference has the role that it is used in.
    ///
    /// # Panics
    /// If the plan refers to a plugin that does not play the role.
    pub fn new(plan: &Plan, metrics: Arc<SchedMetrics>, hub: &MetricHub) -> Self {
        let failures = hub.families::<ProducerFailures>();
        let timer = |point: &'static str, p: &Planned| metrics.timer(point, p.kind.reported, &p.name);
        let plugin = |at: usize| &plan.plugins[at];
        let profiles = plan
            .profiles
            .iter()
            .map(|profile| Profile {
                name: profile.name.clone(),
                names: Names {
                    profile: profile.name.as_str().into(),
                    filters: profile.filters.iter().map(|&at| plugin(at).name.as_str().into()).collect(),
                    scorers: profile.scorers.iter().map(|&(at, _)| plugin(at).name.as_str().into()).collect(),
                    picker: plugin(profile.picker).name.as_str().into(),
                },
                filters: profile
                    .filters
                    .iter()
                    .map(|&at| {
                        let p = plugin(at);
                        (role(p.instance.filter.as_ref(), p, "filter"), timer("Filter", p))
                    })
                    .collect(),
                scorers: profile
                    .scorers
                    .iter()
                    .map(|&(at, weight)| {
                        let p = plugin(at);
                        let scorer = role(p.instance.scorer.as_ref(), p, "scorer");
                        Weighted { scorer, weight, timer: timer("Scorer", p) }
                    })
                    .collect(),
                picker: {
                    let p = plugin(profile.picker);
                    (role(p.instance.picker.as_ref(), p, "picker"), timer("Picker", p))
                },
            })
            .collect();
        let producers = plan
            .producers
            .iter()
            .map(|&at| {
                let p = plugin(at);
                NamedProducer {
                    name: p.name.as_str().into(),
                    producer: p.instance.producer.clone(),
                    remote: p.instance.remote.clone(),
                    gather: p.instance.gather.clone(),
                    produce: timer("DataProducer", p),
                    picked: timer("PreRequest", p),
                    failures: failures.of(p.kind.reported, &p.name),
                }
            })
            .collect();
        let hooks = |point| of_role(plan, |p| p.instance.hooks.clone(), |p| timer(point, p));
        let handler = plugin(plan.handler);
        let saturation = plugin(plan.saturation);
        Self {
            producers,
            read_hooks: hooks("RequestHeader"),
            pick_hooks: hooks("PreRequest"),
            screeners: of_role(plan, |p| p.instance.screener.clone(), |p| timer("Screener", p)),
            admitters: of_role(plan, |p| p.instance.admitter.clone(), |p| timer("Admission", p)),
            profiles,
            handler: role(handler.instance.handler.as_ref(), handler, "profile handler"),
            handler_next: timer("ProfilePicker", handler),
            handler_decide: timer("ProcessProfilesResults", handler),
            saturation: plan
                .flow
                .is_none()
                .then(|| role(saturation.instance.saturation.as_ref(), saturation, "saturation detector")),
            about: Arc::new(About {
                config: plan.effective.clone(),
                values: plan.recorded.clone(),
                headers: plan.headers(),
            }),
            metrics,
            stages: StageMetrics::of(hub),
            truth: Truth::of(hub),
            scratches: ScratchPool::default(),
            judging: Mutex::new(()),
        }
    }

    /// Tells every producer that the endpoint is gone for good.
    pub fn forget(&self, id: EndpointId) {
        self.producers.iter().filter_map(|p| p.producer.as_ref()).for_each(|p| p.forget(id));
        self.pick_hooks.iter().for_each(|(hooks, _)| hooks.forget(id));
        self.metrics.forget(id);
        self.truth.forget(id);
    }
}

/// Every plugin of the plan that plays a role, in the order of the plan, with its timer.
fn of_role<T>(plan: &Plan, role: impl Fn(&Planned) -> Option<T>, timer: impl Fn(&Planned) -> Timer) -> Vec<(T, Timer)> {
    plan.plugins.iter().filter_map(|p| Some((role(p)?, timer(p)))).collect()
}

fn role<T: ?Sized>(role: Option<&Arc<T>>, plugin: &Planned, what: &str) -> Arc<T> {
    role.unwrap_or_else(|| panic!("{} is checked to be a {what}", plugin.name)).clone()
}
