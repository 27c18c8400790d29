//! What is promised of `disagg-profile-handler`: who runs after whom, what is told, what is refused.

use std::sync::Arc;

use epp_plugin_api::DataKey;
use serde_json::{Value, json};

use super::super::testing::{Told, chose, tell};
use super::*;
use crate::deciders::{always, prefix_based};
use crate::testing::{Rig, Row};

struct Never;

impl Decider for Never {
    fn wanted(&self, _cx: &Cycle<'_>, _columns: &Columns, _chosen: Option<EndpointIdx>) -> bool {
        false
    }
}

crate::conformance!(TYPE, json!(null));

fn rig() -> Rig {
    let rig = Rig::default();
    let yes = rig.build(&always::TYPE, json!(null));
    let prefix = rig.build(&prefix_based::TYPE, json!({"nonCachedTokens": 1}));
    let no = Instance { decider: Some(Arc::new(Never)), ..Instance::default() };
    let filter = rig.build(&crate::filters::role::DECODE, json!(null));
    rig.with("yes", yes).with("no", no).with("prefix", prefix).with("filter", filter)
}

fn told(rig: &Rig, parameters: Value, profiles: &[(&str, ProfileRun)]) -> Told {
    tell(&*rig.build(&TYPE, parameters).handler.unwrap(), Default::default(), profiles)
}

/// Profiles that choose endpoints 0, 1 and 2, or nobody.
fn stages(decode: bool, prefill: bool, encode: bool) -> [(&'static str, ProfileRun); 3] {
    let run = |finds, row| if finds { chose(&[row]) } else { ProfileRun::Exhausted };
    [("prefill", run(prefill, 1)), ("decode", run(decode, 0)), ("encode", run(encode, 2))]
}

fn deciders(prefill: &str, encode: &str) -> Value {
    json!({"deciders": {"prefill": prefill, "encode": encode}})
}

fn prefill_first(encode: &str) -> Value {
    json!({"stageOrder": "prefill-first", "deciders": {"encode": encode}})
}

#[test]
fn the_stages_that_are_wanted_run_in_order() {
    let full = stages(true, true, true);
    for (parameters, profiles, order, peers) in [
        (deciders("yes", "yes"), &full[..], &["decode", "encode", "prefill"][..], &[None, None, Some(0)][..]),
        (deciders("yes", "no"), &full[..], &["decode", "prefill"], &[None, Some(0)]),
        (deciders("no", "yes"), &full[..], &["decode", "encode"], &[None, None]),
        (deciders("", ""), &full[..], &["decode"], &[None]),
        (deciders("yes", "yes"), &full[1..2], &["decode"], &[None]),
        (deciders("yes", "yes"), &stages(true, true, false), &["decode", "encode", "prefill"], &[None, None, Some(0)]),
        (deciders("yes", "yes"), &stages(false, true, true), &["decode"], &[None]),
        (prefill_first(""), &full[..], &["prefill", "decode"], &[None, Some(1)]),
        (prefill_first("yes"), &full[..], &["prefill", "encode", "decode"], &[None, None, Some(1)]),
        (prefill_first("yes"), &stages(true, false, true), &["prefill", "encode", "decode"], &[None, None, None]),
        (prefill_first("prefix"), &full[..], &["prefill", "decode"], &[None, Some(1)]),
        (prefill_first("yes"), &full[1..], &["encode", "decode"], &[None, None]),
    ] {
        let shown = parameters.to_string();
        let got = told(&rig(), parameters, profiles);
        assert_eq!(
            (got.order, got.peers.as_slice()),
            (order.iter().map(|s| (*s).to_owned()).collect(), peers),
            "{shown}"
        );
    }
}

/// The headers that are set, and the ones that are taken away.
fn headers(told: Told) -> (Vec<(String, String)>, Vec<String>) {
    let edits = told.decision.unwrap().headers;
    (edits.set, edits.remove)
}

#[test]
fn every_stage_is_named_and_what_is_not_is_taken_away() {
    let (set, removed) = headers(told(&rig(), deciders("yes", "yes"), &stages(true, true, true)));
    let named = [("x-prefiller-host-port", "127.0.0.1:8001"), ("x-encoder-hosts-ports", "127.0.0.1:8002")];
    assert_eq!(set, named.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(removed, [""; 0]);
    let (set, removed) = headers(told(&rig(), json!(null), &stages(true, true, true)));
    assert_eq!((set, removed), (vec![], vec!["x-prefiller-host-port".into(), "x-encoder-hosts-ports".into()]));
}

#[test]
fn the_first_prefiller_and_every_encoder_are_named() {
    let profiles = [("decode", chose(&[0])), ("prefill", chose(&[3, 1])), ("encode", chose(&[2, 1]))];
    let (set, _) = headers(told(&rig(), deciders("yes", "yes"), &profiles));
    let values: Vec<&str> = set.iter().map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["127.0.0.1:8003", "127.0.0.1:8002,127.0.0.1:8001"]);
}

#[test]
fn a_rank_is_named_with_its_own_port_and_ipv6_in_brackets() {
    let entry = |host: &str, rank| {
        let name = epp_plugin_api::EndpointName { namespace: "default".into(), name: "p".into() };
        let meta = epp_plugin_api::EndpointMeta::new(name, host.into(), 8003, Default::default(), rank);
        let id = epp_plugin_api::EndpointId::new(0, 1);
        let row = epp_plugin_api::SnapshotRow { id, meta: Arc::new(meta), observed: Default::default() };
        let now = tokio::time::Instant::now();
        let board = epp_plugin_api::Snapshot::new(1, [row], now, std::time::Duration::from_secs(1));
        let request = crate::testing::request(b"", Default::default());
        let names = vec!["decode".into(), "prefill".into()];
        let runs = Runs { names, runs: vec![chose(&[0]), chose(&[0])], peer: None };
        let handler = rig().build(&TYPE, deciders("yes", "")).handler.unwrap();
        let decision = handler.decide(&crate::testing::cycle(&board, &request), &Columns::default(), &runs);
        decision.unwrap().headers.set[0].1.clone()
    };
    assert_eq!(entry("10.0.0.1", 3), "10.0.0.1:8003");
    assert_eq!(entry("fd00::1", 0), "[fd00::1]:8003");
}

fn counted(page: &str, name: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

#[test]
fn a_decision_is_counted_once_under_both_names() {
    for (prefill, encode, kind) in [
        (false, false, "decode-only"),
        (true, false, "prefill-decode"),
        (false, true, "encode-decode"),
        (true, true, "encode-prefill-decode"),
    ] {
        let rig = rig();
        let which = |wanted| if wanted { "yes" } else { "no" };
        told(&rig, deciders(which(prefill), which(encode)), &stages(true, true, true)).decision.unwrap();
        let page = rig.page();
        let ones =
            |name| -> Vec<String> { counted(&page, name).into_iter().filter(|line| line.ends_with(" 1")).collect() };
        let plugin = "plugin_name=\"disagg-profile-handler\",plugin_type=\"disagg-profile-handler\"";
        let labels = format!("model_name=\"m\",decision_type=\"{kind}\"");
        assert_eq!(
            ones("llm_d_epp_disagg_decision_total{"),
            [format!("llm_d_epp_disagg_decision_total{{{plugin},{labels}}} 1")]
        );
        assert_eq!(
            ones("llm_d_inference_scheduler_disagg_decision_total{"),
            [format!("llm_d_inference_scheduler_disagg_decision_total{{{labels}}} 1")]
        );
    }
}

#[test]
fn going_on_without_a_wanted_stage_is_counted() {
    let rig = rig();
    told(&rig, deciders("yes", "no"), &stages(true, false, true)).decision.unwrap();
    let page = rig.page();
    let fallbacks = counted(&page, "epp_judge_stage_fallbacks_total{");
    let ones: Vec<&String> = fallbacks.iter().filter(|line| line.ends_with(" 1")).collect();
    assert!(matches!(ones.as_slice(), [one] if one.contains("stage=\"prefill\"")), "{page}");
    let decisions = counted(&page, "llm_d_epp_disagg_decision_total{");
    assert!(decisions.iter().any(|line| line.ends_with("decision_type=\"decode-only\"} 1")), "{page}");
}

#[test]
fn nobody_to_decode_is_no_decision_and_is_not_counted() {
    let rig = rig();
    let why = "failed to find available decode workers";
    assert_eq!(told(&rig, deciders("yes", "yes"), &stages(false, true, true)).decision, Err(why.into()));
    assert_eq!(told(&rig, prefill_first(""), &stages(true, true, true)[..1]).decision, Err(why.into()));
    let none = told(&rig, json!(null), &stages(true, true, true)[..1]).decision.unwrap_err();
    assert!(none.starts_with("failed to run any scheduler profile for request "), "{none}");
    assert_eq!(counted(&rig.page(), "llm_d_epp_disagg_decision_total{"), [""; 0]);
}

#[test]
fn both_styles_of_parameters_mean_the_same() {
    let profiles = [("d", chose(&[0])), ("p", chose(&[1])), ("e", chose(&[2]))];
    let names = json!({"decode": "d", "prefill": "p", "encode": "e"});
    let flat = |decider: &str| {
        let mut flat = json!({"decodeProfile": "d", "prefillProfile": "p", "encodeProfile": "e"});
        flat["encodeDeciderPluginName"] = "yes".into();
        flat[decider] = "yes".into();
        flat
    };
    for parameters in [
        json!({"profiles": names, "deciders": {"prefill": "yes", "encode": "yes"}}),
        flat("prefillDeciderPluginName"),
        flat("deciderPluginName"),
    ] {
        assert_eq!(told(&rig(), parameters, &profiles).order, ["d", "e", "p"]);
    }
    let blank = json!({"profiles": {"decode": "", "prefill": " "}, "deciders": {"prefill": "yes"}});
    assert_eq!(told(&rig(), blank, &stages(true, true, true)).order, ["decode", "prefill"]);
}

#[test]
fn refuses_bad_parameters() {
    for (parameters, why) in [
        (
            json!({"stageOrder": "bogus"}),
            "stageOrder: invalid stage order \"bogus\", must be \"decode-first\" or \"prefill-first\"",
        ),
        (
            json!({"stageOrder": "prefill-first", "deciders": {"prefill": "yes"}}),
            "deciders.prefill: prefill decider is not supported in prefill-first stage order",
        ),
        (
            json!({"stageOrder": "prefill", "deciderPluginName": "yes"}),
            "deciderPluginName: prefill decider is not supported in prefill-first stage order",
        ),
        (
            deciders("nobody", "filter"),
            "deciders.prefill: no plugin is named \"nobody\"\ndeciders.encode: expected a decider, found plugin \"filter\", whose role is filter",
        ),
        (
            json!({"deciders": {"prefill": "yes"}, "decodeProfile": "d"}),
            "unknown key \"decodeProfile\", expected one of stageOrder, profiles, deciders; profiles and deciders cannot be mixed with the deprecated flat keys",
        ),
        (json!({"primaryPort": 8000}), "unknown key \"primaryPort\", expected one of stageOrder, profiles, deciders"),
    ] {
        assert_eq!(rig().refused(&TYPE, parameters), why);
    }
}

#[test]
fn brings_the_data_that_deciders_read() {
    let [reads, optional, writes] = rig().keys(&TYPE, json!(null));
    let names: Vec<String> = reads.iter().map(DataKey::to_string).collect();
    assert_eq!(names, ["PrefixCacheMatchInfoDataKey/approx-prefix-cache-producer", "TokenizedPrompt/token-producer"]);
    assert_eq!((optional, writes), (vec![], vec![]));
}

#[test]
fn an_endpoint_that_does_both_stages_can_be_given_both() {
    use crate::filters::role;
    let board = crate::testing::snapshot(
        1,
        [
            Row::default(),
            Row::labelled(&[("llm-d.ai/role", "prefill-decode")]),
            Row::labelled(&[("llm-d.ai/role", "Decode")]),
        ],
    );
    for (kind, want) in [(&role::DECODE, &[0, 1][..]), (&role::PREFILL, &[1])] {
        let filter = Rig::default().build(kind, json!(null)).filter.unwrap();
        assert_eq!(crate::testing::kept(&*filter, &board), want, "{}", kind.name);
    }
}
