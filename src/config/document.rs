//! The outer document of a config: what stands where, before any plugin is looked at.

use std::collections::BTreeMap;

use epp_plugin_api::{Node, Place, Value};

use super::entry::{PluginEntry, ProfileEntry, ProfileItem, SourceEntry};
use super::flow::{self, FlowSection};
use super::mistake::Sink;
use super::plan::{Gates, Notice};
use super::section::{Reference, Section, integer};

/// The API group and version that configs name.
pub const API_VERSION: &str = "llm-d.ai/v1alpha1";
/// The kind that configs name.
pub const KIND: &str = "EndpointPickerConfig";

/// What older configs name.
pub const DEPRECATED_API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";
const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "featureGates",
    "plugins",
    "schedulingProfiles",
    "dataLayer",
    "flowControl",
    "requestHandler",
    "objectives",
    "saturationDetector",
    "parser",
];
const DATA_KEYS: &[&str] = &[
    "injectDefaults",
    "sources",
    "discovery",
    "peerDiscovery",
    "crossReplicaSyncerPluginRef",
    "crossReplicaSyncInterval",
];

/// A config as written.
#[derive(Debug)]
pub struct Document {
    pub gates: Gates,
    pub plugins: Vec<PluginEntry>,
    pub profiles: Vec<ProfileEntry>,
    /// Where `schedulingProfiles` stands, if it does.
    pub profiles_place: Option<Place>,
    pub inject_defaults: bool,
    pub sources: Vec<SourceEntry>,
    pub discovery: Option<Reference>,
    pub syncer: Option<Reference>,
    pub flow: FlowSection,
    pub parsers: Vec<Reference>,
    pub saturation: Option<Reference>,
    pub objectives: BTreeMap<String, i32>,
    pub notices: Vec<Notice>,
}

/// Reads the document; what is wrong with it goes to the sink.
pub fn read(root: &Node, sink: &Sink) -> Option<Document> {
    if !matches!(root.value, Value::Map(_)) {
        let message = format!("expected a config, which is a map with keys like plugins, found {}", root.kind());
        sink.add(root.place, "", message);
        return None;
    }
    let document = Section::open(root, String::new(), KEYS, sink)?;
    let mut notices = Vec::new();
    check_version(&document, sink, &mut notices);
    let data = document.find("dataLayer").and_then(|f| Section::open(f.value, f.path, DATA_KEYS, sink));
    let data = data.as_ref();
    if let Some(data) = data {
        data.section("peerDiscovery", &["pluginRef"]);
        data.duration("crossReplicaSyncInterval");
    }
    let flow = flow::read(&document);
    let gates = read_gates(&document, sink);
    Some(Document {
        gates,
        plugins: read_plugins(&document, sink),
        profiles: read_profiles(&document, sink),
        profiles_place: document.place_of("schedulingProfiles"),
        inject_defaults: data.and_then(|d| d.boolean("injectDefaults")).unwrap_or(true),
        sources: data.map_or_else(Vec::new, read_sources),
        discovery: data.and_then(|d| d.section("discovery", &["pluginRef"])).and_then(|s| s.required_reference()),
        syncer: data.and_then(|d| d.reference("crossReplicaSyncerPluginRef")),
        parsers: read_parsers(&document, &mut notices),
        saturation: read_saturation(&document, &flow, &mut notices),
        flow,
        objectives: read_objectives(&document, sink),
        notices,
    })
}

fn deprecated(place: impl Into<Option<Place>>, message: String) -> Notice {
    Notice { warning: false, place: place.into(), message }
}

fn check_version(document: &Section<'_>, sink: &Sink, notices: &mut Vec<Notice>) {
    if let Some(found) = document.string("apiVersion").filter(|f| !f.value.is_empty()) {
        match found.value.as_str() {
            API_VERSION => {}
            DEPRECATED_API_VERSION => notices.push(deprecated(
                found.place,
                format!("apiVersion {DEPRECATED_API_VERSION} is deprecated, use {API_VERSION}"),
            )),
            other => sink.add(found.place, found.path, format!("expected {API_VERSION}, found {other:?}")),
        }
    }
    if let Some(found) = document.string("kind").filter(|f| !f.value.is_empty() && f.value != KIND) {
        sink.add(found.place, found.path, format!("expected {KIND}, found {:?}", found.value));
    }
}

fn read_gates(document: &Section<'_>, sink: &Sink) -> Gates {
    let mut gates = Gates::default();
    for item in document.list("featureGates") {
        let Value::String(text) = &item.value.value else {
            sink.add(item.place, item.path, format!("expected a string, found {}", item.value.kind()));
            continue;
        };
        let mut parts = text.split('=');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().map(|v| v.trim().to_lowercase());
        let on = match value.as_deref() {
            None | Some("1" | "t" | "true") => true,
            Some("0" | "f" | "false") => false,
            Some(other) => {
                let message = format!("feature gate {name:?}: expected true or false, found {other:?}");
                sink.add(item.place, item.path, message);
                continue;
            }
        };
        match name {
            "flowControl" => gates.flow_control = on,
            "haPopulateNonLeaderDatastore" => gates.ha_populate_non_leader_datastore = on,
            _ => {
                let message =
                    format!("unknown feature gate {name:?}, expected flowControl or haPopulateNonLeaderDatastore");
                sink.add(item.place, item.path, message);
            }
        }
    }
    gates
}

fn read_plugins(document: &Section<'_>, sink: &Sink) -> Vec<PluginEntry> {
    let entry = |section: Section<'_>| {
        let name = section.string("name").map(|f| f.value).filter(|n| !n.is_empty());
        let kind = section.string("type").filter(|f| !f.value.is_empty());
        if kind.is_none() {
            let message = match &name {
                Some(name) => format!("plugin {name:?} is missing a type"),
                None => "expected the type of the plugin, found nothing".to_owned(),
            };
            let wrong_type = section.find("type").is_some_and(|f| !matches!(f.value.value, Value::String(_)));
            if !wrong_type {
                sink.add(section.place, section.step("type"), message);
            }
        }
        PluginEntry {
            name: name.or_else(|| kind.as_ref().map(|k| k.value.clone())).unwrap_or_default(),
            kind,
            parameters: section.find("parameters").map(|f| f.value.clone()),
            place: section.place,
            path: section.path,
        }
    };
    document.sections("plugins", &["name", "type", "parameters"]).into_iter().map(entry).collect()
}

fn read_profiles(document: &Section<'_>, sink: &Sink) -> Vec<ProfileEntry> {
    let item = |section: Section<'_>| {
        let weight = section.number("weight");
        section.required_reference().map(|plugin| ProfileItem { plugin, weight })
    };
    let mut names: Vec<String> = Vec::new();
    let mut profiles = Vec::new();
    for section in document.sections("schedulingProfiles", &["name", "plugins"]) {
        let name = section.string("name").map(|f| f.value).unwrap_or_default();
        if name.is_empty() {
            sink.add(section.place, section.step("name"), "expected the name of the profile, found nothing");
        } else if names.contains(&name) {
            sink.add(section.place, section.step("name"), format!("duplicate profile name {name:?}"));
        }
        names.push(name.clone());
        let plugins = section.sections("plugins", &["pluginRef", "weight"]).into_iter().filter_map(item).collect();
        profiles.push(ProfileEntry { place: Some(section.place), path: section.path, name, plugins });
    }
    profiles
}

fn read_sources(data: &Section<'_>) -> Vec<SourceEntry> {
    let entry = |section: Section<'_>| {
        let extractors = section.sections("extractors", &["pluginRef"]);
        let extractors = extractors.iter().filter_map(Section::required_reference).collect();
        section.required_reference().map(|plugin| SourceEntry { plugin, extractors })
    };
    data.sections("sources", &["pluginRef", "extractors"]).into_iter().filter_map(entry).collect()
}

fn read_parsers(document: &Section<'_>, notices: &mut Vec<Notice>) -> Vec<Reference> {
    let handler = document.section("requestHandler", &["parsers"]);
    let listed = handler.map_or_else(Vec::new, |h| h.sections("parsers", &["pluginRef"]));
    let old = document.section("parser", &["pluginRef"]);
    if let Some(old) = &old {
        notices.push(deprecated(old.place, "key parser is deprecated, use requestHandler.parsers".to_owned()));
    }
    match (listed.is_empty(), old) {
        (true, Some(old)) => old.required_reference().into_iter().collect(),
        _ => listed.iter().filter_map(Section::required_reference).collect(),
    }
}

fn read_saturation(document: &Section<'_>, flow: &FlowSection, notices: &mut Vec<Notice>) -> Option<Reference> {
    let old = document.section("saturationDetector", &["pluginRef"]);
    if let Some(old) = &old {
        let message = "key saturationDetector is deprecated, use flowControl.saturationDetector".to_owned();
        notices.push(deprecated(old.place, message));
    }
    match old {
        Some(old) if !flow.has_saturation => old.reference("pluginRef"),
        _ => flow.saturation.clone(),
    }
}

fn read_objectives(document: &Section<'_>, sink: &Sink) -> BTreeMap<String, i32> {
    let Some(found) = document.find("objectives") else { return BTreeMap::new() };
    let Value::Map(entries) = &found.value.value else {
        let message = format!("expected a map from names to priorities, found {}", found.value.kind());
        sink.add(found.place, found.path, message);
        return BTreeMap::new();
    };
    let mut objectives = BTreeMap::new();
    for (name, _, node) in entries {
        match integer(&node.value) {
            Some(priority) => {
                objectives.insert(name.clone(), priority);
            }
            None => {
                let message = format!("expected a priority, an integer of at most 32 bits, found {}", node.kind());
                sink.add(node.place, format!("{}.{name}", found.path), message);
            }
        }
    }
    objectives
}
