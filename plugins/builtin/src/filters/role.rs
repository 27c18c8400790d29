//! `decode-filter`, `prefill-filter`, `encode-filter`: keep the endpoints that serve one stage.
//!
//! The stage is told by the label `llm-d.ai/role`: `decode`, `prefill`, `encode`, `prefill-decode` (or `both`),
//! `encode-prefill`, `encode-prefill-decode`. No such label means decode; any other value, even an empty one, means no
//! stage. Reads no column. Costs an intersection of two bit sets; labels are looked at when the membership changes.
//! Parameters are ignored.
//!
//! ```yaml
//! - type: decode-filter
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, Filter, Instance, Kind, PluginType, Role, Stability,
};

use super::by_membership::ByMembership;

/// The registry's line for the filter of the decode stage.
pub static DECODE: PluginType =
    plugin_type("decode-filter", "Keeps the endpoints that serve the decode stage.", |_| build(|role| role.decode));

/// The registry's line for the filter of the prefill stage.
pub static PREFILL: PluginType =
    plugin_type("prefill-filter", "Keeps the endpoints that serve the prefill stage.", |_| build(|role| role.prefill));

/// The registry's line for the filter of the encode stage.
pub static ENCODE: PluginType =
    plugin_type("encode-filter", "Keeps the endpoints that serve the encode stage.", |_| build(|role| role.encode));

const fn plugin_type(
    name: &'static str,
    summary: &'static str,
    build: fn(&mut BuildContext<'_>) -> Result<Instance, BuildError>,
) -> PluginType {
    PluginType {
        name,
        kinds: &[Kind::Filter],
        stability: Stability::Beta,
        replaced_by: None,
        reported: "by-label",
        summary,
        schema: None,
        build,
    }
}

fn build(serves: fn(Role) -> bool) -> Result<Instance, BuildError> {
    let filter = Stage { serves, known: ByMembership::default() };
    Ok(Instance { filter: Some(Arc::new(filter)), ..Instance::default() })
}

struct Stage {
    serves: fn(Role) -> bool,
    known: ByMembership,
}

impl Filter for Stage {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        self.known.retain(cx.snapshot, keep, |meta| (self.serves)(meta.role));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, kept, snapshot};

    use super::*;

    crate::conformance!(DECODE, json!({"bogus": 1}));

    const ROLES: [Option<&str>; 12] = [
        Some("decode"),
        Some("prefill"),
        Some("encode"),
        Some("prefill-decode"),
        Some("encode-prefill"),
        Some("encode-prefill-decode"),
        Some("both"),
        Some("encode-decode"),
        Some("Decode"),
        Some("other"),
        Some(""),
        None,
    ];

    #[test]
    fn each_keeps_its_stage() {
        let rows = ROLES.map(|role| role.map_or(Row::default(), |role| Row::labelled(&[(Role::LABEL, role)])));
        let board = snapshot(1, rows);
        for (kind, expected) in [
            (&DECODE, vec![Some("decode"), Some("prefill-decode"), Some("encode-prefill-decode"), Some("both"), None]),
            (
                &PREFILL,
                ["prefill", "prefill-decode", "encode-prefill", "encode-prefill-decode", "both"].map(Some).to_vec(),
            ),
            (&ENCODE, ["encode", "encode-prefill", "encode-prefill-decode"].map(Some).to_vec()),
        ] {
            let filter = Rig::default().build(kind, json!({"bogus": 1})).filter.unwrap();
            let got: Vec<_> = kept(&*filter, &board).into_iter().map(|row| ROLES[row as usize]).collect();
            assert_eq!(got, expected, "{}", kind.name);
        }
    }

    #[test]
    fn a_change_of_labels_is_followed() {
        let filter = Rig::default().build(&PREFILL, json!(null)).filter.unwrap();
        let board =
            |membership, roles: [&str; 2]| snapshot(membership, roles.map(|r| Row::labelled(&[(Role::LABEL, r)])));
        assert_eq!(kept(&*filter, &board(1, ["decode", "prefill"])), [1]);
        assert_eq!(kept(&*filter, &board(2, ["prefill", "decode"])), [0]);
    }
}
