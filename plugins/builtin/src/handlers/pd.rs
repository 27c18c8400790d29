//! `pd-profile-handler`: prefill and decode on endpoints of their own; `disagg-profile-handler` replaces it.
//!
//! The decode profile runs, and if the decider wants it for the chosen endpoint, the prefill profile. Names the endpoint
//! that prefills in no header: `disagg-headers-handler` does. With a primary port, requests go to that port, and the
//! picked rank is named in `x-data-parallel-host-port`.
//!
//! ```yaml
//! - type: pd-profile-handler
//!   parameters:
//!     decodeProfile: decode
//!     prefillProfile: prefill
//!     deciderPluginName: prefix-based-pd-decider
//!     primaryPort: 0                    # 0: the endpoint's own port
//!     prefixMatchInfoProducerName: ""   # default: approx-prefix-cache-producer
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decider, Decision, HandlerError, HeaderEdits, Instance, Kind, Next,
    PluginType, ProfileHandler, ProfileRun, Runs, Stability,
};
use serde::Deserialize;

use super::decisions::Decisions;
use super::disagg::no_decode;
use super::{not_run, port, routing};
use crate::attributes::{PrefixMatch, TokenizedPrompt};
use crate::deciders;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "pd-profile-handler",
    kinds: &[Kind::ProfileHandler],
    stability: Stability::Beta,
    replaced_by: Some("disagg-profile-handler"),
    reported: "pd-profile-handler",
    summary: "Gives prefill and decode to endpoints of their own.",
    schema: None,
    build,
};

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The profile that picks where the request goes. Default `decode`.
    decode_profile: String,
    /// The profile that picks where to prefill. Default `prefill`.
    prefill_profile: String,
    /// The decider that says whether to prefill elsewhere. Default `prefix-based-pd-decider`.
    decider_plugin_name: String,
    /// The port that requests are sent to in place of the picked endpoint's own. 0 to 65535. Default 0: its own.
    primary_port: i64,
    /// A plugin that must be there; of no other effect.
    prefix_plugin_name: String,
    /// Stands in for `prefixPluginName` where that is blank.
    prefix_plugin_type: String,
    /// The instance whose prefix matches must be there. Default: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            decode_profile: "decode".into(),
            prefill_profile: "prefill".into(),
            decider_plugin_name: "prefix-based-pd-decider".into(),
            primary_port: 0,
            prefix_plugin_name: String::new(),
            prefix_plugin_type: String::new(),
            prefix_match_info_producer_name: String::new(),
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let primary_port = Some(port(cfg.primary_port)?).filter(|port| *port != 0);
    if cfg.decider_plugin_name.trim().is_empty() {
        return Err(BuildError::at("deciderPluginName", "decider plugin name is not defined"));
    }
    for (path, name) in [("prefixPluginName", &cfg.prefix_plugin_name), ("prefixPluginType", &cfg.prefix_plugin_type)] {
        if !name.is_empty() {
            cx.plugin(path, name)?;
            break;
        }
    }
    cx.reads::<PrefixMatch>(&cfg.prefix_match_info_producer_name);
    cx.reads_request::<TokenizedPrompt>("");
    let handler = PrefillDecode {
        decode: cfg.decode_profile,
        prefill: cfg.prefill_profile,
        decider: deciders::named(cx, "deciderPluginName", &cfg.decider_plugin_name)?,
        primary_port,
        decisions: Decisions::of_pd(cx.metrics, cx.name, TYPE.reported),
    };
    Ok(Instance { handler: Some(Arc::new(handler)), ..Instance::default() })
}

struct PrefillDecode {
    decode: String,
    prefill: String,
    decider: Arc<dyn Decider>,
    primary_port: Option<u16>,
    decisions: Decisions,
}

impl PrefillDecode {
    fn next_profile(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Option<usize> {
        let decode = runs.position(&self.decode)?;
        if runs.runs[decode] == ProfileRun::NotRun {
            return Some(decode);
        }
        let chosen = *runs.runs[decode].targets()?.first()?;
        let prefill = not_run(runs, &self.prefill)?;
        if self.decider.wanted(cx, columns, Some(chosen)) {
            runs.peer = Some(chosen);
            return Some(prefill);
        }
        runs.runs[prefill] = ProfileRun::Skipped;
        None
    }
}

impl ProfileHandler for PrefillDecode {
    fn next(&self, cx: &Cycle<'_>, columns: &Columns, runs: &mut Runs) -> Next {
        self.next_profile(cx, columns, runs).map_or(Next::Done, Next::Run)
    }

    fn decide(&self, cx: &Cycle<'_>, _columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError> {
        let decode = runs.position(&self.decode).filter(|at| runs.runs[*at].targets().is_some());
        let primary = decode.ok_or_else(|| no_decode(runs))?;
        self.decisions.count(&cx.request.target_model, runs, runs.position(&self.prefill), None);
        let mut headers = HeaderEdits::default();
        if self.primary_port.is_some() {
            routing::name_rank(cx, &runs.runs[primary], &mut headers);
        }
        Ok(Decision { primary, headers, port: self.primary_port })
    }

    fn check(&self, _profiles: &[&str]) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Instance;
    use serde_json::{Value, json};

    use super::super::testing::{Told, chose, tell};
    use super::*;
    use crate::deciders::{always, prefix_based};
    use crate::testing::Rig;

    fn rig() -> Rig {
        let rig = Rig::default();
        let yes = rig.build(&always::TYPE, json!(null));
        let no = rig.build(&prefix_based::TYPE, json!(null));
        rig.with("yes", yes).with("prefix-based-pd-decider", no).with("other", Instance::default())
    }

    fn told(rig: &Rig, parameters: Value, profiles: &[(&str, ProfileRun)]) -> Told {
        tell(&*rig.build(&TYPE, parameters).handler.unwrap(), Default::default(), profiles)
    }

    fn all() -> [(&'static str, ProfileRun); 3] {
        [("decode", chose(&[0])), ("prefill", chose(&[1])), ("third", chose(&[2]))]
    }

    #[test]
    fn runs_prefill_once_if_the_decider_wants_it() {
        let rig = rig();
        let yes = told(&rig, json!({"deciderPluginName": "yes"}), &all());
        assert_eq!((yes.order, yes.peers), (vec!["decode".into(), "prefill".into()], vec![None, Some(0)]));
        assert_eq!(yes.decision, Ok(Decision::default()));
        assert_eq!(told(&rig, json!(null), &all()).order, ["decode"]);
        let page = rig.page();
        for kind in ["decode-only", "prefill-decode"] {
            let series = format!(
                "llm_d_epp_pd_decision_total{{plugin_name=\"pd-profile-handler\",plugin_type=\"pd-profile-handler\",model_name=\"m\",decision_type=\"{kind}\"}} 1\n"
            );
            assert!(page.contains(&series), "{page}");
        }
    }

    #[test]
    fn a_primary_port_goes_with_the_rank_in_a_header() {
        let decision = told(&rig(), json!({"primaryPort": 9000}), &all()).decision.unwrap();
        assert_eq!(decision.port, Some(9000));
        assert_eq!(decision.headers.set, [("x-data-parallel-host-port".into(), "127.0.0.1:8000".into())]);
    }

    #[test]
    fn profiles_that_are_not_there_give_no_decision() {
        let none = told(&rig(), json!({"decodeProfile": ""}), &all());
        assert!(none.decision.unwrap_err().starts_with("failed to run any scheduler profile"));
        let nobody = told(&rig(), json!(null), &[("decode", ProfileRun::Exhausted)]);
        assert_eq!(nobody.decision, Err("failed to find available decode workers".into()));
    }

    #[test]
    fn refuses_bad_parameters() {
        for (parameters, why) in [
            (json!({"deciderPluginName": ""}), "deciderPluginName: decider plugin name is not defined"),
            (json!({"deciderPluginName": "nobody"}), "deciderPluginName: no plugin is named \"nobody\""),
            (json!({"prefixPluginType": "nobody"}), "prefixPluginType: no plugin is named \"nobody\""),
            (json!({"primaryPort": 65536}), "primaryPort: expected 0 or a port between 1 and 65535, found 65536"),
        ] {
            assert_eq!(rig().refused(&TYPE, parameters), why);
        }
        rig().build(&TYPE, json!({"prefixPluginName": "other", "prefixPluginType": "nobody"}));
    }
}
