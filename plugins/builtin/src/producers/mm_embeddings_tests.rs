//! Tests of `mm-embeddings-cache-producer`.

use epp_plugin_api::{EndpointIdx, Parsed, ProfileRun, Runs};
use serde_json::json;

use crate::testing::{Rig, Row, cycle, node, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!(null));

struct Try {
    rig: Rig,
    producer: Arc<dyn Producer>,
}

impl Try {
    fn new(parameters: serde_json::Value) -> Self {
        let rig = Rig::default();
        let producer = rig.build(&TYPE, parameters).producer.unwrap();
        Self { rig, producer }
    }

    /// What the two endpoints are believed to have of a request, which then goes to the rows `to`.
    fn ask(&self, request: &InferenceRequest, to: &[u32]) -> Option<Vec<(u32, u32)>> {
        let board = snapshot(1, vec![Row::default(); 2]);
        let (cx, mut columns) = (cycle(&board, request), Columns::default());
        columns.reset(2);
        self.producer.produce(&cx, &mut columns).unwrap();
        let chose = ProfileRun::Chose(to.iter().copied().map(EndpointIdx).collect());
        let runs = Runs { names: vec!["default".into()], runs: vec![chose], peer: None };
        self.producer.learn(&cx, &columns, &Picked { runs: &runs, primary: 0 });
        let column = columns.read(self.rig.slots.column::<EncoderMatch>("mm-embeddings-cache-producer"))?;
        Some(column.iter().map(|known| (known.matched, known.requested)).collect())
    }
}

/// A request whose images are the letters of the text.
fn images(letters: &str) -> InferenceRequest {
    let pieces = (0..letters.len()).map(|at| Piece::Image { at: at..at + 1, escaped: false }).collect();
    request(letters.as_bytes(), Parsed { pieces, ..Parsed::default() })
}

#[test]
fn an_endpoint_has_what_it_was_sent() {
    let t = Try::new(json!(null));
    assert_eq!(t.ask(&images("ab"), &[0]), Some(vec![(0, 2), (0, 2)]));
    assert_eq!(t.ask(&images("abcd"), &[]), Some(vec![(2, 4), (0, 4)]));
    assert_eq!(t.ask(&images("ca"), &[0, 1]), Some(vec![(1, 2), (0, 2)]));
    assert_eq!(t.ask(&images("c"), &[]), Some(vec![(1, 1), (1, 1)]));
    t.producer.forget(EndpointId::new(0, 1));
    assert_eq!(t.ask(&images("c"), &[]), Some(vec![(0, 1), (1, 1)]));
}

#[test]
fn a_medium_counts_once() {
    assert_eq!(Try::new(json!(null)).ask(&images("aab"), &[]), Some(vec![(0, 2), (0, 2)]));
}

#[test]
fn hashes_that_come_with_token_ids_count() {
    let t = Try::new(json!(null));
    let features = |hashes: &[&str]| {
        let features = hashes.iter().map(|hash| (hash.to_string(), 4, 8)).collect();
        request(b"", Parsed { features, ..Parsed::default() })
    };
    assert_eq!(t.ask(&features(&["h", ""]), &[1]), Some(vec![(0, 1), (0, 1)]));
    assert_eq!(t.ask(&features(&["h", "i"]), &[1]), Some(vec![(0, 2), (1, 2)]));
}

#[test]
fn a_request_without_media_has_no_matches() {
    let t = Try::new(json!(null));
    t.ask(&images("a"), &[0]);
    assert_eq!(t.ask(&images(""), &[0]), None);
}

#[test]
fn an_escape_is_the_character_that_it_stands_for() {
    let t = Try::new(json!(null));
    let image = |body: &str, escaped| {
        let pieces = vec![Piece::Image { at: 0..body.len(), escaped }];
        request(body.as_bytes(), Parsed { pieces, ..Parsed::default() })
    };
    t.ask(&image("http://x/a", false), &[0]);
    assert_eq!(t.ask(&image(r"http:\/\/x\/\u0061", true), &[]), Some(vec![(1, 1), (0, 1)]));
}

#[test]
fn two_megabytes_hold_one_item() {
    for (megabytes, most) in [(4, 2), (1, 1), (2048, 1024), (0, 2048), (-1, 2048), (i64::MAX, 1 << 20)] {
        let cfg: Config = node(json!({"cacheSizeInMBPerServer": megabytes})).decode().unwrap();
        assert_eq!(cfg.most(), most, "{megabytes}");
    }
    assert!(Rig::default().refused(&TYPE, json!({"cacheSizeInMB": 1})).contains("cacheSizeInMB"));
}

#[test]
fn queries_and_hits_are_counted() {
    let t = Try::new(json!(null));
    t.ask(&images("ab"), &[0]);
    t.ask(&images("ab"), &[]);
    let page = t.rig.page();
    let labels =
        r#"plugin_type="mm-embeddings-cache-producer",plugin_name="mm-embeddings-cache-producer",modality="image""#;
    assert!(page.contains(&format!("llm_d_epp_encoder_cache_queries_total{{{labels}}} 4\n")), "{page}");
    assert!(page.contains(&format!("llm_d_epp_encoder_cache_hits_total{{{labels},pod=\"e0\"}} 2\n")), "{page}");
    t.producer.forget(EndpointId::new(0, 1));
    assert!(!t.rig.page().contains("pod=\"e0\""));
}
