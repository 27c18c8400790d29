//! Tests of `session-affinity-scorer`.

use epp_plugin_api::{EndpointIdx, InferenceRequest, Picked, Producer, ProfileRun, Runs, Served, Snapshot};
use serde_json::json;

use crate::attributes::SessionId;
use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

fn asking(header: &str, value: &str) -> InferenceRequest {
    let mut request = request(b"", Default::default());
    request.headers.set(header, value.to_owned());
    request
}

/// One instance and a board of three.
struct Try {
    scorer: Arc<dyn Scorer>,
    producer: Arc<dyn Producer>,
    board: Snapshot,
    columns: Columns,
}

impl Try {
    fn new(rig: &Rig, parameters: serde_json::Value) -> Self {
        let instance = rig.build(&TYPE, parameters);
        Self {
            scorer: instance.scorer.unwrap(),
            producer: instance.producer.unwrap(),
            board: snapshot(1, vec![Row::default(); 3]),
            columns: Columns::default(),
        }
    }

    /// The scores of `among`, after which the request goes to the row `to`, if any.
    fn ask(&mut self, request: &InferenceRequest, among: &[u32], to: Option<u32>) -> Vec<f64> {
        let cx = cycle(&self.board, request);
        let mut candidates = Candidates::none(3);
        among.iter().for_each(|row| candidates.insert(EndpointIdx(*row)));
        self.producer.refresh(&cx, &mut self.columns);
        let mut scores = vec![0.0; 3];
        self.scorer.score(&cx, &self.columns, &candidates, &mut scores);
        if let Some(row) = to {
            let runs = runs(row);
            self.producer.picked(&cx, &self.columns, &Picked { runs: &runs, primary: 0 });
        }
        scores
    }
}

fn runs(row: u32) -> Runs {
    let chose = ProfileRun::Chose(vec![EndpointIdx(row)]);
    Runs { names: vec!["default".into(), "prefill".into()], runs: vec![chose, ProfileRun::NotRun], peer: None }
}

#[test]
fn the_endpoint_of_the_token_scores_one() {
    let mut t = Try::new(&Rig::default(), json!(null));
    for (header, token, expected) in [
        ("x-session-token", "ZGVmYXVsdC9lMQ==", [0.0, 1.0, 0.0]),
        ("x-session-token", "ZGVmYXVsdC9lMQ", [0.0; 3]),
        ("x-session-token", "!", [0.0; 3]),
        ("x-other", "ZGVmYXVsdC9lMQ==", [0.0; 3]),
    ] {
        assert_eq!(t.ask(&asking(header, token), &[0, 1, 2], None), expected, "{header} {token}");
    }
}

fn token_written(parameters: serde_json::Value) -> Vec<(String, String)> {
    let t = Try::new(&Rig::default(), parameters);
    let (request, runs) = (request(b"", Default::default()), runs(1));
    let held = t.producer.picked(&cycle(&t.board, &request), &t.columns, &Picked { runs: &runs, primary: 0 });
    let mut set = Vec::new();
    held.into_iter().for_each(|mut held| held.response_headers(&Served::NotSaid, &mut set));
    set
}

#[test]
fn the_token_of_the_pick_is_put_on_the_response() {
    let token = |header: &str| vec![(header.to_owned(), "ZGVmYXVsdC9lMQ==".to_owned())];
    assert_eq!(token_written(json!(null)), token("x-session-token"));
    assert_eq!(token_written(json!({"encodedEndpointHeaderConfig": {"header": " X-Mine "}})), token("x-mine"));
    assert_eq!(token_written(json!({"profileName": "default"})), token("x-session-token"));
    assert_eq!(token_written(json!({"profileName": "prefill"})), []);
    assert_eq!(token_written(json!({"profileName": "nobody"})), []);
}

#[test]
fn a_session_is_bound_to_its_first_pick() {
    let mut t = Try::new(&Rig::default(), json!({"strategy": "session_id"}));
    let session = |id| asking("x-session-id", id);
    assert_eq!(t.ask(&session("s"), &[0, 1, 2], Some(2)), [0.0; 3]);
    assert_eq!(t.ask(&session(" s "), &[0, 1, 2], None), [0.0, 0.0, 1.0]);
    for other in ["t", " ", ""] {
        assert_eq!(t.ask(&session(other), &[0, 1, 2], None), [0.0; 3], "{other}");
    }
}

#[test]
fn a_session_stays_when_outvoted_and_moves_when_its_endpoint_is_no_candidate() {
    let mut t = Try::new(&Rig::default(), json!({"strategy": "session_id"}));
    let session = asking("x-session-id", "s");
    t.ask(&session, &[0, 1, 2], Some(0));
    t.ask(&session, &[0, 1, 2], Some(1));
    assert_eq!(t.ask(&session, &[0, 1, 2], None), [1.0, 0.0, 0.0]);
    t.ask(&session, &[1, 2], Some(1));
    assert_eq!(t.ask(&session, &[0, 1, 2], None), [0.0, 1.0, 0.0]);
}

#[test]
fn the_first_source_that_has_a_value_counts() {
    let rig = Rig::default();
    let sources =
        json!([{"header": "X-First"}, {"attribute": "SessionIDDataKey", "producer": "p"}, {"attribute": "x"}]);
    let mut t = Try::new(&rig, json!({"strategy": "session_id", "sessionIdConfig": {"sources": sources}}));
    let key = rig.slots.request::<SessionId>("p");
    t.columns.write_request(key).0 = "a".into();
    t.ask(&asking("x-first", "b"), &[0, 1, 2], Some(0));
    t.ask(&asking("x-first", " "), &[0, 1, 2], Some(1));
    assert_eq!(t.ask(&asking("x-first", "b"), &[0, 1, 2], None), [1.0, 0.0, 0.0]);
    assert_eq!(t.ask(&asking("x-other", "b"), &[0, 1, 2], None), [0.0, 1.0, 0.0]);
    t.columns.write_request(key).0 = "b".into();
    assert_eq!(t.ask(&asking("x-other", ""), &[0, 1, 2], None), [1.0, 0.0, 0.0]);
}

#[test]
fn refuses_bad_parameters_of_the_chosen_strategy_only() {
    let bad = json!({"evictionTtlSeconds": -1});
    let message = Rig::default().refused(&TYPE, json!({"strategy": "session_id", "sessionIdConfig": bad}));
    assert!(message.contains("sessionIdConfig.evictionTtlSeconds"), "{message}");
    assert!(Rig::default().build(&TYPE, json!({"sessionIdConfig": bad})).scorer.is_some());
    assert!(Rig::default().refused(&TYPE, json!({"strategy": ""})).contains("strategy"));
}
