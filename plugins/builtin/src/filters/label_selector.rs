//! `label-selector-filter`: keeps the endpoints that a Kubernetes label selector matches. `by-label-selector` is its old
//! name.
//!
//! Every term must hold: `matchLabels` asks for a value, `matchExpressions` for `In`, `NotIn` (also without the label),
//! `Exists` or `DoesNotExist`. An empty selector matches everything. Reads no column. Costs an intersection of two bit
//! sets; labels are compared when the membership changes.
//!
//! ```yaml
//! - type: label-selector-filter
//!   parameters:
//!     matchLabels: {tier: gold}
//!     matchExpressions:
//!     - {key: zone, operator: In, values: [a, b]}
//!     - {key: drained, operator: DoesNotExist}
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, EndpointMeta, Filter, Instance, Kind, NodeError, PluginType,
    Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::by_membership::ByMembership;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "label-selector-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "label-selector-filter",
    summary: "Keeps the endpoints that a Kubernetes label selector matches.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// The registry's line for the old name.
pub static ALIAS: PluginType = PluginType {
    name: "by-label-selector",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: Some("label-selector-filter"),
    reported: "by-label-selector",
    summary: "Keeps the endpoints that a Kubernetes label selector matches.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Labels with the value that they must have.
    match_labels: BTreeMap<String, String>,
    /// Terms that must hold.
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["key", "operator"]))]
struct Expression {
    /// The key of a label.
    key: String,
    /// How the label and the values go together.
    #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
    operator: String,
    /// At least one for `In` and `NotIn`, none for the others.
    values: Vec<String>,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Vec::new();
    let mut terms = Vec::new();
    for (key, value) in cfg.match_labels {
        let path = format!("matchLabels.{key}");
        mistakes.extend(label_key(&key).or(label_value(&value)).map(|message| mistake(&path, message)));
        terms.push(Term { key, rule: Rule::In(vec![value]) });
    }
    for (i, expression) in cfg.match_expressions.into_iter().enumerate() {
        match term(&format!("matchExpressions[{i}]"), expression) {
            Ok(term) => terms.push(term),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    Ok(Instance { filter: Some(Arc::new(Selector { terms, known: ByMembership::default() })), ..Instance::default() })
}

fn mistake(path: &str, message: String) -> NodeError {
    NodeError { place: None, path: path.to_owned(), message }
}

fn term(path: &str, expression: Expression) -> Result<Term, NodeError> {
    let Expression { key, operator, values } = expression;
    if let Some(message) = label_key(&key) {
        return Err(mistake(&format!("{path}.key"), message));
    }
    let wants_values = matches!(operator.as_str(), "In" | "NotIn");
    let rule = match operator.as_str() {
        "In" => Rule::In(values.clone()),
        "NotIn" => Rule::NotIn(values.clone()),
        "Exists" => Rule::Exists,
        "DoesNotExist" => Rule::DoesNotExist,
        other => {
            let message = format!("expected In, NotIn, Exists or DoesNotExist, found {other:?}");
            return Err(mistake(&format!("{path}.operator"), message));
        }
    };
    let message = match (wants_values, values.is_empty()) {
        (true, true) => Some(format!("expected at least one value for {operator}, found none")),
        (false, false) => Some(format!("expected no value for {operator}, found {}", values.len())),
        (true, false) | (false, true) => values.iter().find_map(|v| label_value(v)),
    };
    match message {
        Some(message) => Err(mistake(&format!("{path}.values"), message)),
        None => Ok(Term { key, rule }),
    }
}

/// Says what is wrong with a label's key: a name, which a DNS subdomain and a slash may precede.
fn label_key(key: &str) -> Option<String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let label = |part: &str| {
        let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends(part.bytes().next())
            && ends(part.bytes().last())
            && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
    };
    let prefix_is_fine = prefix.is_none_or(|p| p.len() <= 253 && p.split('.').all(label));
    let name_is_fine = !name.is_empty() && is_qualified(name);
    (!prefix_is_fine || !name_is_fine).then(|| format!("expected the key of a label, found {key:?}"))
}

/// Says what is wrong with a label's value.
fn label_value(value: &str) -> Option<String> {
    (!value.is_empty() && !is_qualified(value)).then(|| format!("expected the value of a label, found {value:?}"))
}

/// Whether this is at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_qualified(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

struct Term {
    key: String,
    rule: Rule,
}

enum Rule {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Term {
    fn holds(&self, meta: &EndpointMeta) -> bool {
        let value = meta.label(&self.key);
        match &self.rule {
            Rule::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Rule::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            Rule::Exists => value.is_some(),
            Rule::DoesNotExist => value.is_none(),
        }
    }
}

struct Selector {
    terms: Vec<Term>,
    known: ByMembership,
}

impl Filter for Selector {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        self.known.retain(cx.snapshot, keep, |meta| self.terms.iter().all(|term| term.holds(meta)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{Rig, Row, kept, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"matchExpressions": [{"key": "t", "operator": "DoesNotExist"}]}));

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn keeps_what_matches_every_term() {
        let rows = [
            Row::labelled(&[("t", "a")]),
            Row::labelled(&[("t", "b")]),
            Row::default(),
            Row::labelled(&[("t", "a"), ("z", "1")]),
        ];
        for (selector, expected) in [
            (json!(null), vec![0, 1, 2, 3]),
            (json!({}), vec![0, 1, 2, 3]),
            (json!({"matchLabels": {"t": "a"}}), vec![0, 3]),
            (json!({"matchLabels": {"t": "a", "z": "1"}}), vec![3]),
            (expression("t", "In", &["a", "b"]), vec![0, 1, 3]),
            (expression("t", "NotIn", &["a"]), vec![1, 2]),
            (expression("t", "Exists", &[]), vec![0, 1, 3]),
            (expression("z", "DoesNotExist", &[]), vec![0, 1, 2]),
            (
                json!({"matchLabels": {"t": "a"}, "matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}),
                vec![0],
            ),
            (
                json!({"matchLabels": {"t": "b"}, "matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["b"]}]}),
                vec![],
            ),
        ] {
            for kind in [&TYPE, &ALIAS] {
                let filter = Rig::default().build(kind, selector.clone()).filter.unwrap();
                assert_eq!(kept(&*filter, &snapshot(1, rows.clone())), expected, "{selector}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for (selector, culprit) in [
            (
                expression("t", "Near", &["x"]),
                "matchExpressions[0].operator: expected In, NotIn, Exists or DoesNotExist, found \"Near\"",
            ),
            (expression("t", "In", &[]), "matchExpressions[0].values: expected at least one value for In, found none"),
            (expression("t", "Exists", &["x"]), "matchExpressions[0].values: expected no value for Exists, found 1"),
            (expression("t", "In", &["-x"]), "matchExpressions[0].values: expected the value of a label, found \"-x\""),
            (
                json!({"matchLabels": {"not a key": "x"}}),
                "matchLabels.not a key: expected the key of a label, found \"not a key\"",
            ),
            (json!({"matchLabels": {"t": "a b"}}), "matchLabels.t: expected the value of a label, found \"a b\""),
        ] {
            assert_eq!(Rig::default().refused(&TYPE, selector), culprit);
        }
    }

    #[test]
    fn tells_every_mistake_at_once() {
        let bad = json!({"matchLabels": {"/": "x"}, "matchExpressions": [{"operator": "In"}, {"key": "t"}]});
        assert_eq!(Rig::default().refused(&TYPE, bad).lines().count(), 3);
    }

    #[test]
    fn a_key_is_a_qualified_name() {
        for good in ["t", "T-1_x.y", "example.com/t", "a.b-c.d/T", &"x".repeat(63)] {
            assert_eq!(label_key(good), None, "{good}");
        }
        for bad in ["", "/t", "a/", "A.com/t", "a..b/t", "-a/t", "a/b/c", ".t", "t_", "ü", &"x".repeat(64)] {
            assert!(label_key(bad).is_some(), "{bad}");
        }
    }
}
