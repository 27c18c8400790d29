//! Pages for people who want to know why: the endpoints, the config as it runs, and what plugins tell of themselves.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Shared, take_turn};
use crate::telemetry::utc::Utc;

/// The longest state of one plugin that is shown, in bytes.
const LONGEST_STATE: usize = 1 << 20;

/// The config as it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigState {
    /// With every default and every plugin that was added, as YAML.
    pub effective: String,
    /// Which generation of the process runs it.
    pub generation: u64,
    /// Why the last reload changed nothing; `None` if it went well.
    pub last_error: Option<String>,
}

/// A plugin instance and how to ask it for its state.
#[derive(Clone)]
pub struct PluginState {
    pub name: String,
    pub plugin_type: &'static str,
    /// Gives the state as JSON; `None` if the plugin has none to tell.
    pub state: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

/// How many decisions are shown.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Last {
    #[serde(default = "ten")]
    last: usize,
}

fn ten() -> usize {
    10
}

/// `?last=N` of them, newest first; 10 unless it says.
pub(super) async fn decisions(
    State(shared): State<Arc<Shared>>,
    Query(Last { last }): Query<Last>,
) -> Result<Response, Response> {
    Ok(Json(take_turn(shared, move |sources| (sources.decisions)(last)).await?).into_response())
}

pub(super) async fn endpoints(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    Ok(Json(take_turn(shared, |sources| (sources.endpoints)()).await?).into_response())
}

pub(super) async fn flow(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    Ok(Json(take_turn(shared, |sources| (sources.flow)()).await?).into_response())
}

pub(super) async fn config(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    let config = take_turn(shared, |sources| (sources.config)()).await?;
    Ok(([(header::CONTENT_TYPE, "text/yaml; charset=utf-8")], config.page()).into_response())
}

impl ConfigState {
    /// The YAML, with the rest as comments above it.
    fn page(&self) -> String {
        let mut page = format!("# generation: {}\n", self.generation);
        if let Some(error) = &self.last_error {
            page.push_str("# last reload failed:\n");
            // A lone carriage return ends a comment, too.
            for line in error.split(['\n', '\r']) {
                writeln!(page, "#   {line}").expect("a string takes all text");
            }
        }
        page + &self.effective
    }
}

#[derive(Serialize)]
struct PluginsPage {
    timestamp: String,
    plugins: BTreeMap<String, PluginEntry>,
}

#[derive(Serialize)]
struct PluginEntry {
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Box<RawValue>>,
    /// Why there is no state.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) async fn plugins(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    let page = take_turn(shared, |sources| {
        let plugins = (sources.plugins)().into_iter().map(|p| (p.name.clone(), PluginEntry::of(p))).collect();
        PluginsPage { timestamp: Utc::now().to_string(), plugins }
    });
    Ok(Json(page.await?).into_response())
}

impl PluginEntry {
    fn of(plugin: PluginState) -> Self {
        let (state, message) = match told(&plugin) {
            Ok(state) => (Some(state), None),
            Err(message) => (None, Some(message)),
        };
        Self { name: plugin.name, r#type: plugin.plugin_type, state, message }
    }
}

fn told(plugin: &PluginState) -> Result<Box<RawValue>, String> {
    let state = plugin.state.as_ref().ok_or("plugin does not support state collection")?();
    match state.len() {
        0 => Ok(RawValue::NULL.to_owned()),
        1..=LONGEST_STATE => RawValue::from_string(state).map_err(|_| "plugin returned invalid JSON state".into()),
        len => Err(format!("plugin state is {len} bytes long, more than the {LONGEST_STATE} that are shown")),
    }
}

/// What engines publish of their KV caches: who is heard, and what plugins made of it.
#[derive(Serialize)]
struct KvPage {
    subscribers: serde_json::Value,
    /// The state of each plugin that hears it, or why there is none.
    producers: BTreeMap<String, Box<RawValue>>,
    /// What engines reported as cached, beside what was believed.
    truth: serde_json::Value,
}

pub(super) async fn kv(State(shared): State<Arc<Shared>>) -> Result<Response, Response> {
    let page = take_turn(shared, |sources| {
        let state = |plugin: PluginState| {
            let why = |message: String| serde_json::value::to_raw_value(&message).unwrap_or_default();
            let state = told(&plugin).unwrap_or_else(why);
            (plugin.name, state)
        };
        KvPage {
            subscribers: (sources.kv)(),
            producers: (sources.kv_producers)().into_iter().map(state).collect(),
            truth: (sources.truth)(),
        }
    });
    Ok(Json(page.await?).into_response())
}

/// Refuses what would be more than reading.
pub(super) async fn only_get() -> impl IntoResponse {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")], "only GET is allowed\n")
}

pub(super) async fn pprof() -> &'static str {
    "The process collects no profiles of itself: the allocator keeps no heap profile, and there is no sampler.\n\
     Use perf on this process for time, and /metrics for memory, time and open files:\n\
     process_resident_memory_bytes, process_cpu_seconds_total, process_open_fds.\n"
}
