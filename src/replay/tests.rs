//! Cycles of whole configs are recorded and made again.

mod anew;
mod old;

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::{
    Charge, EndpointId, EndpointMeta, EndpointName, InferenceRequest, Ledger, MetricHub, Observed, Parsed, Piece,
    Snapshot, SnapshotRow, testing,
};
use futures_util::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;

use super::report::Report;
use super::{Wish, replay};
use crate::app::{plan_of, registry};
use crate::recording::read::Reader;
use crate::recording::write::Lines;
use crate::sched::calls::NoCalls;
use crate::sched::decisions::Decisions;
use crate::sched::inputs::Inputs;
use crate::sched::metrics::SchedMetrics;
use crate::sched::pipeline::Pipeline;
use crate::sched::tape::{Tape, Taped};

const N_CYCLES: u32 = 400;

/// A config of one profile with these weights and this picker.
fn config(prefix: f64, active: f64, queue: f64, picker: &str) -> String {
    format!(
        "plugins: [{{type: prefix-cache-scorer}}, {{type: active-request-scorer}}, {{type: queue-scorer}}, {{type: {picker}}}]\n\
         schedulingProfiles:\n- name: default\n  plugins: [{{pluginRef: prefix-cache-scorer, weight: {prefix}}}, \
         {{pluginRef: active-request-scorer, weight: {active}}}, {{pluginRef: queue-scorer, weight: {queue}}}, \
         {{pluginRef: {picker}}}]\n"
    )
}

const PREFILL_DECODE: &str = "
plugins:
- {type: disagg-profile-handler, parameters: {deciders: {prefill: prefix-based-pd-decider}}}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 2}}
- {type: prefill-filter}
- {type: decode-filter}
- {type: active-request-scorer}
- {type: random-picker}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: active-request-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: random-picker}]}
";

fn snapshot(rng: &mut fastrand::Rng, n_endpoints: u32) -> Snapshot {
    let rows = (0..n_endpoints).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let role = if i % 3 == 0 { "prefill" } else { "decode" };
        let labels = [("llm-d.ai/role".to_owned(), role.to_owned())].into();
        let meta = EndpointMeta::new(name, format!("10.0.0.{i}"), 8000, labels, 0);
        let observed = Observed {
            waiting: Some(f64::from(rng.u32(..7))),
            running: Some(f64::from(rng.u32(..50))),
            kv_usage: Some(rng.f64()),
            at: Some(Instant::now()),
            ..Observed::default()
        };
        SnapshotRow { id: EndpointId::new(i, i + 1), meta: meta.into(), observed }
    });
    Snapshot::new(u64::from(n_endpoints), rows, Instant::now(), Duration::from_secs(2))
}

fn request(rng: &mut fastrand::Rng, number: u32) -> InferenceRequest {
    // Some prompts begin alike.
    let prompt: Vec<u32> = std::iter::repeat_n(rng.u32(..20), 16 * rng.usize(1..8)).collect();
    let parsed = Parsed {
        pieces: vec![Piece::Ids { at: 0..prompt.len() }],
        ids: prompt.iter().flat_map(|id| id.to_le_bytes()).collect(),
        ..Parsed::default()
    };
    InferenceRequest { id: format!("r{number} \"quoted\""), ..testing::request(b"", parsed) }
}

/// Keeps every line.
#[derive(Debug, Default)]
struct Keeps(Mutex<Lines>);

impl Tape for Keeps {
    fn take(&self, cycle: &Taped<'_>) {
        self.0.lock().push(cycle);
    }
}

/// The recording of many requests, of which some stay in flight; endpoints come and go meanwhile.
fn recorded(config: &str) -> Vec<u8> {
    let hub = MetricHub::default();
    let plan = plan_of(config, &hub);
    let pipeline = Pipeline::new(&plan, SchedMetrics::new(&hub).into(), &hub);
    let kept = Arc::new(Keeps::default());
    let decisions = Decisions::taped(kept.clone());
    let (mut rng, ledger) = (fastrand::Rng::with_seed(7), Ledger::default());
    let mut in_flight: Vec<Charge> = Vec::new();
    for number in 0..N_CYCLES {
        let snapshot = Arc::new(snapshot(&mut rng, 3 + number / 50));
        let request = request(&mut rng, number);
        let inputs = Inputs {
            board: &|| snapshot.clone(),
            request: &request,
            subset: None,
            ledger: &ledger,
            now: request.received,
            with_scores: false,
            generation: 1,
            decisions: &decisions,
        };
        let outcome = pipeline.run(inputs, &NoCalls).now_or_never().expect("nothing is waited for");
        in_flight.extend(outcome.ok().map(|(outcome, _)| outcome.charge));
        if in_flight.len() > 20 {
            in_flight.swap_remove(rng.usize(..20));
        }
    }
    std::mem::take(&mut kept.0.lock().text)
}

fn replayed(recording: &[u8], config: Option<&str>) -> anyhow::Result<Report> {
    let reader = Reader::new(Box::new(std::io::Cursor::new(recording.to_vec())));
    replay(reader, 0, &Wish { config, last: None, n_shown: 1000 }, registry(), &mut |_| {})
}

#[test]
fn the_same_config_decides_the_same() {
    for config in [
        config(2.0, 1.0, 1.0, "max-score-picker"),
        config(0.3, 0.1, 0.7, "weighted-random-picker"),
        config(1.0, 1.0, 1.0, "random-picker"),
        PREFILL_DECODE.to_owned(),
    ] {
        let recording = recorded(&config);
        for given in [None, Some(config.as_str())] {
            let report = replayed(&recording, given).unwrap();
            let n = u64::from(N_CYCLES);
            assert_eq!((report.cycles, report.judged, report.differ), (n, n, 0), "{config}");
            assert_eq!(report.notes, [""; 0], "{config}");
            assert!(report.picks.values().all(|picks| picks.recorded == picks.now));
            assert_eq!(report.picks.values().map(|picks| picks.recorded).sum::<u64>(), n);
        }
    }
}

#[test]
fn other_weights_decide_otherwise_where_the_totals_say_so() {
    let recording = recorded(&config(2.0, 1.0, 1.0, "max-score-picker"));
    let report = replayed(&recording, Some(&config(0.0, 3.0, 1.0, "max-score-picker"))).unwrap();
    assert!(report.differ > 20 && report.differ < u64::from(N_CYCLES), "{}", report.differ);
    assert_eq!(report.differences.len() as u64, report.differ);
    for difference in &report.differences {
        assert_ne!(difference.recorded, difference.now);
        let [[old_then, old_now], [new_then, new_now]] = difference.totals();
        assert!(old_then >= new_then && new_now >= old_now, "{difference:?}");
        let weights: Vec<_> = difference.scorers.iter().map(|share| share.weights).collect();
        assert_eq!(weights, [[2.0, 0.0], [1.0, 3.0], [1.0, 1.0]]);
    }
}

#[test]
fn a_scorer_can_be_taken_out_and_a_picker_changed() {
    let recording = recorded(&config(2.0, 1.0, 1.0, "max-score-picker"));
    let less = "plugins: [{type: queue-scorer}, {type: max-score-picker}]\n\
                schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}]}]\n";
    let report = replayed(&recording, Some(less)).unwrap();
    assert!(report.differ > 0);
    assert_eq!(report.differences[0].scorers[0].weights, [2.0, 0.0]);
    let report = replayed(&recording, Some(&config(2.0, 1.0, 1.0, "random-picker"))).unwrap();
    assert!(report.differ > u64::from(N_CYCLES) / 2, "{}", report.differ);
}

#[test]
fn what_was_not_recorded_is_refused_by_name() {
    let recording = recorded(&config(2.0, 1.0, 1.0, "max-score-picker"));
    let more = "plugins: [{type: no-hit-lru-scorer}, {type: session-affinity-filter}, \
                {type: header-label-affinity-scorer, parameters: {headerName: X-Zone, labelKey: zone}}, {type: mm-embeddings-cache-scorer}]\n\
                schedulingProfiles: [{name: default, plugins: [{pluginRef: no-hit-lru-scorer}, {pluginRef: session-affinity-filter}, \
                {pluginRef: header-label-affinity-scorer}, {pluginRef: mm-embeddings-cache-scorer}]}]\n";
    let why = replayed(&recording, Some(more)).unwrap_err().to_string();
    for name in [
        "scorer no-hit-lru-scorer of profile default was not there, and it goes by more than what is recorded",
        "filter session-affinity-filter of profile default was not there",
        "scorer header-label-affinity-scorer of profile default was not there, and it reads the header x-zone, which was not recorded",
        "scorer mm-embeddings-cache-scorer of profile default was not there, and it reads MultiModalEncoderCacheMatchInfoKey/mm-embeddings-cache-producer, which was not recorded",
    ] {
        assert!(why.contains(name), "{why}");
    }
    assert!(replayed(&recording, Some("plugins: [{type: wibble}]")).unwrap_err().to_string().contains("wibble"));
}

#[test]
fn what_differs_beside_scores_is_noted() {
    let recording = recorded(PREFILL_DECODE);
    let changed = PREFILL_DECODE
        .replace("nonCachedTokens: 2", "nonCachedTokens: 3")
        .replace("- {type: random-picker}", "- {type: random-picker}\n- {type: approx-prefix-cache-producer, parameters: {blockSizeTokens: 32, autoTune: false}}");
    let report = replayed(&recording, Some(&changed)).unwrap();
    for what in ["profile handler has changed", "producer approx-prefix-cache-producer is not as in the recording"] {
        assert!(report.notes.iter().any(|note| note.contains(what)), "{:?}", report.notes);
    }
    assert_eq!(report.differ, 0, "what was filled and which profiles ran stays as it was");
}

/// What `text` is refused with.
fn refused(text: &str) -> String {
    format!("{:#}", replayed(text.as_bytes(), None).map(|report| report.cycles).unwrap_err())
}

#[test]
fn a_recording_that_is_none_is_refused_with_its_line() {
    let config = format!(
        "{}\n{}\n",
        serde_json::json!({"config": 1, "text": "plugins: [{type: queue-scorer}]\n"}),
        r#"{"endpoints":["a:1","b:1"],"names":["default/a","default/b"]}"#
    );
    let cycle = |run: &str| {
        format!(
            "{config}{{\"cycle\":1,\"id\":\"\",\"model\":\"\",\"target\":\"\",\"priority\":0,\"seed\":1,\"candidates\":2,\"runs\":[{run}]}}\n"
        )
    };
    for (text, why) in [
        ("wibble\n".to_owned(), "line 1: expected a line of a recording, found \"wibble"),
        (cycle("").replace(&config, ""), "line 1: expected a config before the first cycle"),
        (cycle(r#"{"profile":0,"seed":1,"scores":["1"],"picked":[2]}"#), "line 3: expected rows below 2, found 2"),
        (cycle(r#"{"profile":0,"seed":1,"left":[1,0],"scores":["1"],"picked":[]}"#), "in their order"),
        (cycle(r#"{"profile":0,"seed":1,"scores":["1 0 1"],"picked":[0]}"#), "expected a score for each of 2"),
        (cycle(r#"{"profile":0,"seed":1,"scores":["x"],"picked":[0]}"#), "expected a score, found \"x\""),
        (cycle(r#"{"profile":0,"seed":1,"scores":["1","1"],"picked":[0]}"#), "line 3: expected scores of 1 scorers"),
        (cycle(r#"{"profile":9,"seed":1,"picked":[0]}"#), "line 3: expected a profile of 1, found number 9"),
        (cycle("{}"), "line 3: missing field"),
        (cycle(r#"{"pro\nfile":0}"#), "line 3: unknown field `pro file`"),
        (cycle("") + "{\"observed\":[{\"row\":2,\"load\":\"1 2 3\"}]}", "line 4: expected rows below 2, found 2"),
        (cycle("") + "{\"observed\":[{\"row\":1,\"load\":\"1 2\"}]}", "line 4: expected three loads"),
        (cycle("") + "{\"endpoints\":[\"a\"],\"names\":[\"a\"]}", "line 4: expected host:port, found \"a\""),
        (cycle(r#"{"profile":0,"seed":1,"scores":["1 5=0"],"picked":[0]}"#), "line 3: expected rows below 2, found 5"),
        (cycle(r#"{"profile":0,"seed":1,"scores":[""],"picked":[0]}"#), "found none before either"),
    ] {
        let found = refused(&text);
        assert!(found.contains(why), "{why}: {found}");
    }
}

#[test]
fn lines_that_were_cut_short_are_left_out() {
    let recording = recorded(&config(2.0, 1.0, 1.0, "max-score-picker"));
    let report = replayed(&recording[..recording.len() - 10], None).unwrap();
    assert_eq!(report.cycles, u64::from(N_CYCLES) - 1);
    assert_eq!(report.notes, ["1 lines of the recording were cut short and left out"]);
    let twice = [&recording[..recording.len() - 10], b"\n{\"con\n", &recording].concat();
    let report = replayed(&twice, None).unwrap();
    assert_eq!((report.cycles, report.differ), (2 * u64::from(N_CYCLES) - 1, 0));
    assert_eq!(replayed(b"", None).unwrap().cycles, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_change_of_a_recording_is_read_or_refused(at in 0_usize..60_000, byte in any::<u8>()) {
        static RECORDING: std::sync::LazyLock<Vec<u8>> =
            std::sync::LazyLock::new(|| recorded(&config(2.0, 1.0, 1.0, "max-score-picker"))[..60_000].to_vec());
        let mut changed = RECORDING.clone();
        changed[at] = byte;
        if let Err(why) = replayed(&changed, None) {
            prop_assert!(!why.to_string().is_empty());
        }
    }
}
