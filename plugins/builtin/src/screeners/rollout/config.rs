//! The parameters of `disaggregatedset-rollout-screener`.

use std::collections::HashSet;

use epp_plugin_api::{BuildContext, BuildError, NodeError};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::filters::label_selector::Term;
use crate::screeners::selector;
use crate::screeners::shares::Mode;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["scope", "revisionGating"]))]
pub struct Config {
    /// Which endpoints belong to the set. Required.
    #[schemars(example = serde_json::json!({"labelSelector": "app=x"}))]
    scope: Scope,
    /// Headers that name the label of the endpoints to serve a request.
    header_selectors: Vec<Selector>,
    /// Which revisions are served. Required.
    #[schemars(example = serde_json::json!({"mode": "max-role", "requireRoles": {"values": ["prefill", "decode"]}}))]
    revision_gating: Gating,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["labelSelector"]))]
struct Scope {
    /// A Kubernetes label selector. Required.
    label_selector: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["name", "headerName", "labelKey", "mode"]))]
struct Selector {
    /// The name in metrics. Required, each once.
    name: String,
    /// The header, in any case. Required, each once.
    header_name: String,
    /// The label that the header names the value of. Required.
    label_key: String,
    /// `strict`: no other endpoint serves; `prefer`: only told to the client. Required.
    #[schemars(extend("enum" = ["strict", "prefer"]))]
    mode: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[schemars(extend("required" = ["mode"]))]
struct Gating {
    /// What the share of a revision follows from. Required.
    #[schemars(extend("enum" = ["sum", "max-role", "disabled"]))]
    mode: String,
    /// The roles that a revision needs to be served.
    require_roles: Roles,
    /// The label that names the revision. Default `disaggregatedset.x-k8s.io/revision`.
    revision_label_key: String,
    /// The label that names the role. Default `disaggregatedset.x-k8s.io/role`.
    role_label_key: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Roles {
    /// Values of the role's label. Required unless gating is disabled.
    values: Vec<String>,
}

impl Default for Gating {
    fn default() -> Self {
        Self {
            mode: String::new(),
            require_roles: Roles::default(),
            revision_label_key: "disaggregatedset.x-k8s.io/revision".into(),
            role_label_key: "disaggregatedset.x-k8s.io/role".into(),
        }
    }
}

/// A header that names the label of the endpoints to serve a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSelector {
    pub name: String,
    /// In lower case.
    pub header: String,
    pub label: String,
    pub strict: bool,
}

/// Which revisions are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub mode: Mode,
    pub roles: Vec<String>,
    pub revision_label: String,
    pub role_label: String,
}

/// The scope, the selectors, and the gate if there is one.
pub type Settings = (Vec<Term>, Vec<HeaderSelector>, Option<Gate>);

/// Reads the parameters.
///
/// # Errors
/// With every mistake.
pub fn read(cx: &BuildContext<'_>) -> Result<Settings, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Mistakes::default();
    if cfg.scope.label_selector.trim().is_empty() {
        mistakes.push("scope.labelSelector", "expected a label selector, found nothing".into());
    }
    let scope = selector::parse(&cfg.scope.label_selector).unwrap_or_else(|why| {
        mistakes.push("scope.labelSelector", why);
        Vec::new()
    });
    let selectors = header_selectors(cfg.header_selectors, &mut mistakes);
    let gate = gate(cfg.revision_gating, &mut mistakes);
    if mistakes.0.is_empty() { Ok((scope, selectors, gate)) } else { Err(BuildError(mistakes.0)) }
}

#[derive(Default)]
struct Mistakes(Vec<NodeError>);

impl Mistakes {
    fn push(&mut self, path: &str, message: String) {
        self.0.push(NodeError { place: None, path: path.to_owned(), message });
    }
}

fn header_selectors(selectors: Vec<Selector>, mistakes: &mut Mistakes) -> Vec<HeaderSelector> {
    let (mut names, mut headers) = (HashSet::new(), HashSet::new());
    let mut read = Vec::new();
    for (i, selector) in selectors.into_iter().enumerate() {
        let Selector { name, header_name, label_key, mode } = selector;
        let mut mistake = |key: &str, message| mistakes.push(&format!("headerSelectors[{i}].{key}"), message);
        let header = header_name.trim().to_ascii_lowercase();
        for (key, value) in [("name", &name), ("headerName", &header), ("labelKey", &label_key)] {
            if value.trim().is_empty() {
                mistake(key, "expected a name, found nothing".to_owned());
            }
        }
        if !names.insert(name.clone()) {
            mistake("name", format!("expected each name once, found {name:?} again"));
        }
        if !headers.insert(header.clone()) {
            mistake("headerName", format!("expected each header once, found {header:?} again"));
        }
        if mode != "strict" && mode != "prefer" {
            mistake("mode", format!("expected strict or prefer, found {mode:?}"));
        }
        read.push(HeaderSelector { name, header, label: label_key, strict: mode == "strict" });
    }
    read
}

fn gate(gating: Gating, mistakes: &mut Mistakes) -> Option<Gate> {
    let mode = match gating.mode.as_str() {
        "sum" => Mode::Sum,
        "max-role" => Mode::MaxRole,
        "disabled" => return None,
        other => {
            mistakes.push("revisionGating.mode", format!("expected sum, max-role or disabled, found {other:?}"));
            return None;
        }
    };
    let roles = gating.require_roles.values;
    let distinct: HashSet<&str> = roles.iter().map(|role| role.trim()).collect();
    if roles.is_empty() || distinct.contains("") || distinct.len() < roles.len() {
        let message = format!("expected distinct roles, found {roles:?}");
        mistakes.push("revisionGating.requireRoles.values", message);
    }
    let label = |key: String, usual: fn(Gating) -> String| if key.is_empty() { usual(Gating::default()) } else { key };
    Some(Gate {
        mode,
        roles,
        revision_label: label(gating.revision_label_key, |usual| usual.revision_label_key),
        role_label: label(gating.role_label_key, |usual| usual.role_label_key),
    })
}
