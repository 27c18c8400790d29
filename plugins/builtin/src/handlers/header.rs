//! `header-profile-handler`: runs the profile that a request header names.
//!
//! A request without the header, or with a blank one, runs the default profile; one that names no profile of the
//! config, in exactly this case, is refused. With a single profile the header is not read. Reads no column.
//!
//! ```yaml
//! - type: header-profile-handler
//!   parameters:
//!     headerName: EPP-Profile    # in any case
//!     defaultProfile: decode
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decision, HandlerError, Instance, Kind, Next, PluginType, ProfileHandler,
    ProfileRun, Runs, Stability,
};
use serde::Deserialize;

use super::{failed, no_profile, or_default};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "header-profile-handler",
    kinds: &[Kind::ProfileHandler],
    stability: Stability::Alpha,
    replaced_by: None,
    reported: "header-profile-handler",
    summary: "Runs the profile that a request header names.",
    schema: None,
    build,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The header that names the profile. Default `EPP-Profile`.
    header_name: String,
    /// The profile of requests that name none. Default `decode`.
    default_profile: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let handler = ByHeader {
        header: or_default(&cfg.header_name, "EPP-Profile").to_ascii_lowercase(),
        default: or_default(&cfg.default_profile, "decode"),
    };
    Ok(Instance { handler: Some(Arc::new(handler)), ..Instance::default() })
}

struct ByHeader {
    header: String,
    default: String,
}

impl ProfileHandler for ByHeader {
    fn next(&self, cx: &Cycle<'_>, _columns: &Columns, runs: &mut Runs) -> Next {
        if runs.runs.iter().any(|run| *run != ProfileRun::NotRun) {
            return Next::Done;
        }
        if runs.runs.len() == 1 {
            return Next::Run(0);
        }
        let named = cx.request.headers.find(&self.header).map(str::trim).filter(|name| !name.is_empty());
        runs.position(named.unwrap_or(&self.default)).map_or(Next::Done, Next::Run)
    }

    fn decide(&self, _cx: &Cycle<'_>, _columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError> {
        let ran = runs.runs.iter().position(|run| *run != ProfileRun::NotRun).ok_or_else(no_profile)?;
        if runs.runs[ran].targets().is_none() {
            return Err(failed(&runs.names[ran]));
        }
        Ok(Decision { primary: ran, ..Decision::default() })
    }

    fn check(&self, _profiles: &[&str]) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Headers;
    use serde_json::json;

    use super::super::testing::{chose, tell};
    use super::*;
    use crate::testing::Rig;

    crate::conformance!(TYPE, json!({"headerName": "x"}));

    /// The profiles that run, one decision for all, for a header with this value.
    fn ran(parameters: serde_json::Value, value: Option<&str>, names: &[&str]) -> Option<String> {
        let mut headers = Headers::default();
        if let Some(value) = value {
            headers.set("EPP-Profile", value.to_owned());
        }
        let profiles: Vec<_> = names.iter().map(|name| (*name, chose(&[0]))).collect();
        let told = tell(&*Rig::default().build(&TYPE, parameters).handler.unwrap(), headers, &profiles);
        match told.decision {
            Ok(decision) => {
                assert_eq!(told.order, [names[decision.primary]]);
                told.order.into_iter().next()
            }
            Err(why) => {
                assert!(why.starts_with("failed to run any scheduler profile for request "), "{why}");
                None
            }
        }
    }

    #[test]
    fn the_header_names_the_profile() {
        for (value, want) in [
            (Some("encode"), Some("encode")),
            (Some(" encode "), Some("encode")),
            (None, Some("decode")),
            (Some(" "), Some("decode")),
            (Some("Encode"), None),
            (Some("prefill"), None),
        ] {
            assert_eq!(ran(json!(null), value, &["decode", "encode"]).as_deref(), want, "{value:?}");
        }
        let other = json!({"headerName": " X-Which ", "defaultProfile": " encode "});
        assert_eq!(ran(other, Some("decode"), &["decode", "encode"]).as_deref(), Some("encode"));
    }

    #[test]
    fn a_single_profile_runs_whatever_the_header_says() {
        assert_eq!(ran(json!(null), Some("zzz"), &["mine"]).as_deref(), Some("mine"));
    }

    #[test]
    fn a_profile_that_chose_nobody_gives_no_decision() {
        let handler = Rig::default().build(&TYPE, json!(null)).handler.unwrap();
        let profiles = [("decode", ProfileRun::Exhausted), ("encode", chose(&[0]))];
        let told = tell(&*handler, Headers::default(), &profiles);
        assert_eq!(
            (told.order, told.decision),
            (vec!["decode".into()], Err("failed to run scheduler profile 'decode'".into()))
        );
    }
}
