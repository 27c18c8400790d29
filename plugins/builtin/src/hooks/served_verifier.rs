//! `destination-endpoint-served-verifier`: tells the client which endpoint Envoy says has served it. For tests of a
//! gateway.
//!
//! Sets the response header `x-conformance-test-served-endpoint`. Reads no column. Costs one header.
//!
//! ```yaml
//! - type: destination-endpoint-served-verifier
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, HeaderEdits, Held, Hooks, Instance, Kind, Picked, PluginType, Served,
    Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "destination-endpoint-served-verifier",
    kinds: &[Kind::Hooks],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "destination-endpoint-served-verifier",
    summary: "Tells the client which endpoint Envoy says has served it.",
    schema: None,
    build,
};

const HEADER: &str = "x-conformance-test-served-endpoint";

fn build(_cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    Ok(Instance { hooks: Some(Arc::new(Verifier)), ..Instance::default() })
}

struct Verifier;

impl Hooks for Verifier {
    fn picked(
        &self,
        _cx: &Cycle<'_>,
        _columns: &Columns,
        _picked: &Picked<'_>,
        _headers: &mut HeaderEdits,
    ) -> Option<Box<dyn Held>> {
        Some(Box::new(Watching))
    }
}

struct Watching;

impl Held for Watching {
    fn response_headers(&mut self, served: &Served, set: &mut Vec<(String, String)>) {
        let value = match served {
            Served::NoMetadata => "fail: missing envoy lb metadata",
            Served::NotSaid => "fail: missing destination endpoint served metadata",
            Served::By(endpoint) => endpoint,
        };
        set.push((HEADER.to_owned(), value.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    #[test]
    fn says_who_served_or_what_is_missing() {
        for (served, expected) in [
            (Served::By("10.1.1.1:80".into()), "10.1.1.1:80"),
            (Served::NotSaid, "fail: missing destination endpoint served metadata"),
            (Served::NoMetadata, "fail: missing envoy lb metadata"),
        ] {
            let mut set = Vec::new();
            Watching.response_headers(&served, &mut set);
            assert_eq!(set, [(HEADER.to_owned(), expected.to_owned())]);
        }
    }
}
