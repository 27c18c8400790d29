//! Tests of `no-hit-lru-scorer`.

use epp_plugin_api::{EndpointIdx, ProfileRun, Runs};
use serde_json::json;

use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!({"lruSize": 2}));

struct Try {
    rig: Rig,
    instance: Instance,
    rows: usize,
}

impl Try {
    fn new(rows: usize, parameters: serde_json::Value) -> Self {
        let rig = Rig::default();
        let instance = rig.build(&TYPE, parameters);
        Self { rig, instance, rows }
    }

    /// The scores of `among` for a request of which `cached` blocks are known to the last row, which then goes to `to`
    /// and its prefill to `prefill`.
    fn ask(&self, among: &[u32], cached: u32, to: Option<u32>, prefill: Option<u32>) -> Vec<f64> {
        let mut matches = vec![PrefixMatch { total_blocks: 10, ..PrefixMatch::default() }; self.rows];
        matches[self.rows - 1].match_blocks = cached;
        let mut columns = self.rig.column("approx-prefix-cache-producer", &matches);
        let (board, request) = (snapshot(1, vec![Row::default(); self.rows]), request(b"", Default::default()));
        let cx = cycle(&board, &request);
        let mut candidates = Candidates::none(self.rows);
        among.iter().for_each(|row| candidates.insert(EndpointIdx(*row)));
        let (scorer, producer) = (self.instance.scorer.as_ref().unwrap(), self.instance.producer.as_ref().unwrap());
        producer.refresh(&cx, &mut columns);
        let mut scores = vec![0.0; self.rows];
        scorer.score(&cx, &columns, &candidates, &mut scores);
        if let Some(to) = to {
            let chose = |row: u32| ProfileRun::Chose(vec![EndpointIdx(row)]);
            let runs = Runs {
                names: vec!["decode".into(), "prefill".into()],
                runs: vec![chose(to), prefill.map_or(ProfileRun::Skipped, chose)],
                peer: None,
            };
            producer.picked(&cx, &columns, &Picked { runs: &runs, primary: 0 });
        }
        scores
    }

    fn told(&self) -> serde_json::Value {
        serde_json::from_str(&self.instance.state.as_ref().unwrap()()).unwrap()
    }
}

#[test]
fn the_unused_come_first_and_then_the_longest_unused() {
    let t = Try::new(3, json!(null));
    assert_eq!(t.ask(&[0, 1, 2], 0, Some(0), None), [1.0, 0.5, 0.0]);
    assert_eq!(t.ask(&[0, 1, 2], 0, None, None), [0.0, 1.0, 0.5]);
    assert_eq!(t.ask(&[0, 1, 2], 5, Some(1), None), [0.5, 0.5, 0.5]);
    assert_eq!(t.ask(&[0, 1, 2], 0, Some(1), None), [0.0, 1.0, 0.5], "a warm request uses nobody");
    assert_eq!(t.ask(&[0, 1, 2], 0, Some(2), None), [0.5, 0.0, 1.0]);
    assert_eq!(t.ask(&[0, 1, 2], 0, None, None), [1.0, 0.5, 0.0]);
}

#[test]
fn a_lone_candidate_scores_one() {
    let t = Try::new(3, json!(null));
    assert_eq!(t.ask(&[1], 0, Some(1), None), [0.0, 1.0, 0.0]);
    assert_eq!(t.ask(&[1], 0, None, None), [0.0, 1.0, 0.0]);
}

#[test]
fn the_prefill_pick_takes_a_place_in_the_order() {
    let t = Try::new(4, json!(null));
    t.ask(&[0, 2, 3], 0, Some(0), Some(1));
    t.ask(&[2, 3], 0, Some(2), None);
    t.ask(&[3], 0, Some(3), None);
    assert_eq!(t.ask(&[0, 2, 3], 0, None, None), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn tells_its_order() {
    let t = Try::new(3, json!({"lruSize": 2}));
    assert_eq!(t.told(), json!({"endpoints": [], "totalEndpoints": 0, "maxEndpoints": 100}));
    for row in [2, 0, 1, 0] {
        t.ask(&[0, 1, 2], 0, Some(row), None);
    }
    let told = json!({"endpoints": ["default/e1", "default/e0"], "totalEndpoints": 2, "maxEndpoints": 100});
    assert_eq!(t.told(), told);
}

#[test]
fn an_endpoint_that_is_gone_is_forgotten() {
    let t = Try::new(2, json!(null));
    t.ask(&[0, 1], 0, Some(0), None);
    t.instance.producer.as_ref().unwrap().forget(EndpointId::new(0, 1));
    assert_eq!(t.told()["totalEndpoints"], 0);
    assert_eq!(t.ask(&[0, 1], 0, None, None), [1.0, 0.0]);
}
