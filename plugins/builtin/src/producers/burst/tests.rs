//! Tests of the burst producer as the picker uses it.

use epp_plugin_api::{InferenceRequest, Parsed, Piece, ProfileRun, Runs, Snapshot};
use serde_json::json;

use crate::producers::token;
use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

struct Bench {
    rig: Rig,
    gather: Arc<dyn Gather>,
    state: Arc<dyn Fn() -> String + Send + Sync>,
    board: Snapshot,
}

impl Bench {
    fn new() -> Self {
        let rig = Rig::default();
        let burst = rig.build(&TYPE, json!({"blockSizeTokens": 2}));
        let (gather, state) = (burst.gather.unwrap(), burst.state.unwrap());
        Self { rig, gather, state, board: snapshot(1, vec![Row::default(); 3]) }
    }

    fn columns(&self, request: &InferenceRequest) -> Columns {
        let tokens = self.rig.build(&token::TYPE, json!(null)).producer.unwrap();
        let mut columns = Columns::default();
        columns.reset(self.board.rows());
        tokens.produce(&cycle(&self.board, request), &mut columns).unwrap();
        columns
    }

    fn join(&self, request: &InferenceRequest) -> Box<dyn Gathered> {
        let (cx, all) = (cycle(&self.board, request), Candidates::all(3));
        self.gather.join(&cx, &self.columns(request), &all, Waker::noop().clone()).unwrap()
    }

    /// Lets the request wait as long as it wants to.
    fn wait(&self, gathered: &mut dyn Gathered, request: &InferenceRequest) {
        let mut cx = cycle(&self.board, request);
        while let Some(until) = gathered.wait(&cx, &Candidates::all(3)) {
            cx.now = until;
        }
    }

    /// What the column says of every row.
    fn matches(&self, gathered: &dyn Gathered, request: &InferenceRequest) -> Vec<(u32, u32, u32)> {
        let mut columns = self.columns(request);
        gathered.produce(&cycle(&self.board, request), &mut columns);
        let column = columns.read(self.rig.slots.column::<PrefixMatch>(TYPE.name)).unwrap();
        column.iter().map(|m| (m.match_blocks, m.total_blocks, m.block_tokens)).collect()
    }
}

fn of(ids: &[u32]) -> InferenceRequest {
    let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    request(b"", Parsed { pieces: vec![Piece::Ids { at: 0..ids.len() }], ids: bytes, ..Parsed::default() })
}

#[test]
fn the_group_s_endpoint_has_the_whole_prompt_and_others_have_nothing() {
    let (bench, prompt) = (Bench::new(), of(&[1, 2, 3, 4, 5]));
    let mut first = bench.join(&prompt);
    assert!(first.wait(&cycle(&bench.board, &prompt), &Candidates::all(3)).is_some());
    let second = bench.join(&prompt);
    bench.wait(&mut *first, &prompt);
    for member in [&first, &second] {
        assert_eq!(bench.matches(&**member, &prompt), [(3, 3, 2), (0, 3, 2), (0, 3, 2)]);
    }
    let lone = bench.join(&of(&[9]));
    assert_eq!(bench.matches(&*lone, &of(&[9])), [(0, 1, 2); 3]);
}

#[test]
fn models_and_cache_salts_are_not_grouped_together() {
    let bench = Bench::new();
    let (plain, mut salted, mut other) = (of(&[1]), of(&[1]), of(&[1]));
    salted.parsed.cache_salt = "s".into();
    other.target_model = "other".into();
    let members = [&plain, &salted, &other].map(|request| bench.join(request));
    assert_eq!((bench.state)(), r#"{"groups":3,"members":3,"waiting":3}"#);
    drop(members);
    assert_eq!((bench.state)(), r#"{"groups":0,"members":0,"waiting":0}"#);
}

#[test]
fn prompts_that_are_cut_at_other_places_are_others() {
    let bench = Bench::new();
    let cut_at = |cut: usize| {
        let mut request = of(&[1, 2, 3, 4, 5, 6, 7, 8]);
        request.parsed.pieces = vec![Piece::Ids { at: 0..cut }, Piece::NextPrompt, Piece::Ids { at: cut..8 }];
        request
    };
    let _members = [cut_at(4), cut_at(6), cut_at(4), of(&[1, 2, 3, 4, 5, 6, 7, 8])].map(|request| bench.join(&request));
    assert_eq!((bench.state)(), r#"{"groups":3,"members":4,"waiting":4}"#);
}

#[test]
fn a_request_without_a_prompt_is_no_member() {
    let (bench, empty) = (Bench::new(), request(b"", Parsed::default()));
    let mut gathered = bench.join(&empty);
    assert_eq!(gathered.wait(&cycle(&bench.board, &empty), &Candidates::all(3)), None);
    assert_eq!(bench.matches(&*gathered, &empty), [(0, 0, 2); 3]);
    assert_eq!((bench.state)(), r#"{"groups":0,"members":0,"waiting":0}"#);
}

#[test]
fn a_member_stays_until_its_stream_ends() {
    let (bench, prompt) = (Bench::new(), of(&[1]));
    let runs = Runs { names: vec!["d".into()], runs: vec![ProfileRun::Chose(vec![EndpointIdx(2)])], peer: None };
    let picked = Picked { runs: &runs, primary: 0 };
    let held = bench.join(&prompt).picked(&cycle(&bench.board, &prompt), &picked);
    let sibling = bench.join(&prompt);
    assert_eq!(bench.matches(&*sibling, &prompt)[2], (1, 1, 2));
    drop((held, sibling));
    assert_eq!((bench.state)(), r#"{"groups":0,"members":0,"waiting":0}"#);
}

#[test]
fn refuses_parameters_out_of_range() {
    for (parameters, culprit) in [
        (json!({"windowDurationMs": 0}), "windowDurationMs"),
        (json!({"windowDurationMs": 10001}), "windowDurationMs"),
        (json!({"maxPerReplica": 0}), "maxPerReplica"),
        (json!({"blockSizeTokens": 0}), "blockSizeTokens"),
        (json!({"blockSizeTokens": 64, "maxPrefixTokensToMatch": 63}), "maxPrefixTokensToMatch"),
        (json!({"minColocateBlocks": -1}), "minColocateBlocks"),
        (json!({"maxBatchSize": 0}), "maxBatchSize"),
        (json!({"balanceBy": "luck"}), "balanceBy"),
        (json!({"window": 5}), "window"),
    ] {
        assert!(Rig::default().refused(&TYPE, parameters).contains(culprit), "{culprit}");
    }
    Rig::default().build(&TYPE, json!({"maxPerReplica": -1, "maxBatchSize": -1, "balanceBy": ""}));
}
