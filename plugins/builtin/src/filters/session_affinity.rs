//! `session-affinity-filter`: keeps the endpoint that the request's session belongs to. Also known as
//! `multicluster-session-affinity-filter`.
//!
//! With the strategy `encoded_endpoint_header` every response carries a token that names its endpoint, and a request that
//! brings it back goes there. With `session_id` the picker remembers where the requests of an id went; at most 262144
//! sessions, until they are idle for too long, and only in this process. All stay if the session is not known or its
//! endpoint is no candidate. Reads the value `SessionIDDataKey` if a source says so. Costs one walk over the endpoints.
//! See `session-affinity-scorer` for all parameters.
//!
//! ```yaml
//! - type: session-affinity-filter
//!   parameters: {strategy: encoded_endpoint_header}   # or session_id
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Filter, Instance, Kind, PluginType, Stability,
};

use crate::session::Sessions;

/// The registry's line for this plugin.
pub static TYPE: PluginType = plugin_type("session-affinity-filter");

/// The registry's line for the filter among clusters.
pub static MULTICLUSTER: PluginType = plugin_type("multicluster-session-affinity-filter");

const fn plugin_type(name: &'static str) -> PluginType {
    PluginType {
        name,
        kinds: &[Kind::Filter, Kind::Producer],
        stability: Stability::Alpha,
        replaced_by: None,
        reported: name,
        summary: "Keeps the endpoint that the request's session belongs to.",
        schema: Some(crate::schema::of::<crate::session::config::Config>),
        build,
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let sessions = Sessions::build(cx)?;
    let filter = Arc::new(SessionAffinity(sessions.clone()));
    Ok(Instance { filter: Some(filter), producer: Some(sessions), ..Instance::default() })
}

struct SessionAffinity(Arc<Sessions>);

impl Filter for SessionAffinity {
    fn filter(&self, cx: &Cycle<'_>, columns: &Columns, keep: &mut Candidates) {
        if let Some(chosen) = self.0.chosen(cx, columns, keep) {
            keep.retain(|idx| idx == chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"strategy": "session_id"}));

    #[test]
    fn keeps_the_endpoint_of_the_token() {
        let filter = Rig::default().build(&TYPE, json!(null)).filter.unwrap();
        let board = snapshot(1, vec![Row::default(); 2]);
        for (token, expected) in [
            (Some("ZGVmYXVsdC9lMQ=="), vec![1]),
            (Some("ZGVmYXVsdC9lOQ=="), vec![0, 1]),
            (Some("ZGVmYXVsdC9lMQ== "), vec![0, 1]),
            (Some("!"), vec![0, 1]),
            (None, vec![0, 1]),
        ] {
            let mut request = request(b"", Default::default());
            token.into_iter().for_each(|token| request.headers.set("x-session-token", token.to_owned()));
            let mut keep = Candidates::all(2);
            filter.filter(&cycle(&board, &request), &Columns::default(), &mut keep);
            assert_eq!(keep.iter().map(|idx| idx.0).collect::<Vec<_>>(), expected, "{token:?}");
        }
    }

    #[test]
    fn refuses_an_unknown_strategy() {
        for kind in [&TYPE, &MULTICLUSTER] {
            assert!(Rig::default().refused(kind, json!({"strategy": "cookie"})).contains("cookie"));
        }
    }
}
