//! The headers that tell the engine's sidecar which endpoints the other stages of a request are given to.

use epp_plugin_api::{Cycle, EndpointIdx, HeaderEdits, ProfileRun, Runs};

/// Where to prefill: one `host:port`.
pub const PREFILLER: &str = "x-prefiller-host-port";
/// Where to encode: every picked `host:port`, with commas between.
pub const ENCODERS: &str = "x-encoder-hosts-ports";
/// The data-parallel rank that was picked, when the request itself goes to another port: one `host:port`.
pub const RANK: &str = "x-data-parallel-host-port";

/// The address of an endpoint, as its entry gives it.
pub fn address<'a>(cx: &'a Cycle<'_>, idx: EndpointIdx) -> &'a str {
    &cx.snapshot.meta(idx).host_port
}

/// Names the endpoints of the prefill and encode profiles; takes the headers away where nobody was picked, so that a
/// client cannot name some.
pub fn name_stages(cx: &Cycle<'_>, runs: &Runs, prefill: &str, encode: &str, headers: &mut HeaderEdits) {
    let targets = |profile| runs.position(profile).and_then(|at| runs.runs[at].targets()).unwrap_or_default();
    put(headers, PREFILLER, targets(prefill).first().map(|idx| address(cx, *idx).to_owned()));
    let mut encoders = String::new();
    for idx in targets(encode) {
        if !encoders.is_empty() {
            encoders.push(',');
        }
        encoders.push_str(address(cx, *idx));
    }
    put(headers, ENCODERS, Some(encoders).filter(|encoders| !encoders.is_empty()));
}

/// Names the rank that the profile picked.
pub fn name_rank(cx: &Cycle<'_>, run: &ProfileRun, headers: &mut HeaderEdits) {
    let first = run.targets().and_then(|targets| targets.first());
    put(headers, RANK, first.map(|idx| address(cx, *idx).to_owned()));
}

/// Sets a header or removes it, whatever was said of it before.
fn put(headers: &mut HeaderEdits, name: &str, value: Option<String>) {
    headers.set.retain(|(set, _)| set != name);
    headers.remove.retain(|removed| removed != name);
    match value {
        Some(value) => headers.set.push((name.to_owned(), value)),
        None => headers.remove.push(name.to_owned()),
    }
}
