//! What the schema of a plugin's parameters says about each of them, in words.

use serde_json::{Map, Value};

/// A parameter, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// With the way to it, as `estimate.image.mode` or `engineConfigs[].name`.
    pub name: String,
    /// As `integer` or `list of string`.
    pub kind: String,
    pub is_required: bool,
    /// As YAML, or what stands for an empty one; `None`: there is none.
    pub default: Option<String>,
    /// As `0 to 1`.
    pub range: Option<String>,
    /// What its doc says beside the above.
    pub description: String,
}

/// Every parameter of the schema: required ones first, parts after their whole.
pub fn of(schema: &Value) -> Vec<Parameter> {
    let mut found = Vec::new();
    collect(schema, "", &mut found);
    found
}

fn collect(schema: &Value, way: &str, found: &mut Vec<Parameter>) {
    let Some(properties) = properties(schema) else { return };
    let is_required = |name: &str| required(schema).any(|required| required == name);
    let mut names: Vec<&String> = properties.keys().collect();
    names.sort_by_key(|name| (!is_required(name), name.as_str()));
    for name in names {
        let schema = &properties[name];
        let way = format!("{way}{name}");
        let default = match schema.get("default") {
            _ if is_required(name) => None,
            Some(value) if tells(value) && !value.is_object() => Some(inline(value)),
            Some(_) | None => told_default(schema),
        };
        let range = range(schema);
        found.push(Parameter {
            description: describe(schema, default.as_deref(), range.as_deref()),
            kind: kind(schema),
            is_required: is_required(name),
            default,
            range,
            name: way.clone(),
        });
        collect(schema, &format!("{way}."), found);
        if let Some(items) = schema.get("items") {
            collect(items, &format!("{way}[]."), found);
        }
    }
}

/// The parts of a schema, also where it is one of several or null.
fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    let own = schema.get("properties").and_then(Value::as_object);
    own.or_else(|| alternatives(schema).find_map(properties)).filter(|properties| !properties.is_empty())
}

fn alternatives(schema: &Value) -> impl Iterator<Item = &Value> {
    schema.get("anyOf").and_then(Value::as_array).into_iter().flatten()
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn kind(schema: &Value) -> String {
    if let Some(title) = schema.get("title").and_then(Value::as_str) {
        return title.to_owned();
    }
    let named = match schema.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        one => one.and_then(Value::as_str),
    };
    match named {
        Some("array") => format!("list of {}", schema.get("items").map_or_else(|| "anything".to_owned(), kind)),
        Some("object") if properties(schema).is_some() => "section".to_owned(),
        Some("object") => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("map of {}", kind(values)),
            _ => "section".to_owned(),
        },
        Some(name) => name.to_owned(),
        None if schema.get("oneOf").is_some() => "string".to_owned(),
        None => alternatives(schema).map(kind).find(|kind| kind != "null").unwrap_or_else(|| "anything".to_owned()),
    }
}

/// Whether a value is worth showing.
pub fn tells(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// What the doc says the default is, where the value itself is empty.
fn told_default(schema: &Value) -> Option<String> {
    let doc = doc(schema);
    let named = |sentence: &str| {
        let value = sentence.trim_end_matches(['.', ' ']).strip_prefix("Default")?.trim_start_matches([':', ' ']);
        let value = value.strip_prefix('`')?.strip_suffix('`')?;
        (!value.contains('`')).then(|| value.to_owned())
    };
    doc.split_inclusive(". ").find_map(named)
}

fn doc(schema: &Value) -> String {
    let doc = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    doc.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A value on one line of YAML.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Number(number) => number
            .as_f64()
            .filter(|n| n.fract() == 0.0 && n.abs() < 1e15)
            .map_or_else(|| number.to_string(), |whole| format!("{whole:.0}")),
        Value::String(text) => crate::yaml::write::string(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entry =
                |(key, value): (&String, &Value)| format!("{}: {}", crate::yaml::write::string(key), inline(value));
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

fn range(schema: &Value) -> Option<String> {
    let number = |key: &str| schema.get(key).map(inline);
    let words = match (number("minimum"), number("exclusiveMinimum"), number("maximum")) {
        (_, Some(above), Some(most)) => Some(format!("above {above}, at most {most}")),
        (_, Some(above), None) => Some(format!("above {above}")),
        (Some(least), None, Some(most)) => Some(format!("{least} to {most}")),
        (Some(least), None, None) => Some(format!("{least} or more")),
        (None, None, Some(most)) => Some(format!("at most {most}")),
        (None, None, None) => None,
    };
    words.or_else(|| {
        let values: Vec<String> = closed_set(schema).iter().filter(|value| !value.is_null()).map(inline).collect();
        let (last, others) = values.split_last()?;
        Some(if others.is_empty() { last.clone() } else { format!("{} or {last}", others.join(", ")) })
    })
}

/// The values that a schema lists, also where each has a description of its own.
fn closed_set(schema: &Value) -> Vec<Value> {
    match (schema.get("enum"), schema.get("oneOf")) {
        (Some(Value::Array(values)), _) => values.clone(),
        (_, Some(Value::Array(variants))) => variants
            .iter()
            .flat_map(|variant| variant.get("const").map_or_else(|| closed_set(variant), |value| vec![value.clone()]))
            .collect(),
        _ => Vec::new(),
    }
}

/// The doc without the sentences that other columns repeat.
fn describe(schema: &Value, default: Option<&str>, range: Option<&str>) -> String {
    let doc = doc(schema);
    let told = |sentence: &str| {
        let plain = sentence.trim().trim_end_matches('.').replace(['`', '"'], "");
        plain == "Required"
            || default.is_some_and(|value| {
                plain.strip_prefix("Default").map(|said| said.trim_start_matches([':', ' ']))
                    == Some(value.trim_matches('"'))
            })
            || range.is_some_and(|range| plain.to_lowercase() == range.to_lowercase())
    };
    doc.split_inclusive(". ").filter(|sentence| !told(sentence)).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(schema: Value) -> Parameter {
        of(&json!({"type": "object", "properties": {"x": schema}})).remove(0)
    }

    #[test]
    fn types_are_named() {
        for (schema, name) in [
            (json!({"type": "integer", "format": "int64"}), "integer"),
            (json!({"type": ["string", "null"]}), "string"),
            (json!({"type": "string", "title": "duration"}), "duration"),
            (json!({"type": "array", "items": {"type": "string"}}), "list of string"),
            (json!({"type": "object", "additionalProperties": {"type": "number"}}), "map of number"),
            (
                json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]}),
                "section",
            ),
            (json!({"oneOf": [{"const": "a"}]}), "string"),
            (json!(true), "anything"),
        ] {
            assert_eq!(one(schema.clone()).kind, name, "{schema}");
        }
    }

    #[test]
    fn ranges_are_worded() {
        for (schema, words) in [
            (json!({"minimum": 0.0, "maximum": 1}), Some("0 to 1")),
            (json!({"minimum": 1}), Some("1 or more")),
            (json!({"exclusiveMinimum": 0}), Some("above 0")),
            (json!({"exclusiveMinimum": 0, "maximum": 0.5}), Some("above 0, at most 0.5")),
            (json!({"enum": ["a", "b", "c", null]}), Some("a, b or c")),
            (json!({"oneOf": [{"const": "a"}, {"enum": ["b"]}]}), Some("a or b")),
            (json!({}), None),
        ] {
            assert_eq!(one(schema.clone()).range.as_deref(), words, "{schema}");
        }
    }

    #[test]
    fn what_has_a_column_is_not_told_again() {
        for (schema, description) in [
            (
                json!({"description": "How long. Above 0. Default `1s`.", "default": "1s", "exclusiveMinimum": 0}),
                "How long.",
            ),
            (json!({"description": "How\nmuch. Default 2.", "default": 2.0}), "How much."),
            (json!({"description": "How much. Default 3.", "default": 2}), "How much. Default 3."),
            (json!({"description": "Where. Default: its own.", "default": null}), "Where. Default: its own."),
            (json!({"description": "Who. Default `them`.", "default": ""}), "Who."),
        ] {
            assert_eq!(one(schema.clone()).description, description, "{schema}");
        }
    }

    #[test]
    fn parts_follow_their_whole_and_required_ones_come_first() {
        let part = json!({"type": "object", "required": ["z"], "properties": {"a": {}, "z": {}}});
        let found = of(&json!({"properties": {"one": part, "many": {"type": "array", "items": part}}}));
        let names: Vec<_> = found.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["many", "many[].z", "many[].a", "one", "one.z", "one.a"]);
        assert!(found[1].is_required && !found[2].is_required);
    }
}
