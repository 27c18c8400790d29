//! `data-parallel-profile-handler`: sends the request to the engine's primary port and names the picked rank in a
//! header.
//!
//! For engines with a sidecar on one port that passes a request on to the data-parallel rank that the header
//! `x-data-parallel-host-port` names. Works with one profile; with more, no request is decided. Scores are not told, and
//! a request that wants to be served only where its prompt is cached is refused: the endpoint that it goes to is none
//! that was judged. Reads no column.
//!
//! ```yaml
//! - type: data-parallel-profile-handler
//!   parameters:
//!     primaryPort: 8000    # 0 to 65535
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decision, HandlerError, HeaderEdits, Instance, Kind, Next, PluginType,
    ProfileHandler, ProfileRun, Runs, Stability,
};
use serde::Deserialize;

use super::{failed, no_profile, port, routing};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "data-parallel-profile-handler",
    kinds: &[Kind::ProfileHandler],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "data-parallel-profile-handler",
    summary: "Sends the request to the primary port and names the picked rank in a header.",
    schema: None,
    build,
};

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The port that requests are sent to in place of the picked endpoint's own. 0 to 65535. Default 8000.
    primary_port: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { primary_port: 8000 }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let handler = DataParallel { primary_port: port(cfg.primary_port)? };
    Ok(Instance { handler: Some(Arc::new(handler)), ..Instance::default() })
}

struct DataParallel {
    primary_port: u16,
}

impl ProfileHandler for DataParallel {
    fn next(&self, _cx: &Cycle<'_>, _columns: &Columns, runs: &mut Runs) -> Next {
        match runs.runs.as_slice() {
            [ProfileRun::NotRun] => Next::Run(0),
            _ => Next::Done,
        }
    }

    fn decide(&self, cx: &Cycle<'_>, _columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError> {
        match (runs.runs.as_slice(), runs.names.as_slice()) {
            ([run @ ProfileRun::Chose(_)], _) => {
                let mut headers = HeaderEdits::default();
                routing::name_rank(cx, run, &mut headers);
                Ok(Decision { primary: 0, headers, port: Some(self.primary_port) })
            }
            ([_], [name]) => Err(failed(name)),
            _ => Err(no_profile()),
        }
    }

    fn check(&self, _profiles: &[&str]) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{Told, chose, tell};
    use super::*;
    use crate::testing::Rig;

    crate::conformance!(TYPE, json!({"primaryPort": 9000}));

    fn told(parameters: serde_json::Value, profiles: &[(&str, ProfileRun)]) -> Told {
        tell(&*Rig::default().build(&TYPE, parameters).handler.unwrap(), Default::default(), profiles)
    }

    #[test]
    fn sends_to_the_primary_port_and_names_the_rank() {
        for (parameters, port) in
            [(json!(null), 8000), (json!({"primaryPort": 9000}), 9000), (json!({"primaryPort": 0}), 0)]
        {
            let decision = told(parameters, &[("default", chose(&[1]))]).decision.unwrap();
            assert_eq!(decision.port, Some(port));
            assert_eq!(decision.headers.set, [("x-data-parallel-host-port".into(), "127.0.0.1:8001".into())]);
        }
    }

    #[test]
    fn decides_nothing_with_two_profiles_or_without_an_endpoint() {
        let two = told(json!(null), &[("a", chose(&[0])), ("b", chose(&[0]))]);
        assert_eq!(two.order, [""; 0]);
        assert!(two.decision.unwrap_err().starts_with("failed to run any scheduler profile"));
        let nobody = told(json!(null), &[("a", ProfileRun::Exhausted)]);
        assert_eq!(nobody.decision, Err("failed to run scheduler profile 'a'".into()));
    }

    #[test]
    fn refuses_what_is_no_port() {
        for port in [json!(-1), json!(65536), json!("8000")] {
            let why = Rig::default().refused(&TYPE, json!({"primaryPort": port}));
            assert!(why.starts_with("primaryPort: expected "), "{why}");
        }
    }
}
