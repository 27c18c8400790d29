//! What `epp plugins`, `epp schema` and `docs/plugins.md` say is what the picker does.

mod metrics;
mod schema;

use std::path::Path;
use std::time::Duration;

use epp::yaml::{self, Duplicates};
use epp_plugin_api::{BuildContext, Instance, MetricHub, Node, PluginType, Slots, Value};
use serde_json::{Value as Json, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// JSON as the value that its YAML is read as.
fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(v) => json!(v),
        Value::Int(v) => json!(v),
        Value::Float(v) => json!(v),
        Value::String(v) => json!(v),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => entries.iter().map(|(key, _, value)| (key.clone(), json_of(value))).collect(),
    }
}

fn parsed(text: &str) -> Json {
    json_of(&yaml::parse(text, Duplicates::Refuse).unwrap_or_else(|e| panic!("{e:?} in\n{text}")))
}

fn registry() -> &'static [&'static PluginType] {
    epp::app::registry()
}

fn whole() -> Json {
    epp::config::schema::of(registry())
}

fn parameters_of(kind: &PluginType) -> Json {
    epp::config::schema::of_parameters(kind).unwrap_or_default()
}

/// Builds an instance with these parameters; whatever it refers to is there.
fn builds(kind: &PluginType, parameters: &Json) -> Result<(), String> {
    let node = yaml::parse(&parameters.to_string(), Duplicates::Refuse).expect("JSON is YAML");
    let (slots, metrics, staleness) = (Slots::default(), MetricHub::default(), Duration::from_secs(2));
    let others = |name: &str| -> Option<Instance> {
        let other = registry().iter().find(|other| other.name == name)?;
        (other.build)(&mut BuildContext::new(other.name, None, &slots, &metrics, staleness)).ok()
    };
    let mut cx = BuildContext::new(kind.name, Some(&node), &slots, &metrics, staleness).with_others(&others);
    (kind.build)(&mut cx).map(|_| ()).map_err(|e| format!("{e:?}"))
}

/// The parameters of the example on the page of a type.
fn example_of(kind: &'static PluginType) -> Json {
    let page = epp::cli::plugins::markdown(&[kind]);
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let entry = parsed(example)[0].clone();
    assert_eq!(entry["type"], kind.name);
    entry.get("parameters").cloned().unwrap_or_else(|| json!({}))
}

fn samples() -> Vec<(String, String)> {
    let read = |path: std::path::PathBuf| {
        (path.display().to_string(), std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}")))
    };
    let files = std::fs::read_dir(Path::new(ROOT).join("config")).expect("there are sample configs");
    let paths = files.map(|file| file.expect("the directory can be read").path());
    let samples: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "yaml")).map(read).collect();
    assert!(!samples.is_empty());
    samples
}

#[test]
fn every_sample_config_fits_the_schema() {
    let schema = whole();
    for (path, text) in samples() {
        assert_eq!(schema::mistakes(&schema, &parsed(&text)), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn mistakes_do_not_fit_the_schema() {
    let schema = whole();
    for (config, at) in [
        ("plugins: [{type: load-aware-scorer, parameters: {treshold: 5}}]", "plugins[0].parameters.treshold"),
        ("plugins: [{type: load-aware-scorer, parameters: {threshold: many}}]", "plugins[0].parameters.threshold"),
        ("plugins: [{type: utilization-detector, parameters: {headroom: -1}}]", "plugins[0].parameters.headroom"),
        ("plugins: [{type: openai-parser, parameters: {x: 1}}]", "plugins[0].parameters.x"),
        ("plugins: [{type: wibble-scorer}]", "plugins[0].type"),
        ("plugins: [{type: file-discovery}]", "plugins[0]"),
        ("plugins: [{type: file-discovery, parameters: {watchFile: true}}]", "plugins[0].parameters"),
        ("plugins: [{name: x}]", "plugins[0]"),
        (
            "schedulingProfiles: [{name: p, plugins: [{pluginRef: x, wait: 1}]}]",
            "schedulingProfiles[0].plugins[0].wait",
        ),
        ("dataLayer: {discovery: {pluginRef: 1}}", "dataLayer.discovery.pluginRef"),
        ("kind: Other", "kind"),
        ("wibble: 1", "wibble"),
    ] {
        let mistakes = schema::mistakes(&schema, &parsed(config));
        assert!(mistakes.iter().any(|m| m.starts_with(&format!("{at}: "))), "{config}: {mistakes:?}");
    }
}

#[test]
fn null_counts_as_absent() {
    let config = "plugins: [{type: load-aware-scorer, parameters: {threshold: null}}, {type: load-aware-scorer, parameters: null}]\n\
                  dataLayer: null\nflowControl: {maxBytes: null, priorityBands: null}";
    assert_eq!(schema::mistakes(&whole(), &parsed(config)), Vec::<String>::new());
}

#[test]
fn the_page_of_plugins_is_current() {
    let path = Path::new(ROOT).join("docs/plugins.md");
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == epp::cli::plugins::markdown(registry()), "docs/plugins.md is out of date: run make docs");
}

#[test]
fn the_page_of_refusals_is_current() {
    let path = Path::new(ROOT).join("docs/refusals.md");
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == epp::flow::refusal::markdown(), "docs/refusals.md is out of date: run make docs");
}

#[test]
fn the_page_of_metrics_is_current() {
    let path = Path::new(ROOT).join("docs/metrics.md");
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == epp::cli::metrics::markdown(registry()), "docs/metrics.md is out of date: run make docs");
}

#[test]
fn every_type_has_a_summary() {
    for kind in registry() {
        assert!(kind.summary.len() > 10 && kind.summary.ends_with('.'), "{}: {:?}", kind.name, kind.summary);
    }
}

/// Tries `check` on every parameter and part of one.
fn each_parameter(schema: &Json, way: &str, check: &mut impl FnMut(&str, &Json)) {
    for (name, one) in schema["properties"].as_object().into_iter().flatten() {
        let way = format!("{way}.{name}");
        check(&way, one);
        each_parameter(one, &way, check);
    }
    each_alternative(schema, way, check);
}

fn each_alternative(schema: &Json, way: &str, check: &mut impl FnMut(&str, &Json)) {
    if schema["items"].is_object() {
        each_parameter(&schema["items"], way, check);
    }
    for one in schema["anyOf"].as_array().into_iter().flatten() {
        each_parameter(one, way, check);
    }
}

#[test]
fn every_parameter_has_a_description() {
    for kind in registry() {
        each_parameter(&parameters_of(kind), kind.name, &mut |way, one| {
            let description = one["description"].as_str().unwrap_or_default();
            assert!(description.len() > 5 && description.ends_with('.'), "{way}: {description:?}");
        });
    }
}

#[test]
fn no_description_names_another_default_than_the_code() {
    let page = epp::cli::plugins::markdown(registry());
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let wrong = line.split(". ").find(|s| s.starts_with("Default ") && !s.contains(": "));
        assert_eq!(wrong, None, "not the value in the column: {line}");
    }
}

#[test]
fn every_example_builds() {
    for kind in registry() {
        let example = example_of(kind);
        assert_eq!(builds(kind, &example), Ok(()), "{}: {example}", kind.name);
    }
}

#[test]
fn what_is_out_of_its_range_is_refused() {
    let mut tried = 0;
    for kind in registry() {
        let schema = parameters_of(kind);
        for (name, one) in schema["properties"].as_object().into_iter().flatten() {
            let beyond = [
                one["minimum"].as_f64().map(|least| least - 1.0),
                one["exclusiveMinimum"].as_f64(),
                one["maximum"].as_f64().map(|most| most + 1.0),
            ];
            for value in beyond.into_iter().flatten() {
                let mut parameters = example_of(kind);
                parameters[name] = json!(value);
                assert!(builds(kind, &parameters).is_err(), "{} accepts {name}: {value}", kind.name);
                tried += 1;
            }
            if one["enum"].is_array() {
                let mut parameters = example_of(kind);
                parameters[name] = json!("wibble");
                assert!(builds(kind, &parameters).is_err(), "{} accepts {name}: wibble", kind.name);
            }
        }
    }
    assert!(tried > 0);
}
