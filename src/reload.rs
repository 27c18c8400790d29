//! A changed config is read, checked, built and swapped in; a bad one changes nothing and is named.

use std::path::PathBuf;
use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::board::Board;
use crate::board::discovery::Discovery;
use crate::board::scrape::{ScrapeSettings, Scraper};
use crate::config::Mistake;
use crate::config::plan::Plan;
use crate::files;
use crate::flow::control::Control;
use crate::generation::{Generation, Generations};
use crate::sched::metrics::SchedMetrics;
use crate::tasks::Tasks;

/// How reloads went.
#[derive(Debug, Default)]
pub struct ReloadMetrics {
    generation: Gauge,
    failures: Counter,
}

impl MetricFamilies for ReloadMetrics {
    fn register(&self, registry: &mut MetricRegistry) {
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
pub type ReadPlan = Arc<dyn Fn(&str, &Plan) -> Result<Plan, Vec<Mistake>> + Send + Sync>;

/// What a plan asks of engines.
pub type Scraping = Box<dyn Fn(&Plan) -> ScrapeSettings + Send + Sync>;

/// Takes up changes of the config file.
pub struct Reloader {
    pub read: ReadPlan,
    pub scraping: Scraping,
    pub scraper: Scraper,
    pub board: Arc<Board>,
    pub hub: Arc<MetricHub>,
    pub sched_metrics: Arc<SchedMetrics>,
    pub generations: Generations,
    /// Where requests wait; whoever waits goes on doing so under the new settings.
    pub flow: Arc<Control>,
    pub last_error: LastError,
    /// Is called with each plan that has come into force.
    pub swapped: Box<dyn Fn(&Plan) + Send + Sync>,
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
                match self.take(String::from_utf8_lossy(&content).into_owned()).await {
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

    /// Takes up a config whole, or not at all.
    async fn take(&self, text: String) -> Result<(), String> {
        let current = self.generations.load_full();
        let (read, before) = (self.read.clone(), current.clone());
        // It takes long if there is a tokenizer to be read.
        let plan = tokio::task::spawn_blocking(move || read(&text, &before.plan)).await;
        let plan = plan.map_err(|_| "building it broke off")?.map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            lines.join("; ")
        })?;
        // What can fail comes first.
        let discovery = self.discovery(&current.plan, &plan).await?;
        let asks_anew = self.scraper.change((self.scraping)(&plan)).map_err(|e| format!("dataLayer.sources: {e}"))?;
        if let Some(discovery) = discovery {
            self.board.move_to(discovery).await;
        }
        if asks_anew {
            self.board.renew();
        }
        let kept = plan.plugins.iter().filter(|plugin| plugin.taken_over).count();
        let new = plan.plugins.len() - kept;
        let number = current.number + 1;
        let next = Arc::new(Generation::new(number, plan, &self.sched_metrics, &self.hub));
        self.generations.store(next.clone());
        self.flow.reconfigure(next.flow.clone());
        (self.swapped)(&next.plan);
        tracing::info!(generation = number, kept, new, "config reloaded");
        Ok(())
    }

    /// The endpoints of the new plan, read; `None`: they are where they were.
    async fn discovery(&self, old: &Plan, new: &Plan) -> Result<Option<Discovery>, String> {
        new.required_discovery().map_err(|mistake| mistake.to_string())?;
        let spec = |plan: &Plan| plan.discovery.and_then(|at| plan.plugins[at].instance.discovery.clone());
        let Some(now) = spec(new).filter(|now| spec(old).as_ref() != Some(now)) else { return Ok(None) };
        self.board.look_at(&now).await.map(Some).map_err(|e| format!("dataLayer.discovery: {e}"))
    }
}
