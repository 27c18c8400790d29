//! `agent-identity`: requests of one agent's session are one flow.
//!
//! The first of the known session headers that is not empty names the flow, unless the request names it itself with
//! `x-llm-d-inference-fairness-id` or its old name. Reads no column. Costs a few walks over the headers.
//!
//! ```yaml
//! - type: agent-identity
//!   parameters:
//!     additionalSessionHeaders: []   # looked at before the known ones
//! ```

use std::sync::Arc;

use epp_plugin_api::{BuildContext, BuildError, Hooks, InferenceRequest, Instance, Kind, PluginType, Stability};
use schemars::JsonSchema;
use serde::Deserialize;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "agent-identity",
    kinds: &[Kind::Hooks],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "agent-identity",
    summary: "Makes the requests of one agent's session one flow.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

/// Where agents are known to name their session, most telling first.
const KNOWN: [&str; 4] = ["x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// Headers to look at before the known ones, in any case. Default: none.
    additional_session_headers: Vec<String>,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let own = cfg.additional_session_headers.iter().map(|header| header.to_ascii_lowercase());
    let headers = own.chain(KNOWN.map(str::to_owned)).collect();
    Ok(Instance { hooks: Some(Arc::new(AgentIdentity { headers })), ..Instance::default() })
}

struct AgentIdentity {
    headers: Vec<String>,
}

impl Hooks for AgentIdentity {
    fn read(&self, request: &mut InferenceRequest) {
        let headers = &request.headers;
        let named = headers.find_either("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id");
        if named.is_some_and(|flow| !flow.is_empty()) {
            return;
        }
        let mut known = self.headers.iter().filter_map(|header| headers.find(header));
        if let Some(session) = known.find(|session| !session.is_empty()) {
            request.fairness_id = session.to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, request};

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn the_first_session_header_names_the_flow() {
        let hooks = Rig::default().build(&TYPE, json!({"additionalSessionHeaders": ["X-Mine"]})).hooks.unwrap();
        for (headers, expected) in [
            (&[][..], "default-flow"),
            (&[("session_id", "b"), ("session-id", "a")], "a"),
            (&[("session-id", "s"), ("x-claude-code-session-id", "c")], "c"),
            (&[("x-session-affinity", "o"), ("x-claude-code-session-id", "c")], "c"),
            (&[("session-id", "s"), ("x-session-affinity", "o")], "o"),
            (&[("x-claude-code-session-id", "c"), ("x-mine", "m")], "m"),
            (&[("x-mine", ""), ("session-id", " s ")], " s "),
            (&[("x-llm-d-inference-fairness-id", "f"), ("session-id", "s")], "default-flow"),
            (&[("x-gateway-inference-fairness-id", "f"), ("session-id", "s")], "default-flow"),
        ] {
            let mut request = request(b"", Default::default());
            headers.iter().for_each(|(key, value)| request.headers.set(*key, (*value).to_owned()));
            hooks.read(&mut request);
            assert_eq!(request.fairness_id, expected, "{headers:?}");
        }
    }
}
