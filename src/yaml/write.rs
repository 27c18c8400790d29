//! Nodes to YAML text that is read as the same nodes.

use std::fmt::Write as _;

use epp_plugin_api::Value;

use super::scalar;

/// A string as it stands in YAML: bare if nobody would take it for something else, in quotes otherwise.
pub fn string(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let bare = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(harmless)
        && matches!(scalar::resolve(text), Value::String(_));
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A value that follows a key: on the same line if it is a scalar or empty, else on lines of its own, each indented by
/// `indent` spaces. Ends with a line end.
pub fn after_key(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::List(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
        Value::List(items) => {
            out.push('\n');
            for item in items {
                let _ = write!(out, "{:indent$}-", "");
                after_key(out, &item.value, indent + 2);
            }
        }
        Value::Map(entries) => {
            out.push('\n');
            for (key, _, value) in entries {
                let _ = write!(out, "{:indent$}{}:", "", string(key));
                after_key(out, &value.value, indent + 2);
            }
        }
        scalar => {
            let _ = writeln!(out, " {}", scalar_text(scalar));
        }
    }
}

fn scalar_text(value: &Value) -> String {
    match value {
        Value::Bool(v) => v.to_string(),
        Value::Int(v) => v.to_string(),
        Value::Float(v) if v.is_nan() => ".nan".to_owned(),
        Value::Float(v) if v.is_infinite() => if *v > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
        Value::Float(v) => format!("{v:?}"),
        Value::String(v) => string(v),
        Value::Null | Value::List(_) | Value::Map(_) => "null".to_owned(),
    }
}
