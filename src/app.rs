//! The composition root: builds every part, hands it its inputs, and ends them in order.

pub mod families;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use arc_swap::{ArcSwap, ArcSwapOption};
use epp_plugin_api::{MetricHub, PluginType, Slots};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::admin::{self, ConfigState, PluginState};
use crate::board::asking::Asking;
use crate::board::kv::{Kv, Wanted};
use crate::board::scrape::{ScrapeSettings, Scraper, SourceSettings};
use crate::board::{self, Board};
use crate::calls::HttpCalls;
use crate::config::plan::{Plan, Planned};
use crate::config::{self, Environment, Mistake};
use crate::ext_proc::bodies::Bodies;
use crate::ext_proc::context::{Context, Options};
use crate::ext_proc::health::Health;
use crate::ext_proc::metrics::{RequestMetrics, StreamMetrics};
use crate::ext_proc::server::{Connections, listen, serve as serve_streams, serve_health};
use crate::ext_proc::service::{ExternalProcessor, MessageLimits};
use crate::ext_proc::tls::{Certificate, TlsSettings, server_config};
use crate::files;
use crate::flow::control::Control;
use crate::flow::page;
use crate::generation::{Generation, Generations};
use crate::recording;
use crate::reload::{LastError, Reloader};
use crate::sched::decisions::Decisions;
use crate::sched::metrics::{SchedMetrics, StageMetrics};
use crate::sched::truth::Truth;
use crate::tasks::Tasks;
use crate::telemetry;

/// What stays open is cut so long after the last stream could have begun.
const GRACE: Duration = Duration::from_millis(250);
/// A drain ends early once no client has been connected for so long: then there is nobody to be served.
const QUIET: Duration = Duration::from_secs(1);
/// Engines are asked no more often than this.
const LEAST_SCRAPE_INTERVAL: Duration = Duration::from_millis(50);
const PUBLISH_EVERY: Duration = Duration::from_millis(50);
/// After a request has ended, its engine takes this much longer than usual to say so.
const ENGINE_LAG: Duration = Duration::from_millis(250);

/// What the picker is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    pub grpc_port: u16,
    pub health_port: u16,
    pub metrics_port: u16,
    pub pool_name: String,
    pub config_file: Option<PathBuf>,
    /// Counts if there is no file.
    pub config_text: String,
    pub allow_experimental: bool,
    pub scrape_interval: Duration,
    pub gauges_interval: Duration,
    pub staleness: Duration,
    /// `None`: in the clear.
    pub tls: Option<TlsSettings>,
    pub reload_certificate: bool,
    pub limits: MessageLimits,
    /// Whether health checks are answered on the ext_proc port, too.
    pub health_on_grpc: bool,
    pub stream_metrics: bool,
    pub pprof: bool,
    /// `None`: decisions are not recorded.
    pub recording: Option<recording::Settings>,
    pub drain: Duration,
    pub options: Options,
}

/// Every plugin type there is.
pub fn registry() -> &'static [&'static PluginType] {
    epp_plugins::registry::REGISTRY
}

/// Serves until a signal ends it.
///
/// # Errors
/// If the picker cannot start, or a listener fails.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let tasks = Tasks::default();
    let hub = Arc::new(MetricHub::default());
    let slots = Slots::default();
    let text = config_text(&settings)?;
    let plan = first_plan(&text, &settings, &slots, &hub)?;
    let discovery = plan.required_discovery()?;

    let sched_metrics = Arc::new(SchedMetrics::new(&hub));
    let generation = Generation::new(1, plan, &sched_metrics, &hub);
    let generations: Generations = Arc::new(ArcSwap::from_pointee(generation));
    telemetry::process::register(&hub);

    let last_error = LastError::default();
    let decisions = Arc::new(match &settings.recording {
        None => Decisions::default(),
        Some(recording) => {
            let tape = recording::start(recording, &tasks, &hub);
            Decisions::taped(tape.with_context(|| format!("--record: {}", recording.path.display()))?)
        }
    });
    let (ready, is_ready) = watch::channel(false);
    let board_cell = Arc::new(ArcSwapOption::<Board>::empty());
    let kv_cell = Arc::new(ArcSwapOption::<Kv>::empty());
    let flow_cell = Arc::new(ArcSwapOption::<Control>::empty());
    let pages = admin::Sources {
        metrics: hub.clone(),
        ready: is_ready,
        endpoints: endpoints_page(board_cell.clone()),
        decisions: decisions_page(decisions.clone()),
        flow: flow_page(flow_cell.clone()),
        config: config_page(generations.clone(), last_error.clone()),
        plugins: plugins_page(generations.clone(), |_| true),
        kv: kv_page(kv_cell.clone()),
        kv_producers: plugins_page(generations.clone(), |p| p.instance.kv.is_some()),
        truth: truth_page(&hub),
        pprof: settings.pprof,
    };
    let admin_listener = listen(settings.metrics_port)?;
    log_port("metrics", &admin_listener);
    let admin_tasks = tasks.clone();
    tasks.spawn("admin", async move {
        let stop = async move { admin_tasks.stopping().await };
        if let Err(why) = admin::serve(admin_listener, admin::router(pages), stop).await {
            tracing::error!(%why, "the metrics port failed");
        }
    });

    if settings.scrape_interval < LEAST_SCRAPE_INTERVAL {
        tracing::warn!("refresh-metrics-interval is raised to {LEAST_SCRAPE_INTERVAL:?}");
    }
    let scraper = Scraper::new(scrape_settings(&settings, &generations.load().plan), &hub)?;
    let asking = Box::new(Asking { scraper: scraper.clone(), tasks: tasks.clone() });
    let board_settings = board_settings(&settings, &generations.load().plan, discovery);
    let board = Board::open(board_settings, asking, &tasks, &hub).await?;
    let kv = Kv::new(board.snapshots(), tasks.clone(), &hub);
    let (forgetting, cutting) = (generations.clone(), kv.clone());
    board.on_gone(Box::new(move |id| {
        // In this order: nothing may come of an endpoint that is forgotten.
        cutting.gone(id);
        forgetting.load().pipeline.forget(id);
    }));
    board_cell.store(Some(board.clone()));
    kv.start(wanted_kv(&generations.load().plan), board.changes())?;
    kv_cell.store(Some(kv.clone()));

    let lag = settings.scrape_interval + settings.staleness + ENGINE_LAG;
    let flow_settings = generations.load().flow.clone();
    let flow = Control::new(flow_settings, &settings.pool_name, lag, board.snapshots(), &hub);
    page::show(&flow, &settings.pool_name, &hub);
    tasks.spawn("flow", flow.clone().run(board.changes()));
    flow_cell.store(Some(flow.clone()));

    if let Some(path) = settings.config_file.clone() {
        let (settings, registered) = (settings.clone(), hub.clone());
        let as_set = settings.clone();
        let reloader = Reloader {
            scraping: Box::new(move |plan| scrape_settings(&as_set, plan)),
            scraper,
            board: board.clone(),
            read: Arc::new(move |text, current| read_plan(text, &settings, &slots, &registered, Some(current))),
            hub: hub.clone(),
            sched_metrics,
            generations: generations.clone(),
            flow: flow.clone(),
            last_error,
            swapped: Box::new(move |plan| kv.change(wanted_kv(plan))),
        };
        reloader.follow(path, text, &tasks);
    }

    let cx = Arc::new(Context {
        snapshots: board.snapshots(),
        ledger: board.ledger().clone(),
        generations,
        flow: flow.clone(),
        calls: Arc::new(HttpCalls::new(tasks.clone())),
        metrics: RequestMetrics::new(&hub),
        stages: StageMetrics::of(&hub),
        streams: settings.stream_metrics.then(|| StreamMetrics::of(&hub)),
        options: settings.options.clone(),
        bodies: Arc::new(Bodies::new(settings.options.bodies)),
        decisions,
        warned_of_headers_only: AtomicBool::new(false),
    });
    let tls = match &settings.tls {
        None => None,
        Some(tls) => {
            let (config, certificate) = server_config(tls).context("--cert-path")?;
            if settings.reload_certificate {
                follow_certificate(tls, certificate, &tasks).await;
            }
            Some(config)
        }
    };

    let health = Health::serving().await;
    let (grpc, health_listener) = (listen(settings.grpc_port)?, listen(settings.health_port)?);
    log_port("ext_proc", &grpc);
    log_port("health", &health_listener);
    let (stop, stopped) = watch::channel(false);
    let until = |mut stopped: watch::Receiver<bool>| async move {
        // The sender outlives the servers, so waiting ends with the wish to stop.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let on_grpc = settings.health_on_grpc.then(|| health.clone());
    let service = ExternalProcessor::new(cx, settings.limits);
    let connections = Connections::default();
    let streams = serve_streams(grpc, tls, service, on_grpc, &connections, &tasks, until(stopped.clone()));
    let checks = serve_health(health_listener, health.clone(), &tasks, until(stopped));
    let servers = async { tokio::try_join!(streams, checks).map(drop) };
    tokio::pin!(servers);
    ready.send_replace(true);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "serving");

    tokio::select! {
        result = &mut servers => return result.context("a listener failed"),
        () = signals.first() => {}
    }
    tracing::info!(drain_seconds = settings.drain.as_secs_f64(), "draining");
    ready.send_replace(false);
    health.set_ready(false).await;
    tokio::select! {
        result = &mut servers => return result.context("a listener failed"),
        () = tokio::time::sleep(settings.drain) => {}
        () = connections.none_for(QUIET) => tracing::info!("nobody is connected, so the drain ends early"),
    }
    flow.close();
    stop.send_replace(true);
    // What is still open after the grace is cut when it is dropped.
    let _ = tokio::time::timeout(GRACE, servers).await;
    tasks.stop();
    tracing::info!("stopped");
    Ok(())
}

/// The text of the config: the file's if there is one.
fn config_text(settings: &Settings) -> anyhow::Result<String> {
    if settings.config_file.is_none() && settings.config_text.is_empty() {
        bail!("expected --config-file, --config-text or --endpoints-file, found none of them");
    }
    match &settings.config_file {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("failed to load config from a file '{}'", path.display())),
        None => Ok(settings.config_text.clone()),
    }
}

/// Reads and checks a config, and tells what a person should know of it. Instances that are as in `previous` are taken
/// over with their state.
///
/// # Errors
/// With every mistake.
fn read_plan(
    text: &str,
    settings: &Settings,
    slots: &Slots,
    hub: &MetricHub,
    previous: Option<&Plan>,
) -> Result<Plan, Vec<Mistake>> {
    let env = Environment {
        registry: registry(),
        slots,
        metrics: hub,
        staleness: settings.staleness,
        allow_experimental: settings.allow_experimental,
        previous,
    };
    let plan = config::load(text, &env)?;
    for notice in &plan.notices {
        let place = notice.place.map(|p| p.to_string());
        if notice.warning {
            tracing::warn!(place, "{}", notice.message);
        } else {
            tracing::info!(place, "{}", notice.message);
        }
    }
    Ok(plan)
}

fn first_plan(text: &str, settings: &Settings, slots: &Slots, hub: &MetricHub) -> anyhow::Result<Plan> {
    read_plan(text, settings, slots, hub, None).map_err(|mistakes| {
        for mistake in &mistakes {
            tracing::error!("config: {mistake}");
        }
        anyhow!("the config has {} mistakes", mistakes.len())
    })
}

fn scrape_settings(settings: &Settings, plan: &Plan) -> ScrapeSettings {
    let sources = plan.sources.iter().filter_map(|s| {
        let source = &plan.plugins[s.source];
        let extractors = s.extractors.iter().filter_map(|&at| {
            let p = &plan.plugins[at];
            Some((p.kind.reported.to_owned(), p.instance.extractor.clone()?))
        });
        Some(SourceSettings {
            source_type: source.kind.reported.to_owned(),
            spec: source.instance.source.clone()?,
            extractors: extractors.collect(),
        })
    });
    ScrapeSettings { sources: sources.collect(), interval: settings.scrape_interval.max(LEAST_SCRAPE_INTERVAL) }
}

fn board_settings(settings: &Settings, plan: &Plan, discovery: usize) -> board::Settings {
    let spec = plan.plugins[discovery].instance.discovery.clone();
    board::Settings {
        discovery: spec.expect("the plan is checked: its discovery is one"),
        staleness: settings.staleness,
        publish_every: PUBLISH_EVERY,
        gauges_every: settings.gauges_interval,
        pool_name: settings.pool_name.clone(),
    }
}

fn endpoints_page(board: Arc<ArcSwapOption<Board>>) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
    Arc::new(move || match board.load().as_ref() {
        Some(board) => serde_json::to_value(board.report()).unwrap_or_default(),
        None => serde_json::Value::Null,
    })
}

fn flow_page(flow: Arc<ArcSwapOption<Control>>) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
    Arc::new(move || {
        let report = flow.load().as_ref().and_then(|flow| flow.report(true));
        serde_json::to_value(report).unwrap_or_default()
    })
}

fn decisions_page(decisions: Arc<Decisions>) -> Arc<dyn Fn(usize) -> serde_json::Value + Send + Sync> {
    Arc::new(move |n| serde_json::to_value(decisions.last(n)).unwrap_or_default())
}

fn config_page(generations: Generations, last_error: LastError) -> Arc<dyn Fn() -> ConfigState + Send + Sync> {
    Arc::new(move || {
        let generation = generations.load();
        ConfigState {
            effective: generation.plan.effective.clone(),
            generation: generation.number,
            last_error: last_error.lock().clone(),
        }
    })
}

/// What plugins want to hear of KV caches.
fn wanted_kv(plan: &Plan) -> Vec<Wanted> {
    let wanted = |(plugin, subscription): (&str, _)| Wanted { plugin: plugin.to_owned(), subscription };
    plan.kv_subscriptions().map(wanted).collect()
}

fn truth_page(hub: &MetricHub) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
    let truth = Truth::of(hub);
    Arc::new(move || serde_json::to_value(truth.report()).unwrap_or_default())
}

fn kv_page(kv: Arc<ArcSwapOption<Kv>>) -> Arc<dyn Fn() -> serde_json::Value + Send + Sync> {
    Arc::new(move || match kv.load().as_ref() {
        Some(kv) => serde_json::to_value(kv.report()).unwrap_or_default(),
        None => serde_json::Value::Null,
    })
}

/// The states of the plugins of which `shown` is true.
fn plugins_page(
    generations: Generations,
    shown: fn(&Planned) -> bool,
) -> Arc<dyn Fn() -> Vec<PluginState> + Send + Sync> {
    Arc::new(move || {
        let plugins = &generations.load().plan.plugins;
        let state = |p: &Planned| PluginState {
            name: p.name.clone(),
            plugin_type: p.kind.reported,
            state: p.instance.state.clone(),
        };
        plugins.iter().filter(|p| shown(p)).map(state).collect()
    })
}

/// Takes up a changed certificate once both of its files are quiet; a bad pair changes nothing.
async fn follow_certificate(tls: &TlsSettings, certificate: Arc<Certificate>, tasks: &Tasks) {
    let Some(directory) = &tls.cert_path else { return };
    for name in ["tls.crt", "tls.key"] {
        let path = directory.join(name);
        let known = files::read(&path).await.unwrap_or_default();
        let mut contents = files::follow(&path, known, tasks);
        let certificate = certificate.clone();
        tasks.spawn("certificate", async move {
            while contents.changed().await.is_ok() {
                match certificate.reload() {
                    Ok(()) => tracing::info!(path = %path.display(), "certificate reloaded"),
                    Err(why) => tracing::error!(%why, "the changed certificate cannot be used, the old one stays"),
                }
            }
        });
    }
}

fn log_port(what: &str, listener: &TcpListener) {
    if let Ok(address) = listener.local_addr() {
        let address: SocketAddr = address;
        tracing::info!(port = address.port(), "listening for {what}");
    }
}

/// SIGTERM and SIGINT. The first one asks to end; a second one ends the process at once with exit code 1.
struct Signals {
    first: watch::Receiver<bool>,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let (came, first) = watch::channel(false);
        // Not in the set of tasks: it must outlive every one of them.
        tokio::spawn(async move {
            for seen in 0.. {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                if seen > 0 {
                    std::process::exit(1);
                }
                came.send_replace(true);
            }
        });
        Ok(Self { first })
    }

    async fn first(&mut self) {
        // The sender is in a task that never ends.
        let _ = self.first.wait_for(|came| *came).await;
    }
}

/// What a config becomes with every plugin there is, for tests of the rooms.
#[cfg(test)]
#[track_caller]
pub fn plan_of(config: &str, hub: &MetricHub) -> Plan {
    let environment = Environment {
        registry: registry(),
        slots: &Slots::default(),
        metrics: hub,
        staleness: Duration::from_secs(2),
        allow_experimental: true,
        previous: None,
    };
    config::load(config, &environment).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}
