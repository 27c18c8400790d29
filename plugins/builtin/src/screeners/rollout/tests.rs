//! What the screener keeps, tells the client, counts and refuses.

use epp_plugin_api::ProfileRun;
use epp_plugin_api::{EndpointIdx, Runs};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Rig, Row, cycle, request, snapshot};

fn parameters(mode: &str, selector: &str) -> Value {
    json!({"scope": {"labelSelector": "app=x"},
           "headerSelectors": [{"name": "revision", "headerName": "X-Rev", "labelKey": "rev", "mode": selector}],
           "revisionGating": {"mode": mode, "requireRoles": {"values": ["prefill", "decode"]},
                              "revisionLabelKey": "rev", "roleLabelKey": "role"}})
}

crate::conformance!(TYPE, parameters("sum", "strict"));

fn board() -> Snapshot {
    let row = |app, rev, role| Row::labelled(&[("app", app), ("rev", rev), ("role", role)]);
    let whole = ["prefill", "decode", "decode", "decode"].map(|role| row("x", "v1", role));
    let half = ["prefill", "decode"].map(|role| row("x", "v2", role));
    let rest = [row("x", "v3", "prefill"), row("y", "v3", "decode"), row("x", "", "decode")];
    snapshot(1, whole.into_iter().chain(half).chain(rest))
}

/// What is kept of all, in so many goes.
fn kept(rig: &Rig, parameters: Value, header: Option<&str>, times: usize) -> Vec<Vec<u32>> {
    let screener = rig.build(&TYPE, parameters).screener.unwrap();
    let (board, mut request) = (board(), request(b"", Default::default()));
    header.into_iter().for_each(|value| request.headers.set("x-rev", value.to_owned()));
    let go = |_| {
        let mut keep = Candidates::all(board.rows());
        screener.screen(&cycle(&board, &request), &mut keep);
        keep.iter().map(|idx| idx.0).collect()
    };
    (0..times).map(go).collect()
}

#[test]
fn a_strict_header_alone_decides_without_gating() {
    for (header, expected) in [
        (Some("v2"), vec![4, 5]),
        (Some("v9"), vec![]),
        (Some(""), (0..9).collect()),
        (None, (0..9).collect::<Vec<u32>>()),
    ] {
        assert_eq!(kept(&Rig::default(), parameters("disabled", "strict"), header, 1), [expected]);
    }
    assert_eq!(kept(&Rig::default(), parameters("disabled", "prefer"), Some("v2"), 1)[0].len(), 9);
}

#[test]
fn gating_draws_a_whole_revision_by_its_share() {
    for (mode, expected) in [("sum", 667), ("max-role", 750)] {
        let all = kept(&Rig::default(), parameters(mode, "prefer"), None, 1000);
        let first = all.iter().filter(|kept| **kept == [0, 1, 2, 3]).count();
        let second = all.iter().filter(|kept| **kept == [4, 5]).count();
        assert_eq!(first + second, 1000);
        assert!(first.abs_diff(expected) < 5, "{mode}: {first}");
    }
}

#[test]
fn a_strict_header_takes_the_place_of_the_draw_but_not_of_the_gate() {
    let rig = Rig::default();
    assert_eq!(kept(&rig, parameters("sum", "strict"), Some("v2"), 20), vec![vec![4, 5]; 20]);
    assert_eq!(kept(&rig, parameters("sum", "strict"), Some("v3"), 1), [vec![0; 0]]);
    let line = "llm_d_epp_disaggregatedset_strict_header_no_match_total{\
                plugin_type=\"disaggregatedset-rollout-screener\",plugin_name=\"disaggregatedset-rollout-screener\",\
                selector=\"revision\"} 1\n";
    assert!(rig.page().contains(line), "{}", rig.page());
    assert!(rig.page().contains("mode=\"sum\",revision=\"v3\"} 0.0\n"), "{}", rig.page());
}

#[test]
fn the_client_is_told_the_label_of_who_served() {
    let hooks = Rig::default().build(&TYPE, parameters("disabled", "prefer")).hooks.unwrap();
    let (board, request) = (board(), request(b"", Default::default()));
    for (served, expected) in [
        (Served::NoMetadata, Some("v1")),
        (Served::By("127.0.0.1:8004".into()), Some("v2")),
        (Served::By("127.0.0.1:8008".into()), None),
    ] {
        let chosen = [0, 4, 8].map(EndpointIdx).to_vec();
        let runs = Runs { names: vec!["default".into()], runs: vec![ProfileRun::Chose(chosen)], peer: None };
        let picked = Picked { runs: &runs, primary: 0 };
        let (mut edits, mut set) = (HeaderEdits::default(), Vec::new());
        let held = hooks.picked(&cycle(&board, &request), &Columns::default(), &picked, &mut edits);
        held.unwrap().response_headers(&served, &mut set);
        let got = set.iter().find(|(key, _)| key == "x-rev").map(|(_, value)| value.as_str());
        assert_eq!(got, expected, "{served:?}");
    }
}

#[test]
fn refuses_what_selects_nothing() {
    let with = |path: &str, value: Value| {
        let mut all = parameters("sum", "strict");
        *all.pointer_mut(path).unwrap() = value;
        all
    };
    for (parameters, culprit) in [
        (json!(null), "scope.labelSelector"),
        (with("/scope/labelSelector", json!("a b")), "scope.labelSelector"),
        (with("/headerSelectors/0/mode", json!("soft")), "headerSelectors[0].mode"),
        (with("/headerSelectors/0/name", json!("")), "headerSelectors[0].name"),
        (with("/headerSelectors/0/labelKey", json!("")), "headerSelectors[0].labelKey"),
        (with("/headerSelectors/0", json!({"nme": "x"})), "nme"),
        (with("/revisionGating/mode", json!("")), "revisionGating.mode"),
        (with("/revisionGating/requireRoles/values", json!([])), "requireRoles"),
        (with("/revisionGating/requireRoles/values", json!(["a", "a"])), "requireRoles"),
        (with("/revisionGating/requireRoles/values", json!(["a", " "])), "requireRoles"),
    ] {
        let why = Rig::default().refused(&TYPE, parameters);
        assert!(why.contains(culprit), "{why}");
    }
}
