//! Tests of the in-flight load producer.

use epp_plugin_api::{
    EndpointMeta, EndpointName, InferenceRequest, Observed, Parsed, Piece, ProfileRun, Runs, Snapshot, SnapshotRow,
};
use serde_json::json;

use crate::producers::token;
use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

/// A producer, the tokenizer before it, and what the prefix producer would say.
struct Bench {
    rig: Rig,
    tokens: Arc<dyn Producer>,
    producer: Arc<dyn Producer>,
    known: Vec<PrefixMatch>,
    board: Snapshot,
}

fn known(match_blocks: u32, total_blocks: u32, block_tokens: u32) -> PrefixMatch {
    PrefixMatch { match_blocks, total_blocks, block_tokens, cached_blocks: match_blocks, host_blocks: None }
}

impl Bench {
    fn new(parameters: serde_json::Value) -> Self {
        let rig = Rig::default();
        let tokens = rig.build(&token::TYPE, json!(null)).producer.unwrap();
        let producer = rig.build(&TYPE, parameters).producer.unwrap();
        Self { rig, tokens, producer, known: vec![], board: snapshot(1, vec![Row::default(); 2]) }
    }

    fn request(&self, input: usize, cap: Option<u64>) -> InferenceRequest {
        let pieces = if input == 0 { vec![] } else { vec![Piece::Ids { at: 0..input }] };
        request(b"", Parsed { pieces, ids: vec![0; input * 4], max_output_tokens: cap, ..Parsed::default() })
    }

    fn columns(&self, request: &InferenceRequest) -> Columns {
        let (cx, mut columns) = (cycle(&self.board, request), Columns::default());
        columns.reset(self.board.rows());
        self.tokens.produce(&cx, &mut columns).unwrap();
        if !self.known.is_empty() {
            let key = self.rig.slots.column("approx-prefix-cache-producer");
            columns.write(key).copy_from_slice(&self.known);
        }
        self.producer.produce(&cx, &mut columns).unwrap();
        columns
    }

    /// Sends a request of so many tokens where `runs` says.
    fn send(&self, input: usize, cap: Option<u64>, runs: &[(&str, u32)]) -> Box<dyn Held> {
        let request = self.request(input, cap);
        let columns = self.columns(&request);
        let runs = Runs {
            names: runs.iter().map(|(name, _)| name.to_string()).collect(),
            runs: runs.iter().map(|(_, row)| ProfileRun::Chose(vec![EndpointIdx(*row)])).collect(),
            peer: None,
        };
        let picked = Picked { runs: &runs, primary: 0 };
        self.producer.picked(&cycle(&self.board, &request), &columns, &picked).unwrap()
    }

    /// Requests and tokens in flight by row; what the gauges say is the same in total.
    fn load(&self) -> Vec<(i64, i64)> {
        let request = self.request(0, None);
        let mut columns = self.columns(&request);
        self.producer.refresh(&cycle(&self.board, &request), &mut columns);
        let column = columns.read(self.rig.slots.column::<InFlight>(TYPE.name)).unwrap();
        let load: Vec<_> = column.iter().map(|l| (l.requests, l.tokens)).collect();
        let totals = (load.iter().map(|l| l.0).sum(), load.iter().map(|l| l.1).sum());
        assert_eq!((self.gauge("requests"), self.gauge("tokens")), totals);
        load
    }

    fn gauge(&self, what: &str) -> i64 {
        let start = format!("llm_d_epp_inflight_{what}{{");
        let page = self.rig.page();
        page.lines()
            .filter(|l| l.starts_with(&start))
            .map(|l| l.rsplit(' ').next().unwrap().parse::<i64>().unwrap())
            .sum()
    }
}

#[test]
fn a_request_is_charged_from_the_pick_to_the_end_of_its_stream() {
    let bench = Bench::new(json!(null));
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
    let mut a = bench.send(4, None, &[("default", 0)]);
    let b = bench.send(7, None, &[("default", 0)]);
    assert_eq!(bench.load(), [(2, 11), (0, 0)]);
    a.response_began();
    a.response_began();
    assert_eq!(bench.load(), [(2, 7), (0, 0)]);
    drop(b);
    assert_eq!(bench.load(), [(1, 0), (0, 0)]);
    drop(a);
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
}

#[test]
fn an_answer_that_counts_stays_until_the_end() {
    let bench = Bench::new(json!({"addEstimatedOutputTokens": true}));
    let mut held = bench.send(4, None, &[("default", 1)]);
    assert_eq!(bench.load(), [(0, 0), (1, 10)]);
    held.response_began();
    assert_eq!(bench.load(), [(0, 0), (1, 10)]);
    drop(held);
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
}

#[test]
fn an_endpoint_that_does_both_stages_counts_twice_and_prefill_ends_first() {
    let bench = Bench::new(json!({"addEstimatedOutputTokens": true}));
    let mut held = bench.send(4, None, &[("decode", 0), ("prefill", 0)]);
    assert_eq!(bench.load(), [(2, 20), (0, 0)]);
    held.response_began();
    assert_eq!(bench.load(), [(1, 10), (0, 0)]);
    drop(held);
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
}

#[test]
fn prefill_is_given_back_whole_when_the_answer_begins() {
    let bench = Bench::new(json!(null));
    let mut held = bench.send(3, None, &[("decode", 0), ("prefill", 1)]);
    assert_eq!(bench.load(), [(1, 3), (1, 3)]);
    held.response_began();
    assert_eq!(bench.load(), [(1, 0), (0, 0)]);
}

#[test]
fn what_is_cached_is_not_charged() {
    let mut bench = Bench::new(json!({"addEstimatedOutputTokens": true}));
    bench.known = vec![known(1, 2, 4), known(0, 2, 4)];
    let one = bench.send(8, None, &[("default", 0)]);
    assert_eq!(bench.load()[0], (1, 16));
    drop(one);
    bench.known = vec![known(2, 2, 4), known(0, 2, 4)];
    let _both = bench.send(8, None, &[("decode", 1), ("prefill", 0)]);
    assert_eq!(bench.load(), [(1, 12), (1, 20)]);
}

#[test]
fn every_row_is_told_what_it_would_have_to_compute() {
    let mut bench = Bench::new(json!(null));
    let uncached = |bench: &Bench, input| {
        let columns = bench.columns(&bench.request(input, None));
        columns
            .read(bench.rig.slots.column::<UncachedTokens>(TYPE.name))
            .unwrap()
            .iter()
            .map(|u| u.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(uncached(&bench, 5), [5, 5]);
    assert_eq!(uncached(&bench, 0), [0, 0]);
    bench.known = vec![known(1, 2, 4), known(0, 0, 0)];
    assert_eq!(uncached(&bench, 5), [4, 5]);
    bench.known = vec![known(2, 2, 4), known(0, 2, 4)];
    assert_eq!(uncached(&bench, 20), [12, 20]);
}

#[test]
fn the_answer_is_expected_within_the_caps() {
    for (ratio, most, input, cap, expected) in [
        (1.5, i64::MAX, 100, Some(50), 50),
        (1.5, i64::MAX, 100, Some(500), 150),
        (1.5, i64::MAX, 100, Some(0), 0),
        (1.5, i64::MAX, 100, None, 150),
        (1.5, i64::MAX, 100, Some(u64::MAX), 150),
        (1.5, 40, 100, None, 40),
        (1.5, 40, 100, Some(30), 30),
        (1.5, 0, 7, None, 0),
        (0.5, i64::MAX, 5, None, 3),
        (2.0, i64::MAX, 0, None, 0),
        (2.0, i64::MAX, -5, None, 0),
        (f64::INFINITY, i64::MAX, 1, None, i64::MAX),
    ] {
        assert_eq!(Output { ratio, most }.tokens(input, cap), expected, "{ratio} {most} {input} {cap:?}");
    }
}

#[test]
fn gauges_name_endpoint_producer_and_flow() {
    let bench = Bench::new(json!(null));
    let _held = bench.send(3, None, &[("default", 1)]);
    let labels = "endpoint_name=\"e1\",namespace=\"default\",producer_name=\"inflight-load-producer\",\
        fairness_id=\"default-flow\",priority=\"0\"";
    let page = bench.rig.page();
    assert!(page.contains(&format!("llm_d_epp_inflight_requests{{{labels}}} 1\n")), "{page}");
    assert!(page.contains(&format!("llm_d_epp_inflight_tokens{{{labels}}} 3\n")), "{page}");
    bench.producer.forget(bench.board.id(EndpointIdx(1)));
    assert!(!bench.rig.page().contains("endpoint_name"));
}

/// Two endpoints whose first one is the one of this serial number in its slot.
fn board_with_first(serial: u32) -> Snapshot {
    let row = |at: u32, serial| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{at}") };
        let meta = EndpointMeta::new(name, "127.0.0.1".into(), 8000, Default::default(), 0);
        SnapshotRow { id: EndpointId::new(at, serial), meta: Arc::new(meta), observed: Observed::default() }
    };
    let now = tokio::time::Instant::now();
    Snapshot::new(u64::from(serial), [row(0, serial), row(1, 2)], now, std::time::Duration::from_secs(2))
}

#[test]
fn what_ends_on_an_endpoint_that_left_does_not_count_for_its_successor() {
    let mut bench = Bench::new(json!(null));
    bench.board = board_with_first(1);
    let mut held = bench.send(4, None, &[("default", 0)]);
    bench.producer.forget(EndpointId::new(0, 1));
    bench.board = board_with_first(3);
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
    held.response_began();
    drop(held);
    assert_eq!(bench.load(), [(0, 0), (0, 0)]);
}

#[test]
fn news_of_a_predecessor_that_left_costs_an_endpoint_nothing() {
    let mut bench = Bench::new(json!(null));
    bench.board = board_with_first(3);
    let _held = bench.send(4, None, &[("default", 0)]);
    bench.producer.forget(EndpointId::new(0, 1));
    assert_eq!(bench.load(), [(1, 4), (0, 0)]);
}

#[test]
fn nobody_chosen_is_nothing_held() {
    let bench = Bench::new(json!(null));
    let request = bench.request(1, None);
    let runs = Runs { names: vec!["default".into()], runs: vec![ProfileRun::Exhausted], peer: None };
    let picked = Picked { runs: &runs, primary: 0 };
    assert!(bench.producer.picked(&cycle(&bench.board, &request), &Columns::default(), &picked).is_none());
}

#[test]
fn refuses_parameters_out_of_range() {
    for (parameters, culprit) in [
        (json!({"outputRatio": -1}), "outputRatio"),
        (json!({"maxEstimatedOutputTokens": -1}), "maxEstimatedOutputTokens"),
        (json!({"addEstimatedOutputTokens": "yes"}), "addEstimatedOutputTokens"),
        (json!({"ratio": 1}), "ratio"),
    ] {
        assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
    }
    Rig::default().build(&TYPE, json!({"syncCrossReplicaState": false, "maxEstimatedOutputTokens": 0}));
}

#[test]
fn needs_tokens_and_takes_matches_if_there_are_any() {
    let [reads, optional, writes] = Rig::default().keys(&TYPE, json!({"prefixMatchInfoProducerName": "mine"}));
    assert_eq!(reads[0].to_string(), "TokenizedPrompt/token-producer");
    assert_eq!(optional[0].to_string(), "PrefixCacheMatchInfoDataKey/mine");
    assert!(writes.iter().any(|key| key.to_string() == "UncachedRequestTokensDataKey/inflight-load-producer"));
}
