//! `disagg-headers-handler`: names the endpoints that prefill and encode in headers. `prefill-header-handler` is its old
//! name, and `disagg-profile-handler`, which does the same, replaces both.
//!
//! Sets `x-prefiller-host-port` and `x-encoder-hosts-ports`, or takes them away where there is nobody to name.
//!
//! ```yaml
//! - type: disagg-headers-handler
//!   parameters: {prefillProfile: prefill, encodeProfile: encode}
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, HeaderEdits, Held, Hooks, Instance, Kind, Picked, PluginType, Stability,
};
use serde::Deserialize;

use super::{or_default, routing};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "disagg-headers-handler",
    kinds: &[Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: Some("disagg-profile-handler"),
    reported: "disagg-headers-handler",
    summary: "Names the endpoints that prefill and encode in headers.",
    schema: None,
    build,
};

/// The registry's line for the old name.
pub static ALIAS: PluginType = PluginType {
    name: "prefill-header-handler",
    kinds: &[Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: Some("disagg-profile-handler"),
    reported: "prefill-header-handler",
    summary: "Names the endpoints that prefill and encode in headers.",
    schema: None,
    build,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The profile that picks where to prefill. Default `prefill`.
    prefill_profile: String,
    /// The profile that picks where to encode. Default `encode`.
    encode_profile: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let hooks = StageHeaders {
        prefill: or_default(&cfg.prefill_profile, "prefill"),
        encode: or_default(&cfg.encode_profile, "encode"),
    };
    Ok(Instance { hooks: Some(Arc::new(hooks)), ..Instance::default() })
}

struct StageHeaders {
    prefill: String,
    encode: String,
}

impl Hooks for StageHeaders {
    fn picked(
        &self,
        cx: &Cycle<'_>,
        _columns: &Columns,
        picked: &Picked<'_>,
        headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        routing::name_stages(cx, picked.runs, &self.prefill, &self.encode, headers);
        None
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::{ProfileRun, Runs};
    use serde_json::json;

    use super::super::testing::chose;
    use super::*;
    use crate::testing::{Rig, Row, cycle, request, snapshot};

    crate::conformance!(TYPE, json!(null));

    fn edits(prefill: ProfileRun, encode: ProfileRun, mut headers: HeaderEdits) -> HeaderEdits {
        let (board, request) = (snapshot(1, vec![Row::default(); 4]), request(b"", Default::default()));
        let names = ["decode", "prefill", "encode"].map(String::from).to_vec();
        let runs = Runs { names, runs: vec![chose(&[0]), prefill, encode], peer: None };
        for kind in [&TYPE, &ALIAS] {
            let hooks = Rig::default().build(kind, json!(null)).hooks.unwrap();
            let picked = Picked { runs: &runs, primary: 0 };
            hooks.picked(&cycle(&board, &request), &Columns::default(), &picked, &mut headers);
        }
        headers
    }

    #[test]
    fn names_whom_it_can_and_takes_the_other_header_away_once() {
        let before = HeaderEdits {
            set: vec![("x-encoder-hosts-ports".into(), "6.6.6.6:1".into()), ("x-other".into(), "1".into())],
            remove: vec!["x-prefiller-host-port".into()],
        };
        let got = edits(chose(&[1, 2]), ProfileRun::Exhausted, before);
        let want = HeaderEdits {
            set: vec![("x-other".into(), "1".into()), ("x-prefiller-host-port".into(), "127.0.0.1:8001".into())],
            remove: vec!["x-encoder-hosts-ports".into()],
        };
        assert_eq!(got, want);
    }
}
