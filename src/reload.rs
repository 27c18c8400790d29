//! A changed config is read, checked, built and swapped in; a bad one changes nothing and is named.

use std::path::PathBuf;
use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::config::Mistake;
use crate::config::plan::{Plan, SourcePlan};
use crate::files;
use crate::flow::control::Control;
use crate::generation::{Generation, Generations};
use crate::sched::metrics::SchedMetrics;
use crate::tasks::Tasks;

/// How reloads went.
#[derive(Debug, Default)]
struct ReloadMetrics {
    generation: Gauge,
    failures: Counter,
}

impl MetricFamilies for ReloadMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "epp_config_generation",
            "[ALPHA] The config in force, counted from 1",
            self.generation.clone(),
        );
        let help = "[ALPHA] Changed configs that were refused, so that the one before stayed in force";
        registry.register("epp_config_reload_failures", help, self.failures.clone());
    }
}

/// Why the last changed config was refused; `None` once a good one has come.
pub type LastError = Arc<Mutex<Option<String>>>;

/// Reads and checks a config; instances that are as in the plan before are taken over with their state.
pub type ReadPlan = Box<dyn Fn(&str, &Plan) -> Result<Plan, Vec<Mistake>> + Send + Sync>;

/// Takes up changes of the config file.
pub struct Reloader {
    pub read: ReadPlan,
    pub hub: Arc<MetricHub>,
    pub sched_metrics: Arc<SchedMetrics>,
    pub generations: Generations,
    /// Where requests wait; whoever waits goes on doing so under the new settings.
    pub flow: Arc<Control>,
    pub last_error: LastError,
}

impl Reloader {
    /// Follows the file until the tasks stop. `known` is the text that the current generation was built from.
    pub fn follow(self, path: PathBuf, known: String, tasks: &Tasks) {
        let metrics = self.hub.families::<ReloadMetrics>();
        metrics.generation.set(1);
        let mut contents = files::follow(&path, known.into_bytes().into(), tasks);
        tasks.spawn("config", async move {
            while contents.changed().await.is_ok() {
                let content = contents.borrow_and_update().clone();
                match self.take(&String::from_utf8_lossy(&content)) {
                    Ok(()) => {
                        metrics.generation.inc();
                        *self.last_error.lock() = None;
                    }
                    Err(why) => {
                        metrics.failures.inc();
                        tracing::error!("the changed config is refused, the one before stays in force: {why}");
                        *self.last_error.lock() = Some(why);
                    }
                }
            }
        });
    }

    fn take(&self, text: &str) -> Result<(), String> {
        let current = self.generations.load_full();
        let plan = (self.read)(text, &current.plan).map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            lines.join("; ")
        })?;
        plan.required_discovery().map_err(|mistake| mistake.to_string())?;
        for what in needs_a_restart(&current.plan, &plan) {
            tracing::warn!("{what} has changed in the config; that takes effect at the next start");
        }
        let kept = plan.plugins.iter().filter(|plugin| plugin.taken_over).count();
        let new = plan.plugins.len() - kept;
        let number = current.number + 1;
        let generation = Generation::new(number, plan, &self.sched_metrics, &self.hub);
        let flow = generation.flow.clone();
        self.generations.store(Arc::new(generation));
        self.flow.reconfigure(flow);
        tracing::info!(generation = number, kept, new, "config reloaded");
        Ok(())
    }
}

/// The parts of a config that were set up once, at the start.
fn needs_a_restart(old: &Plan, new: &Plan) -> Vec<&'static str> {
    let mut parts = Vec::new();
    let discovery = |plan: &Plan| plan.discovery.map(|at| plan.plugins[at].instance.discovery.clone());
    if discovery(old) != discovery(new) {
        parts.push("dataLayer.discovery");
    }
    let sources = |plan: &Plan| {
        let read = |at: &usize| plan.plugins[*at].instance.extractor.clone();
        let source = |s: &SourcePlan| {
            (plan.plugins[s.source].instance.source.clone(), s.extractors.iter().map(read).collect::<Vec<_>>())
        };
        plan.sources.iter().map(source).collect::<Vec<_>>()
    };
    if sources(old) != sources(new) {
        parts.push("dataLayer.sources");
    }
    parts
}
