//! Tests of the choice of a peer to fetch cached blocks from.

use std::time::Duration;

use epp_plugin_api::{
    EndpointId, EndpointMeta, EndpointName, Observed, Parsed, ProfileRun, Runs, Snapshot, SnapshotRow,
};
use serde_json::json;
use tokio::time::Instant;

use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

const BLOCK: u32 = 16;

/// So many blocks on the device, and so many in host memory if the tiers are known.
fn holds(cached_blocks: u32, host_blocks: Option<u32>) -> PrefixMatch {
    PrefixMatch { match_blocks: cached_blocks, total_blocks: 10, block_tokens: BLOCK, cached_blocks, host_blocks }
}

fn device(blocks: u32) -> PrefixMatch {
    holds(blocks, None)
}

fn waiting(queues: &[f64]) -> Snapshot {
    snapshot(1, queues.iter().map(|&waiting| Row::heard(waiting, 0.0, 0.0)))
}

/// What becomes of the header when the request goes to the row `to`: the value, `-` if it is removed.
fn header(
    parameters: serde_json::Value,
    board: &Snapshot,
    known: &[PrefixMatch],
    to: &[(&str, u32)],
    id: &str,
) -> String {
    let rig = Rig::default();
    let hooks = rig.build(&TYPE, parameters).hooks.unwrap();
    let columns = rig.column("approx-prefix-cache-producer", known);
    let mut request = request(b"", Parsed::default());
    request.id = id.trim_end_matches('!').into();
    if id.ends_with('!') {
        request.headers.set(HEADER, "10.0.0.1:1".into());
    }
    let runs = Runs {
        names: to.iter().map(|(name, _)| name.to_string()).collect(),
        runs: to.iter().map(|(_, row)| ProfileRun::Chose(vec![EndpointIdx(*row)])).collect(),
        peer: None,
    };
    let mut edits = HeaderEdits::default();
    assert!(hooks.picked(&cycle(board, &request), &columns, &Picked { runs: &runs, primary: 0 }, &mut edits).is_none());
    let removed = edits.remove.into_iter().map(|key| (key, "-".to_owned()));
    let of_source = edits.set.into_iter().chain(removed).filter(|(key, _)| key == HEADER);
    of_source.map(|(_, value)| value).collect()
}

/// The source of a request that goes to the last row, which has nothing.
fn source(queues: &[f64], known: &[PrefixMatch], id: &str) -> String {
    let (queues, known) = ([queues, &[0.0]].concat(), [known, &[device(0)]].concat());
    header(json!(null), &waiting(&queues), &known, &[("default", queues.len() as u32 - 1)], id)
}

#[test]
fn the_peer_that_can_give_most_is_named() {
    for (queues, known, expected) in [
        (&[0.0, 0.0], &[device(1), device(3)], "127.0.0.1:8001"),
        (&[20.0, 0.0], &[device(5), device(3)], "127.0.0.1:8000"),
        (&[0.0, 0.0], &[holds(10, Some(0)), holds(3, Some(3))], "127.0.0.1:8001"),
        (&[0.0, 0.0], &[holds(10, Some(0)), holds(0, Some(0))], ""),
        (&[0.0, 0.0], &[device(0), device(0)], ""),
    ] {
        assert_eq!(source(queues, known, "r"), expected, "{queues:?} {known:?}");
    }
}

#[test]
fn peers_within_one_block_are_drawn_by_id_and_queue() {
    let equal = [device(3); 3];
    for (id, expected) in [("req-0", 8002), ("req-7", 8002), ("req-13", 8000)] {
        assert_eq!(source(&[0.0; 3], &equal, id), format!("127.0.0.1:{expected}"), "{id}");
    }
    let mut counts = [0; 3];
    for i in 0..400 {
        let port: usize = source(&[12.0, 2.0, 7.0], &equal, &format!("req-{i}"))[10..].parse().unwrap();
        counts[port - 8000] += 1;
    }
    assert_eq!(counts, [35, 251, 114]);
    let ahead = (0..200).filter(|i| source(&[20.0, 0.0], &[device(4), device(3)], &format!("r{i}")).ends_with('0'));
    assert!((1..50).contains(&ahead.count()));
}

#[test]
fn a_peer_is_named_only_when_it_saves_enough() {
    let known = [holds(6, Some(6)), holds(5, Some(0))];
    for (delta, expected) in [(16, "127.0.0.1:8000"), (17, ""), (32, "")] {
        let got = header(json!({"minCachedTokenDelta": delta}), &waiting(&[0.0; 2]), &known, &[("default", 1)], "r");
        assert_eq!(got, expected, "{delta}");
    }
    assert_eq!(header(json!(null), &waiting(&[0.0; 2]), &known, &[("default", 0)], "r"), "", "it is the source itself");
}

#[test]
fn the_endpoint_of_the_prefill_profile_computes_the_prompt() {
    let known = [device(3), device(0), device(0)];
    let to = |parameters, prefill| {
        header(parameters, &waiting(&[0.0; 3]), &known, &[("decode", 1), ("prefill", prefill)], "r")
    };
    assert_eq!(to(json!(null), 0), "");
    assert_eq!(to(json!(null), 2), "127.0.0.1:8000");
    assert_eq!(to(json!({"prefillProfileName": "other"}), 0), "127.0.0.1:8000");
}

#[test]
fn what_the_client_names_is_never_passed_on() {
    assert_eq!(source(&[0.0], &[device(0)], "r!"), "-");
    assert_eq!(source(&[0.0], &[device(1)], "r!"), "127.0.0.1:8000");
}

#[test]
fn an_address_of_version_6_has_brackets() {
    let row = |at: u32, host: &str| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{at}") };
        let meta = EndpointMeta::new(name, host.into(), 8080, Default::default(), 0);
        SnapshotRow { id: EndpointId::new(at, 1), meta: Arc::new(meta), observed: Observed::default() }
    };
    let board = Snapshot::new(1, [row(0, "fd00::2"), row(1, "fd00::3")], Instant::now(), Duration::from_secs(2));
    assert_eq!(header(json!(null), &board, &[device(1), device(0)], &[("d", 1)], "r"), "[fd00::2]:8080");
}

#[test]
fn nothing_is_named_where_nothing_is_known() {
    let (rig, board, request) = (Rig::default(), waiting(&[0.0]), request(b"", Parsed::default()));
    let hooks = rig.build(&TYPE, json!(null)).hooks.unwrap();
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(0)])], peer: None };
    let (picked, mut edits) = (Picked { runs: &runs, primary: 0 }, HeaderEdits::default());
    hooks.picked(&cycle(&board, &request), &Columns::default(), &picked, &mut edits);
    assert_eq!(edits, HeaderEdits::default());
}

#[test]
fn refuses_a_delta_of_zero() {
    for delta in [0, -5] {
        assert!(Rig::default().refused(&TYPE, json!({"minCachedTokenDelta": delta})).contains("minCachedTokenDelta"));
    }
}
