//! `single-profile-handler`: runs the one profile that there is; its choice is the decision.
//!
//! Reads no column, costs nothing. Parameters are ignored.
//!
//! ```yaml
//! - type: single-profile-handler
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decision, HandlerError, Instance, Kind, Next, PluginType, ProfileHandler,
    ProfileRun, Runs, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "single-profile-handler",
    kinds: &[Kind::ProfileHandler],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "single-profile-handler",
    summary: "Runs the one profile that there is.",
    schema: None,
    build,
};

fn build(_cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { handler: Some(Arc::new(Single)), ..Instance::default() })
}

struct Single;

impl ProfileHandler for Single {
    fn next(&self, _cx: &Cycle<'_>, _columns: &Columns, runs: &mut Runs) -> Next {
        match runs.runs.iter().position(|run| *run == ProfileRun::NotRun) {
            Some(at) => Next::Run(at),
            None => Next::Done,
        }
    }

    fn decide(&self, _cx: &Cycle<'_>, _columns: &Columns, runs: &Runs) -> Result<Decision, HandlerError> {
        match (runs.runs.as_slice(), runs.names.as_slice()) {
            ([ProfileRun::Chose(_)], _) => Ok(Decision::default()),
            ([_], [name]) => Err(HandlerError(format!("failed to run scheduler profile '{name}'"))),
            (runs, _) => Err(HandlerError(one_profile(runs.len()))),
        }
    }

    fn check(&self, profiles: &[&str]) -> Result<(), String> {
        if profiles.len() == 1 { Ok(()) } else { Err(one_profile(profiles.len())) }
    }
}

fn one_profile(found: usize) -> String {
    format!("single profile handler is intended to be used with a single profile, found {found}")
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::EndpointIdx;
    use serde_json::json;

    use crate::testing::{cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    fn decision(run: ProfileRun) -> (Next, Next, Result<usize, String>) {
        let (board, request, columns) = (snapshot(1, []), request(b"", Default::default()), Columns::default());
        let cx = cycle(&board, &request);
        let mut runs = Runs { names: vec!["mine".into()], runs: vec![ProfileRun::NotRun], peer: None };
        let first = Single.next(&cx, &columns, &mut runs);
        runs.runs[0] = run;
        let second = Single.next(&cx, &columns, &mut runs);
        (first, second, Single.decide(&cx, &columns, &runs).map(|d| d.primary).map_err(|e| e.0))
    }

    #[test]
    fn the_choice_of_the_profile_is_the_decision() {
        let chose = ProfileRun::Chose(vec![EndpointIdx(0)]);
        assert_eq!(decision(chose), (Next::Run(0), Next::Done, Ok(0)));
    }

    #[test]
    fn a_profile_that_chose_nobody_gives_no_decision() {
        let why = Err("failed to run scheduler profile 'mine'".to_owned());
        assert_eq!(decision(ProfileRun::Exhausted), (Next::Run(0), Next::Done, why));
    }

    #[test]
    fn works_with_exactly_one_profile() {
        assert_eq!(Single.check(&["mine"]), Ok(()));
        assert!(Single.check(&[]).is_err());
        assert!(Single.check(&["a", "b"]).is_err());
    }
}
