//! Everything that is told about one plugin type.

use std::time::Duration;

use epp_plugin_api::{BuildContext, DataKey, Instance, MetricHub, Node, Place, PluginType, Slots, Value};
use serde_json::Value as Json;

use super::parameter::{self, Parameter};
use crate::config::schema;

/// What is told about one plugin type.
#[derive(Debug)]
pub struct Page {
    pub kind: &'static PluginType,
    pub parameters: Vec<Parameter>,
    /// The successor, if the parameters are the same.
    pub same_as: Option<&'static str>,
    /// `None`: that depends on the parameters.
    pub data: Option<Data>,
    /// An entry of `plugins`, as YAML.
    pub example: String,
}

/// The data that an instance deals in.
#[derive(Debug)]
pub struct Data {
    pub reads: Vec<DataKey>,
    /// Read if somebody writes it.
    pub optional_reads: Vec<DataKey>,
    pub writes: Vec<DataKey>,
}

impl Page {
    /// Reads the type's schema and builds an instance on trial.
    pub fn of(kind: &'static PluginType, registry: &[&'static PluginType]) -> Self {
        let schema = schema::of_parameters(kind).unwrap_or_default();
        let parameters = sample(&schema);
        let same = |new: &str| {
            registry.iter().find(|k| k.name == new).is_some_and(|k| schema::of_parameters(k) == Some(schema.clone()))
        };
        Self {
            kind,
            parameters: parameter::of(&schema),
            same_as: kind.replaced_by.filter(|new| same(new)),
            data: data(kind, &parameters, registry, &MetricHub::default()),
            example: example(kind, &parameters),
        }
    }
}

/// The parameters of the example: each that has a value to show, an example's rather than the default.
fn sample(schema: &Json) -> Vec<(String, Json)> {
    let properties = schema.get("properties").and_then(Json::as_object);
    let value = |schema: &Json| {
        let example = schema.get("examples").and_then(|examples| examples.get(0));
        example.or_else(|| schema.get("default")).filter(|value| parameter::tells(value)).cloned()
    };
    properties.into_iter().flatten().filter_map(|(name, schema)| Some((name.clone(), value(schema)?))).collect()
}

fn example(kind: &PluginType, parameters: &[(String, Json)]) -> String {
    let mut text = format!("- type: {}\n", kind.name);
    if !parameters.is_empty() {
        text.push_str("  parameters:\n");
    }
    for (name, value) in parameters {
        text.push_str(&format!("    {name}: {}\n", parameter::inline(value)));
    }
    text
}

/// Builds an instance with the parameters of the example, on this hub.
pub fn try_example(kind: &PluginType, registry: &[&'static PluginType], metrics: &MetricHub) {
    let parameters = sample(&schema::of_parameters(kind).unwrap_or_default());
    data(kind, &parameters, registry, metrics);
}

/// Builds an instance on trial; `None` if it is refused.
fn data(
    kind: &PluginType,
    parameters: &[(String, Json)],
    registry: &[&'static PluginType],
    metrics: &MetricHub,
) -> Option<Data> {
    let slots = Slots::default();
    let entries = parameters.iter().map(|(name, value)| (name.clone(), PLACE, node(value))).collect();
    let parameters = Node { place: PLACE, value: Value::Map(entries) };
    // Whoever refers to another instance gets one of that type.
    let others = |name: &str| -> Option<Instance> {
        let other = registry.iter().find(|other| other.name == name)?;
        (other.build)(&mut BuildContext::new(other.name, None, &slots, metrics, STALENESS)).ok()
    };
    let mut cx = BuildContext::new(kind.name, Some(&parameters), &slots, metrics, STALENESS).with_others(&others);
    (kind.build)(&mut cx).ok()?;
    let (reads, optional_reads, writes) = cx.into_keys();
    Some(Data { reads, optional_reads, writes })
}

const STALENESS: Duration = Duration::from_secs(2);
const PLACE: Place = Place { line: 1, column: 1 };

fn node(json: &Json) -> Node {
    let value = match json {
        Json::Null => Value::Null,
        Json::Bool(v) => Value::Bool(*v),
        Json::Number(v) => v.as_i64().map_or_else(|| Value::Float(v.as_f64().unwrap_or(f64::MAX)), Value::Int),
        Json::String(v) => Value::String(v.clone()),
        Json::Array(items) => Value::List(items.iter().map(node).collect()),
        Json::Object(entries) => Value::Map(entries.iter().map(|(k, v)| (k.clone(), PLACE, node(v))).collect()),
    };
    Node { place: PLACE, value }
}
