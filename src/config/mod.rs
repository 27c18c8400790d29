//! From the text of a config to a checked plan; with discovery, the only part that knows YAML.
//!
//! A config is read in steps that go on after a mistake where that makes sense, so that one run names all of them:
//! text to nodes, nodes to the document, plugins built, defaults added, missing producers made, references resolved.

mod data;
mod defaults;
mod document;
pub mod duration;
mod effective;
mod entry;
mod flow;
mod instances;
mod mistake;
pub mod near;
pub mod own;
pub mod plan;
mod profiles;
pub mod quantity;
pub mod schema;
mod section;

use std::time::Duration;

use epp_plugin_api::{Extraction, Kind, MetricHub, Node, PluginType, Slots, Stability, Value};

use self::document::Document;
use self::entry::SourceEntry;
use self::instances::Instances;
pub use self::mistake::Mistake;
use self::mistake::Sink;
use self::plan::{NOTIFICATION_SOURCE, Notice, Origin, Plan, SourcePlan};
use self::section::Reference;
use crate::yaml::{self, Duplicates};

/// What a config is checked against, and what its plugins are built with.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    pub registry: &'a [&'static PluginType],
    pub slots: &'a Slots,
    pub metrics: &'a MetricHub,
    /// How long what an engine said counts.
    pub staleness: Duration,
    pub allow_experimental: bool,
    /// The plan that is in force: its instances that have not changed are taken over with their state.
    pub previous: Option<&'a Plan>,
}

/// Reads a config and builds its plugins. An empty text stands for the built-in default.
///
/// # Errors
/// With every mistake, in the order of the file.
pub fn load(text: &str, env: &Environment<'_>) -> Result<Plan, Vec<Mistake>> {
    let sink = Sink::default();
    let plan = read(text, &sink).and_then(|root| check(&root, env, &sink));
    match plan {
        Some(plan) if sink.is_empty() => Ok(plan),
        _ => Err(sink.into_mistakes()),
    }
}

fn read(text: &str, sink: &Sink) -> Option<Node> {
    let mut root = yaml::parse(text, Duplicates::Refuse);
    if let Err(errors) = &root {
        for error in errors {
            sink.add(error.place, "", &error.message);
        }
        // If repeated keys are all there is, the rest can still be looked at.
        root = yaml::parse(text, Duplicates::LastWins);
    }
    match root.ok()? {
        root if root.value == Value::Null => yaml::parse(defaults::BUILT_IN, Duplicates::Refuse).ok(),
        root => Some(root),
    }
}

fn check(root: &Node, env: &Environment<'_>, sink: &Sink) -> Option<Plan> {
    let mut document = document::read(root, sink)?;
    let mut notices = std::mem::take(&mut document.notices);
    let mut instances = Instances::build(&document.plugins, env, sink, &mut notices);
    defaults::apply(&mut document, &mut instances, sink);
    let profiles = profiles::resolve(&document, &instances, sink);
    let discovery = document.discovery.as_ref().map(|reference| instances.of_role(reference, &[Kind::Discovery]));
    let sources = sources(&document, &instances, sink);
    let parsers: Vec<Option<usize>> =
        document.parsers.iter().map(|parser| instances.of_role(parser, &[Kind::Parser])).collect();
    let saturation = document.saturation.as_ref();
    let saturation = saturation.and_then(|reference| instances.of_role(reference, &[Kind::SaturationDetector]));
    let flow = flow(&document, &instances, sink, &mut notices);
    data::create_missing(&mut instances, sink, &mut notices);
    let handler = profiles::handler(&document, &instances, sink);
    let producers = data::order(&instances, sink);
    check_stability(&instances, env, sink);
    if !sink.is_empty() {
        return None;
    }
    let mut plan = Plan {
        plugins: instances.into_planned()?,
        profiles,
        handler: handler?,
        producers,
        parsers: parsers.into_iter().collect::<Option<_>>()?,
        saturation: saturation?,
        gates: document.gates,
        flow,
        objectives: std::mem::take(&mut document.objectives),
        discovery: discovery.flatten(),
        sources,
        notices,
        recorded: Vec::new(),
        effective: String::new(),
    };
    let written = plan.plugins.iter().flat_map(|plugin| &plugin.keys.writes);
    plan.recorded = written.filter_map(|key| env.slots.recorded(key)).collect();
    check_kv(&mut plan);
    plan.notices.sort_by_key(|notice| (notice.place.is_none(), notice.place));
    plan.effective = effective::write(&plan, &document);
    Some(plan)
}

fn sources(document: &Document, instances: &Instances<'_>, sink: &Sink) -> Vec<SourcePlan> {
    if document.sources.is_empty() {
        sink.add(None, "dataLayer.sources", "expected a data source such as metrics-data-source, found none");
    }
    if let Some(syncer) = &document.syncer
        && let Some(at) = instances.named(syncer)
    {
        let message = format!("expected a cross-replica syncer, found {}", instances.at(at).label());
        sink.add(syncer.place, &syncer.path, message);
    }
    let mut plans = Vec::new();
    for source in &document.sources {
        let extractors = source.extractors.iter().filter_map(|extractor| reader(extractor, instances)).collect();
        if let Some(at) = instances.of_role(&source.plugin, &[Kind::Source]) {
            if plans.iter().any(|plan: &SourcePlan| plan.source == at) {
                let message = format!("expected each data source once, found {} again", instances.at(at).label());
                sink.add(source.plugin.place, &source.plugin.path, message);
            }
            check_extractors(source, at, instances, sink);
            plans.push(SourcePlan { source: at, extractors });
        }
    }
    plans
}

/// The place of what reads a source: an extractor, a producer, or whoever wants to hear of KV caches.
fn reader(reference: &Reference, instances: &Instances<'_>) -> Option<usize> {
    let found = instances.find(&reference.value);
    let hears = |at: &usize| instances.at(*at).instance().is_some_and(|instance| instance.kv.is_some());
    found.filter(hears).or_else(|| instances.of_role(reference, &[Kind::Extractor, Kind::Producer]))
}

/// Warns of plugins that are to connect to endpoints for KV events and are told of none.
fn check_kv(plan: &mut Plan) {
    for (at, plugin) in plan.plugins.iter().enumerate() {
        let connects = plugin.instance.kv.as_ref().is_some_and(|kv| kv.connect.is_some());
        if !connects || plan.hears_of_endpoints(at) {
            continue;
        }
        let place = match plugin.origin {
            Origin::File(place) => Some(place),
            Origin::Default | Origin::Created { .. } => None,
        };
        let message = format!(
            "plugin {name:?} hears no KV events: the config does not connect it to endpoints; add \
             `- type: {NOTIFICATION_SOURCE}` to plugins, and to dataLayer \
             `sources: [{{pluginRef: {NOTIFICATION_SOURCE}, extractors: [{{pluginRef: {name}}}]}}]`",
            name = plugin.name
        );
        plan.notices.push(Notice { warning: true, place, message });
    }
}

/// Each type of extractor may read a source once, and must be able to read what the source gives.
fn check_extractors(source: &SourceEntry, at: usize, instances: &Instances<'_>, sink: &Sink) {
    let mut types = Vec::new();
    for reference in &source.extractors {
        let Some(extractor) = instances.find(&reference.value).map(|at| instances.at(at)) else { continue };
        let refuse = |message: String| sink.add(reference.place, &reference.path, message);
        if let Some(kind) = extractor.kind {
            if types.contains(&kind.name) {
                refuse(format!("expected one extractor of a type, found another {}", extractor.label()));
            }
            types.push(kind.name);
        }
        let (Some(reader), Some(given)) = (extractor.instance(), instances.at(at).instance()) else { continue };
        let given = given.source.as_ref().map(|source| source.gives);
        if reader.extractor.as_ref().map(Extraction::reads) != given {
            let source = instances.at(at).label();
            refuse(format!("expected an extractor for what {source} gives, found {}", extractor.label()));
        }
    }
}

fn flow(
    document: &Document,
    instances: &Instances<'_>,
    sink: &Sink,
    notices: &mut Vec<Notice>,
) -> Option<plan::FlowPlan> {
    if document.gates.flow_control {
        document.flow.check(sink);
        return document.flow.resolve(instances);
    }
    if document.flow.has_settings {
        let message = "the settings of flowControl have no effect: the feature gate flowControl is off".to_owned();
        notices.push(Notice { warning: true, place: document.flow.place, message });
    }
    None
}

fn check_stability(instances: &Instances<'_>, env: &Environment<'_>, sink: &Sink) {
    if env.allow_experimental {
        return;
    }
    for slot in instances.all() {
        if let Some(kind) = slot.kind.filter(|kind| kind.stability == Stability::Alpha) {
            let message = format!(
                "plugin {:?} (type {}) has alpha stability, but --allow-experimental-plugins is not set",
                slot.name, kind.name
            );
            sink.add(slot.place(), &slot.path, message);
        }
    }
}

#[cfg(test)]
pub mod tests;
