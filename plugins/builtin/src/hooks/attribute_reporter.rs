//! `request-attribute-reporter`: puts a number that follows from a response's usage into Envoy's dynamic metadata.
//!
//! The expression is a part of CEL over `usage`; what it comes to is cut to a whole number and goes out with the last
//! piece of the response. Nothing is reported if the condition is not true, if the expression has no number as its
//! value, or if that is 0 or -1. Needs response bodies. Reads no column. Costs a few steps a response.
//!
//! ```yaml
//! - type: request-attribute-reporter
//!   parameters:
//!     attributes:                  # exactly one
//!     - key: {namespace: envoy.lb, name: cost}
//!       expression: usage.prompt_tokens + 2 * usage.completion_tokens
//!       condition: usage.completion_tokens > 0   # default: always
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, HeaderEdits, Held, Hooks, Instance, Kind, NodeError, Parting, Picked,
    PluginType, Report, ResponseEnd, Stability, Usage,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::expression::{Expression, Outcome};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "request-attribute-reporter",
    kinds: &[Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "request-attribute-reporter",
    summary: "Puts a number that follows from a response's usage into Envoy's dynamic metadata.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["attributes"]))]
struct Config {
    /// What is reported. Exactly one.
    #[schemars(length(min = 1, max = 1), example = serde_json::json!([{"key": {"name": "cost"}, "expression": "usage.total_tokens"}]))]
    attributes: Vec<Attribute>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["key", "expression"]))]
struct Attribute {
    /// Where it goes. Required.
    key: Key,
    /// What its value is. Required.
    expression: String,
    /// When it is reported. Default: always.
    condition: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
struct Key {
    /// The namespace of the metadata. Default `envoy.lb`.
    namespace: String,
    /// The key within the namespace. Required.
    name: String,
}

impl Default for Key {
    fn default() -> Self {
        Self { namespace: NAMESPACE.into(), name: String::new() }
    }
}

const NAMESPACE: &str = "envoy.lb";

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let [attribute] = &cfg.attributes[..] else {
        let message = format!("expected one attribute, found {}", cfg.attributes.len());
        return Err(BuildError::at("attributes", message));
    };
    let mut mistakes = Vec::new();
    let mut mistake = |path: &str, message| {
        mistakes.push(NodeError { place: None, path: format!("attributes[0].{path}"), message });
    };
    if attribute.key.name.is_empty() {
        mistake("key.name", "expected the name of the attribute, found nothing".to_owned());
    }
    let expression = Expression::parse(&attribute.expression).map_err(|why| mistake("expression", why)).ok();
    let condition = Some(attribute.condition.as_str()).filter(|text| !text.trim().is_empty());
    let condition = condition.and_then(|text| Expression::parse(text).map_err(|why| mistake("condition", why)).ok());
    let Some(expression) = expression.filter(|_| mistakes.is_empty()) else { return Err(BuildError(mistakes)) };
    let Key { namespace, name } = &attribute.key;
    let namespace = if namespace.is_empty() { NAMESPACE } else { namespace };
    let rule = Rule { namespace: namespace.to_owned(), key: name.clone(), expression, condition };
    Ok(Instance { hooks: Some(Arc::new(Reporter(Arc::new(rule)))), ..Instance::default() })
}

struct Rule {
    namespace: String,
    key: String,
    expression: Expression,
    condition: Option<Expression>,
}

impl Rule {
    fn report(&self, usage: &Usage) -> Option<Report> {
        if let Some(condition) = &self.condition
            && condition.evaluate(usage) != Some(Outcome::Truth(true))
        {
            return None;
        }
        let Some(Outcome::Number(value)) = self.expression.evaluate(usage) else { return None };
        let value = value.trunc();
        let says = value.is_finite() && value != 0.0 && value != -1.0;
        says.then(|| Report { namespace: self.namespace.clone(), key: self.key.clone(), value })
    }
}

struct Reporter(Arc<Rule>);

impl Hooks for Reporter {
    fn picked(
        &self,
        _cx: &Cycle<'_>,
        _columns: &Columns,
        _picked: &Picked<'_>,
        _headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        Some(Box::new(Pending(self.0.clone())))
    }
}

struct Pending(Arc<Rule>);

impl Held for Pending {
    fn response_ended(&mut self, end: &ResponseEnd) -> Parting {
        Parting { reports: self.0.report(&end.usage).into_iter().collect(), ..Parting::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{Rig, cycle, request, snapshot};

    use super::*;

    fn parameters(expression: &str, condition: &str) -> Value {
        json!({"attributes": [{"key": {"name": "cost"}, "expression": expression, "condition": condition}]})
    }

    crate::conformance!(TYPE, parameters("usage.prompt_tokens", ""));

    fn reported(parameters: Value) -> Vec<Report> {
        let hooks = Rig::default().build(&TYPE, parameters).hooks.unwrap();
        let (board, request) = (snapshot(1, []), request(b"", Default::default()));
        let (runs, mut edits) = (Default::default(), HeaderEdits::default());
        let picked = Picked { runs: &runs, primary: 0 };
        let held = hooks.picked(&cycle(&board, &request), &Columns::default(), &picked, &mut edits);
        let usage = Usage { prompt: Some(15), completion: Some(10), ..Usage::default() };
        let end = ResponseEnd { usage, streaming: false, now: tokio::time::Instant::now() };
        held.unwrap().response_ended(&end).reports
    }

    #[test]
    fn reports_a_whole_number() {
        for (expression, condition, expected) in [
            ("usage.prompt_tokens", "", Some(15.0)),
            ("usage.prompt_tokens / 2", "usage.completion_tokens == 10", Some(7.0)),
            ("usage.prompt_tokens", "usage.completion_tokens > 10", None),
            ("usage.prompt_tokens", "usage.prompt_tokens", None),
            ("usage.prompt_tokens", "usage.nope", None),
            ("usage.nope", "", None),
            ("usage.prompt_tokens > 1", "", None),
            ("0", "", None),
            ("-1", "", None),
            ("1 / 0", "", None),
        ] {
            let values: Vec<f64> = reported(parameters(expression, condition)).iter().map(|r| r.value).collect();
            assert_eq!(values, Vec::from_iter(expected), "{expression} if {condition}");
        }
    }

    #[test]
    fn the_namespace_can_be_named() {
        let key = |key: Value| json!({"attributes": [{"key": key, "expression": "1"}]});
        for (key, expected) in [
            (key(json!({"name": "cost"})), "envoy.lb"),
            (key(json!({"name": "cost", "namespace": ""})), "envoy.lb"),
            (key(json!({"name": "cost", "namespace": "own"})), "own"),
        ] {
            let reports = reported(key);
            assert_eq!((reports[0].namespace.as_str(), reports[0].key.as_str()), (expected, "cost"));
        }
    }

    #[test]
    fn refuses_what_cannot_be_reported() {
        let one = json!({"key": {"name": "a"}, "expression": "1"});
        for (parameters, culprit) in [
            (json!(null), "attributes"),
            (json!({"attributes": []}), "attributes"),
            (json!({"attributes": [one, one]}), "found 2"),
            (parameters("'text'", ""), "expression"),
            (json!({"attributes": [{"expression": "1"}]}), "key.name"),
            (parameters("", ""), "expression"),
            (parameters("cost", ""), "expression"),
            (parameters("1", "1 +"), "condition"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit), "{culprit}");
        }
    }
}
