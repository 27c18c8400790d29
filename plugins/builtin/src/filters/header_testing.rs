//! `header-based-testing-filter`: keeps the endpoints that a header of the request names. For tests.
//!
//! The header `test-epp-endpoint-selection` holds a list of `ip`, `ip:port`, `[ip]` or `[ip]:port`, parted by commas.
//! With a port it names that endpoint, without one the last of that address. Of several endpoints of one address only
//! the first that is named stays. Without the header nobody stays. Reads no column. Costs a walk over the endpoints for
//! each name. Parameters are ignored.
//!
//! ```yaml
//! - type: header-based-testing-filter
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Candidates, Columns, Cycle, EndpointIdx, Filter, Instance, Kind, PluginType, Stability,
};

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "header-based-testing-filter",
    kinds: &[Kind::Filter],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "header-based-testing-filter",
    summary: "Keeps the endpoints that a header of the request names, for tests.",
    schema: None,
    build,
};

const HEADER: &str = "test-epp-endpoint-selection";
/// So many names count.
const MOST_NAMES: usize = 1024;

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    cx.reads_header(HEADER);
    Ok(Instance { filter: Some(Arc::new(HeaderTesting)), ..Instance::default() })
}

struct HeaderTesting;

impl Filter for HeaderTesting {
    fn filter(&self, cx: &Cycle<'_>, _columns: &Columns, keep: &mut Candidates) {
        let mut named = Candidates::none(keep.rows());
        let names = cx.request.headers.find(HEADER).unwrap_or_default();
        for (host, port) in names.split(',').take(MOST_NAMES).filter_map(parse) {
            let is_named = |idx: &EndpointIdx| {
                let meta = cx.snapshot.meta(*idx);
                meta.host == host && port.is_none_or(|port| meta.port == port)
            };
            if !named.iter().any(|idx| cx.snapshot.meta(idx).host == host)
                && let Some(idx) = keep.iter().filter(is_named).last()
            {
                named.insert(idx);
            }
        }
        keep.intersect(&named);
    }
}

/// The host and, if given, the port of one name.
fn parse(name: &str) -> Option<(&str, Option<u16>)> {
    let name = name.trim();
    if let Some(rest) = name.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None => rest.is_empty().then_some((host, None)),
        };
    }
    match name.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => Some((host, Some(port.parse().ok()?))),
        _ => (!name.is_empty()).then_some((name, None)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, Row, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"bogus": 1}));

    #[test]
    fn keeps_who_is_named() {
        let filter = Rig::default().build(&TYPE, json!(null)).filter.unwrap();
        let board = snapshot(1, vec![Row::default(); 3]);
        for (header, expected) in [
            (Some("127.0.0.1:8001"), vec![1]),
            (Some(" 127.0.0.1:8001 ,127.0.0.1:8002"), vec![1]),
            (Some("127.0.0.1:9,127.0.0.1:8000"), vec![0]),
            (Some("127.0.0.1"), vec![2]),
            (Some("127.0.0.9"), vec![]),
            (Some(""), vec![]),
            (Some(",:,[,[x,[]:,"), vec![]),
            (None, vec![]),
        ] {
            let mut request = request(b"", Default::default());
            header.into_iter().for_each(|value| request.headers.set(HEADER, value.to_owned()));
            let mut keep = Candidates::all(3);
            filter.filter(&cycle(&board, &request), &Columns::default(), &mut keep);
            assert_eq!(keep.iter().map(|idx| idx.0).collect::<Vec<_>>(), expected, "{header:?}");
        }
    }

    #[test]
    fn brackets_hold_an_ipv6_address() {
        for (name, expected) in [
            ("[fd00::1]:80", Some(("fd00::1", Some(80)))),
            ("[fd00::1]", Some(("fd00::1", None))),
            ("fd00::1", Some(("fd00::1", None))),
            ("[fd00::1]80", None),
            ("10.0.0.1:x", None),
        ] {
            assert_eq!(parse(name), expected, "{name}");
        }
    }
}
