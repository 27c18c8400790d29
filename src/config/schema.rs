//! The JSON Schema of a config: what an editor completes and checks a file with.
//!
//! Never stricter than the picker, with one exception: the keys of parameters must stand in their usual case.

use epp_plugin_api::PluginType;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::document::{API_VERSION, DEPRECATED_API_VERSION, KIND};

/// The schema of a config whose plugins are of these types.
pub fn of(registry: &[&PluginType]) -> Value {
    let mut root = section("Config of the endpoint picker.", &outer(registry));
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!(KIND);
    root
}

/// The schema of a type's parameters, without references; `None` if it takes none, or any.
pub fn of_parameters(kind: &PluginType) -> Option<Value> {
    let mut generator = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true).into_generator();
    kind.schema.map(|schema| schema(&mut generator).to_value())
}

fn outer(registry: &[&PluginType]) -> [(&'static str, Value); 11] {
    [
        (
            "apiVersion",
            json!({
                "description": format!("The version of the format. Default {API_VERSION}."),
                "enum": [API_VERSION, DEPRECATED_API_VERSION, "", null],
                "default": API_VERSION,
            }),
        ),
        (
            "kind",
            json!({
                "description": "The kind of the file.", "enum": [KIND, "", null], "default": KIND,
            }),
        ),
        (
            "featureGates",
            list(
                "Parts that are switched on, or off with =false.",
                json!({
                    "type": "string",
                    "pattern": "^(flowControl|haPopulateNonLeaderDatastore)(=.*)?$",
                    "examples": ["flowControl", "haPopulateNonLeaderDatastore"],
                }),
            ),
        ),
        (
            "plugins",
            list("The plugin instances, in any order. What is missing is added with its defaults.", plugin(registry)),
        ),
        (
            "schedulingProfiles",
            list(
                "Which plugins choose an endpoint. Default: one profile of every filter, scorer and picker there is.",
                required(
                    section(
                        "A profile.",
                        &[
                            ("name", required_text("The profile's name, for its handler, metrics and logs.")),
                            (
                                "plugins",
                                list(
                                    "Filters, in this order; scorers, whose scores are added up; one picker, by default the first that is configured.",
                                    referring(&[(
                                        "weight",
                                        json!({
                                            "description": "How much a scorer counts against the others. Has no effect on the others' kinds.",
                                            "type": ["number", "null"], "default": 1,
                                        }),
                                    )]),
                                ),
                            ),
                        ],
                    ),
                    "name",
                ),
            ),
        ),
        ("dataLayer", section("Where endpoints and what is known of them come from.", &data())),
        ("flowControl", section("How requests wait, behind the feature gate of the same name.", &flow())),
        (
            "requestHandler",
            section(
                "How requests are read.",
                &[(
                    "parsers",
                    list(
                        "Parsers; the first that reads a path counts. An entry may be a plugin type, too. Default: openai-parser, \
                 anthropic-parser, vllmhttp-parser and passthrough-parser.",
                        referring(&[]),
                    ),
                )],
            ),
        ),
        (
            "objectives",
            json!({
                "description": "The priority of each objective that a request may name. Higher goes first; less than 0 may be shed.",
                "type": ["object", "null"],
                "additionalProperties": {"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX},
            }),
        ),
        ("saturationDetector", deprecated(reference_section("The old place of flowControl.saturationDetector."))),
        ("parser", deprecated(required(reference_section("The old place of requestHandler.parsers."), "pluginRef"))),
    ]
}

fn data() -> [(&'static str, Value); 6] {
    [
        (
            "injectDefaults",
            json!({
                "description": "Whether metrics-data-source with core-metrics-extractor is added if it is not listed.",
                "type": ["boolean", "null"], "default": true,
            }),
        ),
        (
            "sources",
            list(
                "What is asked of engines.",
                referring(&[("extractors", list("What reads the pages of the source.", referring(&[])))]),
            ),
        ),
        (
            "discovery",
            required(
                reference_section("The plugin that says where the engines are, such as file-discovery."),
                "pluginRef",
            ),
        ),
        ("peerDiscovery", reference_section("Accepted; there is nothing to share between replicas.")),
        ("crossReplicaSyncerPluginRef", text("Accepted when empty; there is nothing to share between replicas.")),
        ("crossReplicaSyncInterval", duration("Accepted; there is nothing to share between replicas.")),
    ]
}

fn flow() -> [(&'static str, Value); 10] {
    let policies = |priority: Option<Value>| {
        let mut keys = vec![
            ("maxBytes", quantity("How many bytes of requests may wait; 0 counts as the default. Default 1G.")),
            ("maxRequests", quantity("How many requests may wait; 0 counts as the default. Default 5000.")),
            (
                "fairnessPolicyRef",
                text("The policy between flows of the band. Default: global-strict-fairness-policy."),
            ),
            ("orderingPolicyRef", text("The policy within a flow. Default: fcfs-ordering-policy.")),
        ];
        keys.push((
            "priority",
            priority.unwrap_or_else(|| json!({"description": "Has no effect here.", "type": ["integer", "null"]})),
        ));
        keys
    };
    let priority = json!({
        "description": "The priority of the band's requests. Once a config.", "type": ["integer", "null"],
        "minimum": i32::MIN, "maximum": i32::MAX, "default": 0,
    });
    [
        ("maxBytes", quantity("How many bytes of requests may wait over all bands. 0, the default: no limit.")),
        ("maxRequests", quantity("How many requests may wait over all bands. 0, the default: no limit.")),
        ("defaultRequestTTL", duration("How long a request may wait. 0: for ever. Default 1m.")),
        (
            "noEndpointRequestTTL",
            duration("How long it may wait while there is no endpoint. Default: defaultRequestTTL."),
        ),
        ("defaultPriorityBand", section("The model for priorities without a band of their own.", &policies(None))),
        (
            "defaultNegativePriorityBand",
            section("The same for priorities below 0. Default: defaultPriorityBand.", &policies(None)),
        ),
        ("priorityBands", list("A band of requests for each priority.", section("A band.", &policies(Some(priority))))),
        (
            "usageLimitPolicyPluginRef",
            text("The policy that says how much of the pool a priority may use. Default: static-usage-limit-policy."),
        ),
        (
            "saturationDetector",
            reference_section("The plugin that says how full the pool is. Default: utilization-detector."),
        ),
        (
            "enableEviction",
            json!({
                "description": "Whether requests under way may be ended for others of higher priority.",
                "type": ["boolean", "null"], "default": false,
            }),
        ),
    ]
}

/// An entry of `plugins`: what `parameters` may hold follows from `type`.
fn plugin(registry: &[&PluginType]) -> Value {
    let types = registry.iter().map(|kind| {
        let mut one = json!({"const": kind.name, "description": kind.summary});
        if let Some(successor) = kind.replaced_by {
            one["deprecated"] = json!(true);
            one["description"] = json!(format!("Deprecated, use {successor}. {}", kind.summary));
        }
        one
    });
    let rules = registry.iter().filter_map(|kind| {
        let mut parameters = of_parameters(kind)?;
        let is_needed = parameters.get("required").is_some();
        allow_null(&mut parameters);
        let mut then = json!({"properties": {"parameters": parameters}});
        if is_needed {
            then["required"] = json!(["parameters"]);
        }
        Some(json!({"if": {"properties": {"type": {"const": kind.name}}, "required": ["type"]}, "then": then}))
    });
    let mut entry = required(
        section(
            "A plugin instance.",
            &[
                ("name", text("The instance's name. Default: its type.")),
                ("type", json!({"description": "The plugin's type.", "oneOf": types.collect::<Vec<_>>()})),
                ("parameters", json!({"description": "The parameters of the type.", "type": ["object", "null"]})),
            ],
        ),
        "type",
    );
    entry["allOf"] = rules.collect();
    entry
}

/// A null counts as absent wherever a key has it.
fn allow_null(schema: &mut Value) {
    if let Some(Value::String(kind)) = schema.get("type") {
        schema["type"] = json!([kind, "null"]);
    }
    if let Some(Value::Array(values)) =
        schema.get_mut("enum").filter(|values| !values.as_array().is_some_and(|v| v.contains(&Value::Null)))
    {
        values.push(Value::Null);
    }
    properties_allow_null(schema);
}

fn properties_allow_null(schema: &mut Value) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(allow_null);
    }
    if let Some(items) = schema.get_mut("items") {
        properties_allow_null(items);
    }
    for alternative in schema.get_mut("anyOf").and_then(Value::as_array_mut).into_iter().flatten() {
        properties_allow_null(alternative);
    }
}

fn section(description: &str, keys: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())).collect();
    json!({
        "description": description,
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": false,
    })
}

fn required(mut section: Value, key: &str) -> Value {
    section["required"] = json!([key]);
    section
}

fn deprecated(mut schema: Value) -> Value {
    schema["deprecated"] = json!(true);
    schema
}

fn list(description: &str, items: Value) -> Value {
    json!({"description": description, "type": ["array", "null"], "items": items})
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": ["string", "null"]})
}

fn required_text(description: &str) -> Value {
    json!({"description": description, "type": "string", "minLength": 1})
}

/// A reference to a plugin, and other keys beside it.
fn referring(others: &[(&str, Value)]) -> Value {
    let mut keys = vec![("pluginRef", required_text("The name of a plugin."))];
    keys.extend(others.iter().cloned());
    required(section("A reference to a plugin.", &keys), "pluginRef")
}

fn reference_section(description: &str) -> Value {
    section(description, &[("pluginRef", text("The name of a plugin."))])
}

fn duration(description: &str) -> Value {
    json!({
        "description": description,
        "type": ["string", "null"],
        "pattern": r"^[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
    })
}

fn quantity(description: &str) -> Value {
    json!({
        "description": description,
        "type": ["string", "number", "null"],
        "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use epp_plugin_api::{MetricHub, Slots};

    use super::super::tests::registry::REGISTRY;
    use super::super::{Environment, load};
    use super::*;

    /// The keys that the picker says it knows in a section; `wrap` puts a section into a config.
    fn read_keys(wrap: &dyn Fn(Value) -> Value) -> Vec<String> {
        let environment = Environment {
            registry: REGISTRY,
            slots: &Slots::default(),
            metrics: &MetricHub::default(),
            staleness: Duration::from_secs(5),
            allow_experimental: true,
            previous: None,
        };
        let mistakes = load(&wrap(json!({"wibble": 1})).to_string(), &environment).expect_err("there is no such key");
        let known = mistakes.iter().find_map(|m| m.message.strip_prefix("unknown key \"wibble\", expected one of "));
        let mut keys: Vec<_> = known.unwrap_or_default().split(", ").map(str::to_owned).collect();
        keys.sort();
        keys
    }

    fn same_keys(path: &str, schema: &Value, wrap: &dyn Fn(Value) -> Value) {
        if let Some(items) = schema.get("items") {
            return same_keys(&format!("{path}[]"), items, &|inner| wrap(json!([inner])));
        }
        let Some(Value::Object(properties)) = schema.get("properties") else { return };
        assert_eq!(properties.keys().cloned().collect::<Vec<_>>(), read_keys(wrap), "{path:?}");
        for (key, inner) in properties {
            same_keys(&format!("{path}.{key}"), inner, &|value| wrap(json!({key: value})));
        }
    }

    #[test]
    fn every_section_has_the_keys_that_are_read() {
        same_keys("", &of(REGISTRY), &|root| root);
    }

    #[test]
    fn every_key_has_a_description() {
        fn check(path: &str, schema: &Value) {
            let description = schema["description"].as_str().unwrap_or_default();
            assert!(description.ends_with('.') || path.ends_with("[]"), "{path}: {description:?}");
            if let Some(items) = schema.get("items") {
                check(&format!("{path}[]"), items);
            }
            for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
                check(&format!("{path}.{key}"), inner);
            }
        }
        check("", &of(REGISTRY));
    }
}
