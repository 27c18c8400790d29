//! `session-affinity-scorer`: prefers the endpoint that the request's session belongs to.
//!
//! The endpoint of the session scores 1, every other 0. With the strategy `encoded_endpoint_header` every response
//! carries a token that names its endpoint (base64 of `namespace/name`), and the client sends it back. With `session_id`
//! the picker remembers where the requests of an id went: at most 262144 sessions, only in this process. A session stays
//! where it was first sent, and moves only if that endpoint is no candidate. Reads the value `SessionIDDataKey` if a
//! source says so. Costs one walk over the endpoints.
//!
//! ```yaml
//! - type: session-affinity-scorer
//!   parameters:
//!     strategy: session_id                 # default: encoded_endpoint_header
//!     encodedEndpointHeaderConfig: {header: x-session-token}
//!     sessionIdConfig:
//!       sources:                           # the first that has a value counts; default: header x-session-id
//!       - {header: x-session-id}
//!       - {attribute: SessionIDDataKey, producer: session-id-producer}
//!       evictionTtlSeconds: 300            # idle sessions are forgotten after so long
//!       evictionSweepSeconds: 10           # and looked for so often
//!     profileName: ""                      # whose pick counts; default: the one that the request goes to
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Instance, Kind, PluginType, Scorer, Stability,
};

use crate::session::Sessions;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "session-affinity-scorer",
    kinds: &[Kind::Scorer, Kind::Producer],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "session-affinity-scorer",
    summary: "Prefers the endpoint that the request's session belongs to.",
    schema: Some(crate::schema::of::<crate::session::config::Config>),
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let sessions = Sessions::build(cx)?;
    let scorer = Arc::new(SessionAffinity(sessions.clone()));
    Ok(Instance { scorer: Some(scorer), producer: Some(sessions), ..Instance::default() })
}

struct SessionAffinity(Arc<Sessions>);

impl Scorer for SessionAffinity {
    fn score(&self, cx: &Cycle<'_>, columns: &Columns, among: &Candidates, scores: &mut [f64]) {
        if let Some(chosen) = self.0.chosen(cx, columns, among) {
            scores[chosen.row()] = 1.0;
        }
    }
}

#[cfg(test)]
#[path = "session_affinity_tests.rs"]
mod tests;
