//! What tests of profile handlers have in common: a walk through the profiles, each of which comes to a given result.

use epp_plugin_api::{Columns, Decision, EndpointIdx, Headers, Next, Parsed, ProfileHandler, ProfileRun, Runs};

use crate::testing::{Row, cycle, request, snapshot};

/// What a handler did with its profiles.
pub struct Told {
    /// The profiles that ran, in order.
    pub order: Vec<String>,
    /// What the peer was when each of them ran.
    pub peers: Vec<Option<u32>>,
    pub decision: Result<Decision, String>,
}

/// A run that chose these rows.
pub fn chose(rows: &[u32]) -> ProfileRun {
    ProfileRun::Chose(rows.iter().copied().map(EndpointIdx).collect())
}

/// Walks a handler through profiles that each come to this result, on endpoints 127.0.0.1:8000, 8001 and so on.
pub fn tell(handler: &dyn ProfileHandler, headers: Headers, profiles: &[(&str, ProfileRun)]) -> Told {
    tell_with(handler, headers, &Columns::default(), profiles)
}

/// As `tell`, with columns that deciders read.
pub fn tell_with(
    handler: &dyn ProfileHandler,
    headers: Headers,
    columns: &Columns,
    profiles: &[(&str, ProfileRun)],
) -> Told {
    let board = snapshot(1, vec![Row::default(); 4]);
    let mut request = request(b"", Parsed::default());
    request.headers = headers;
    let cx = cycle(&board, &request);
    let names: Vec<String> = profiles.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut runs = Runs { runs: vec![ProfileRun::NotRun; names.len()], names, peer: None };
    let (mut order, mut peers) = (Vec::new(), Vec::new());
    while let Next::Run(at) = handler.next(&cx, columns, &mut runs) {
        assert_eq!(runs.runs[at], ProfileRun::NotRun, "{} runs twice", runs.names[at]);
        order.push(runs.names[at].clone());
        peers.push(runs.peer.map(|idx| idx.0));
        runs.runs[at] = profiles[at].1.clone();
    }
    Told { order, peers, decision: handler.decide(&cx, columns, &runs).map_err(|why| why.0) }
}
