//! What a config gets that does not say otherwise.

use epp_plugin_api::Kind;

use super::document::Document;
use super::entry::{ProfileEntry, ProfileItem, SourceEntry};
use super::flow::{FAIRNESS, ORDERING, USAGE_LIMIT};
use super::instances::Instances;
use super::mistake::Sink;
use super::plan::Origin;
use super::section::{Found, Reference};

/// The config of an empty text.
pub const BUILT_IN: &str = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: metrics-data-source
- type: core-metrics-extractor
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors:
    - pluginRef: core-metrics-extractor
";

const HANDLER: &str = "single-profile-handler";
const PICKER: &str = "max-score-picker";
const PARSERS: &[&str] = &["openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"];
const SATURATION: &str = "utilization-detector";
const SOURCE: &str = "metrics-data-source";
const EXTRACTOR: &str = "core-metrics-extractor";

/// Adds the defaults to the document and makes their instances, in this order: profile, handler, picker, flow-control
/// policies, parsers, saturation detector, data source.
pub fn apply(document: &mut Document, instances: &mut Instances<'_>, sink: &Sink) {
    add_profile(document, instances);
    if document.profiles.len() == 1 && instances.first(Kind::ProfileHandler).is_none() && !instances.any_unknown() {
        register(HANDLER, instances, sink);
    }
    add_pickers(document, instances, sink);
    for policy in [ORDERING, FAIRNESS, USAGE_LIMIT] {
        register_if_known(policy, instances);
    }
    add_parsers(document, instances, sink);
    if document.saturation.as_ref().is_none_or(|reference| reference.value == SATURATION) {
        register(SATURATION, instances, sink);
        document.saturation.get_or_insert_with(|| added(SATURATION, "flowControl.saturationDetector.pluginRef"));
    }
    if document.inject_defaults && document.sources.iter().all(|source| source.plugin.value != SOURCE) {
        register(SOURCE, instances, sink);
        register(EXTRACTOR, instances, sink);
        document.sources.push(SourceEntry {
            plugin: added(SOURCE, "dataLayer.sources"),
            extractors: vec![added(EXTRACTOR, "dataLayer.sources")],
        });
    }
}

/// A reference that the file does not hold.
fn added(name: &str, path: &str) -> Reference {
    Found { value: name.to_owned(), place: None, path: path.to_owned() }
}

/// Makes an instance of the type unless there is one of this name.
fn register(name: &'static str, instances: &mut Instances<'_>, sink: &Sink) {
    if !register_if_known(name, instances) {
        sink.add(None, "", format!("the default plugin {name:?} is of an unknown type"));
    }
}

fn register_if_known(name: &'static str, instances: &mut Instances<'_>) -> bool {
    if instances.find(name).is_some() {
        return true;
    }
    let kind = instances.plugin_type(name);
    if let Some(kind) = kind {
        instances.add(kind, Origin::Default);
    }
    kind.is_some()
}

/// Without a profile there is one of every filter, scorer and picker, in the order of the file.
fn add_profile(document: &mut Document, instances: &Instances<'_>) {
    if !document.profiles.is_empty() {
        return;
    }
    let path = "schedulingProfiles[0]";
    let chosen =
        instances.all().iter().filter(|slot| [Kind::Filter, Kind::Scorer, Kind::Picker].iter().any(|k| slot.is(*k)));
    let item = |name: &str| ProfileItem { plugin: added(name, path), weight: None };
    document.profiles.push(ProfileEntry {
        place: document.profiles_place,
        path: path.to_owned(),
        name: "default".to_owned(),
        plugins: chosen.map(|slot| item(&slot.name)).collect(),
    });
}

/// A profile without a picker gets the first one that is configured, or else the default one.
fn add_pickers(document: &mut Document, instances: &mut Instances<'_>, sink: &Sink) {
    let picker = match instances.first(Kind::Picker) {
        Some(at) => instances.at(at).name.clone(),
        None => {
            register(PICKER, instances, sink);
            PICKER.to_owned()
        }
    };
    for profile in &mut document.profiles {
        let picks =
            |item: &ProfileItem| instances.find(&item.plugin.value).is_some_and(|at| instances.at(at).is(Kind::Picker));
        if !profile.plugins.iter().any(picks) {
            let path = format!("{}.plugins", profile.path);
            profile.plugins.push(ProfileItem { plugin: added(&picker, &path), weight: None });
        }
    }
}

/// Without parsers there are four; those that are listed but are no instance are types.
fn add_parsers(document: &mut Document, instances: &mut Instances<'_>, sink: &Sink) {
    if document.parsers.is_empty() {
        for name in PARSERS.iter().filter(|name| register_if_known(name, instances)) {
            document.parsers.push(added(name, "requestHandler.parsers"));
        }
        if document.parsers.is_empty() {
            sink.add(None, "requestHandler.parsers", "expected at least one parser, found none");
        }
    }
    for parser in &document.parsers {
        if instances.find(&parser.value).is_none()
            && let Some(kind) = instances.plugin_type(&parser.value)
        {
            instances.add(kind, Origin::Default);
        }
    }
}
