//! Checks values against the part of JSON Schema that the schema of configs uses.

use serde_json::Value;

/// Keywords that say nothing about which values fit, and the pattern, which takes an engine for regular expressions.
const SILENT: [&str; 9] =
    ["$schema", "title", "description", "default", "examples", "format", "deprecated", "pattern", "then"];

/// What does not fit, as `where: what`.
pub fn mistakes(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn fits(schema: &Value, value: &Value) -> bool {
    mistakes(schema, value).is_empty()
}

fn check(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Value::Object(keywords) = schema else {
        assert_eq!(schema, &Value::Bool(true), "no schema at {at}");
        return;
    };
    for (keyword, says) in keywords {
        let holds = match keyword.as_str() {
            "type" => match says {
                Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                kind => is(value, kind),
            },
            "const" => value == says,
            "enum" => list(says).contains(value),
            "minimum" => value.as_f64().is_none_or(|v| v >= number(says)),
            "exclusiveMinimum" => value.as_f64().is_none_or(|v| v > number(says)),
            "maximum" => value.as_f64().is_none_or(|v| v <= number(says)),
            "minLength" => value.as_str().is_none_or(|v| v.chars().count() as f64 >= number(says)),
            "required" => value.as_object().is_none_or(|v| list(says).iter().all(|key| v.contains_key(text(key)))),
            "anyOf" => list(says).iter().any(|one| fits(one, value)),
            "oneOf" => list(says).iter().filter(|one| fits(one, value)).count() == 1,
            "allOf" => {
                list(says).iter().for_each(|one| check(one, value, at, found));
                true
            }
            "if" => {
                if fits(says, value) {
                    check(&schema["then"], value, at, found);
                }
                true
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(says, item, &format!("{at}[{i}]"), found);
                }
                true
            }
            "properties" => {
                for (key, inner) in value.as_object().into_iter().flatten() {
                    says.get(key).into_iter().for_each(|one| check(one, inner, &step(at, key), found));
                }
                true
            }
            "additionalProperties" => {
                let known = |key: &String| schema["properties"].get(key).is_some();
                for (key, inner) in value.as_object().into_iter().flatten().filter(|(key, _)| !known(key)) {
                    match says {
                        Value::Bool(false) => found.push(format!("{}: unknown key", step(at, key))),
                        says => check(says, inner, &step(at, key), found),
                    }
                }
                true
            }
            other => {
                assert!(SILENT.contains(&other), "{other} is not checked");
                true
            }
        };
        if !holds {
            found.push(format!("{at}: {keyword} wants {says}"));
        }
    }
}

fn step(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn is(value: &Value, kind: &Value) -> bool {
    match text(kind) {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|v| v.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("the keyword takes a list")
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("the keyword takes a number")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the keyword takes a text")
}
