//! Tests of the precise prefix producer as the pipeline sees it.

use std::time::Duration;

use epp_plugin_api::EndpointName;
use serde_json::{Value, json};

use super::testing::{Bench, Pack, ids, stored};
use super::*;
use crate::testing::{Rig, scores};

crate::conformance!(TYPE, json!({"speculativeIndexing": true}));

fn of(parameters: Value, prompt: &[u32], told: u32) -> Vec<(u32, u32, u32)> {
    let bench = Bench::new(parameters);
    bench.tell(0, [stored(&[1, 2, 3, 4], &prompt[..told as usize]).into()]);
    let matches = bench.send(&[prompt], &[]).unwrap_or_default();
    matches.iter().map(|m| (m.match_blocks, m.total_blocks, m.block_tokens)).collect()
}

#[test]
fn only_full_blocks_count() {
    for (n, expected) in [(64, (4, 4)), (65, (4, 4)), (79, (4, 4)), (80, (4, 5)), (16, (1, 1)), (128, (4, 8))] {
        let bench = Bench::new(json!(null));
        bench.tell(0, [stored(&[1, 2, 3, 4], &ids(0, 64)).into()]);
        let known = bench.send(&[&ids(0, n)], &[]).unwrap()[0];
        assert_eq!((known.match_blocks, known.total_blocks), expected, "{n}");
    }
    assert_eq!(of(json!({"tokenProcessorConfig": {"blockSize": 32}}), &ids(0, 64), 64)[0], (2, 2, 32));
}

#[test]
fn nothing_is_written_without_a_full_block() {
    let bench = Bench::new(json!(null));
    assert_eq!(bench.send(&[&ids(0, 15)], &[]), None);
    assert_eq!(bench.send(&[], &[("default", 0)]), None);
    assert_eq!(bench.send(&[&ids(0, 16)], &[]).unwrap().len(), 3);
}

#[test]
fn every_algorithm_and_seed_finds_what_is_told() {
    for algorithm in ["", "cbor-fnv", "xxh64"] {
        let processor = json!({"hashAlgorithm": algorithm, "hashSeed": "42", "blockSizeTokens": 16});
        assert_eq!(of(json!({"tokenProcessorConfig": processor}), &ids(0, 64), 64)[0], (4, 4, 16), "{algorithm}");
    }
}

#[test]
fn prompts_of_one_request_are_summed() {
    let bench = Bench::new(json!(null));
    let (a, b) = (ids(0, 32), ids(1000, 32));
    bench.tell(0, [stored(&[1, 2], &a).into(), stored(&[3], &b[..16]).on("CPU").into()]);
    let known = bench.send(&[&a, &ids(5, 3), &b], &[]).unwrap()[0];
    assert_eq!((known.match_blocks, known.total_blocks, known.cached_blocks), (2, 4, 3));
}

#[test]
fn a_pick_is_believed_until_the_time_is_up() {
    let mut bench = Bench::new(json!({"speculativeIndexing": true, "speculativeTTL": "300ms"}));
    let tokens = ids(0, 64);
    bench.send(&[&tokens], &[("decode", 0), ("prefill", 2), ("encode", 1)]);
    assert_eq!(bench.ask(&tokens), [4, 0, 4]);
    bench.tell(0, [stored(&[1, 2], &tokens[..32]).on("CPU").into()]);
    assert_eq!(bench.ask(&tokens), [4, 0, 4], "what is believed counts in full");
    bench.wait(Duration::from_millis(200));
    bench.send(&[&tokens], &[("decode", 0)]);
    bench.wait(Duration::from_millis(200));
    assert_eq!(bench.ask(&tokens), [4, 0, 0], "another pick makes it last longer");
    bench.wait(Duration::from_millis(200));
    assert_eq!((bench.ask(&tokens), bench.cached(&tokens)), ([1, 0, 0], [2, 0, 0]), "what the engine said stays");
}

#[test]
fn nothing_is_believed_unless_asked_for() {
    let bench = Bench::new(json!(null));
    let tokens = ids(0, 64);
    bench.send(&[&tokens], &[("default", 0)]);
    assert_eq!(bench.ask(&tokens), [0; 3]);
}

#[test]
fn who_has_left_is_believed_to_hold_nothing() {
    let mut bench = Bench::new(json!({"speculativeIndexing": true}));
    let tokens = ids(0, 64);
    bench.send(&[&tokens], &[("default", 0)]);
    bench.producer().forget(bench.id(0));
    assert_eq!(bench.ask(&tokens), [0; 3]);
    bench.send(&[&tokens], &[("default", 0)]);
    assert_eq!(bench.ask(&tokens), [0; 3]);
    bench.wait(Duration::from_secs(5));
    assert_eq!(bench.ask(&tokens), [0; 3]);
}

#[test]
fn a_block_remembers_only_so_many_holders_if_asked_to() {
    let index = json!({"kvBlockIndexConfig": {"inMemoryConfig": {"podCacheSize": 2}}});
    let bench = Bench::new(json!({"indexerConfig": index}));
    let tokens = ids(0, 32);
    (0..3).for_each(|row| bench.tell(row, [stored(&[1, 2], &tokens).into()]));
    assert_eq!(bench.ask(&tokens), [0, 2, 2]);
}

#[test]
fn metrics_of_the_index_are_there_if_asked_for() {
    assert!(!Bench::new(json!(null)).rig.page().contains("kv_cache_index"));
    let bench = Bench::new(json!({"indexerConfig": {"kvBlockIndexConfig": {"enableMetrics": true}}}));
    let tokens = ids(0, 64);
    bench.tell(0, [stored(&[1, 2, 3, 4], &tokens).into()]);
    bench.tell(1, [stored(&[1, 2], &tokens[..32]).into()]);
    bench.ask(&tokens);
    bench.ask(&ids(500, 16));
    bench.tell(0, [super::testing::removed(&[4, 9], "GPU")]);
    for (name, value) in
        [("admissions", 6), ("evictions", 1), ("lookup_requests", 2), ("lookup_hits", 4), ("max_pod_hit_count", 4)]
    {
        assert_eq!(bench.metric(&format!("llm_d_epp_kv_cache_index_{name}_total")), Some(value), "{name}");
        assert_eq!(bench.metric(&format!("kvcache_index_{name}_total")), Some(value), "{name}");
    }
}

#[test]
fn the_scorer_keeps_an_index_of_its_own_and_scores_by_it() {
    let mut bench = Bench::new(json!(null));
    bench.instance = bench.rig.build(&SCORER, json!({"tokenProcessorConfig": {"blockSizeTokens": 16}}));
    let tokens = ids(0, 64);
    bench.tell(1, [stored(&[1, 2], &tokens[..32]).into()]);
    let mut columns = epp_plugin_api::Columns::default();
    columns.reset(3);
    let key = bench.rig.slots.column::<PrefixMatch>(SCORER.name);
    let known = PrefixMatch { match_blocks: 2, total_blocks: 4, block_tokens: 16, cached_blocks: 2, host_blocks: None };
    columns.write(key)[1] = known;
    assert_eq!(scores(&**bench.instance.scorer.as_ref().unwrap(), &bench.board, &columns), [0.0, 0.5, 0.0]);
    assert!(bench.instance.producer.is_some() && bench.instance.kv.is_some());
    crate::testing::conformance::check(&SCORER, json!(null));
}

#[test]
fn says_what_it_wants_to_hear() {
    let kv = Bench::new(
        json!({"kvEventsConfig": {"topicFilter": "events@", "discoverPods": false, "zmqEndpoint": "tcp://*:1"}}),
    );
    let kv = kv.instance.kv.unwrap();
    assert_eq!((kv.topic.as_str(), kv.bind.as_deref(), kv.connect), ("events@", Some("tcp://*:1"), None));
}

#[test]
fn needs_tokens() {
    for kind in [&TYPE, &SCORER] {
        let [reads, ..] = Rig::default().keys(kind, json!(null));
        assert_eq!(reads[0].to_string(), "TokenizedPrompt/token-producer");
    }
}

#[test]
fn the_state_tells_who_said_what() {
    let bench = Bench::new(json!({"speculativeIndexing": true}));
    let tokens = ids(0, 32);
    bench.tell(1, [stored(&[1, 2], &tokens).into(), stored(&[1], &[]).on("CPU").into(), Pack::from(stored(&[5], &[]))]);
    bench.tell(1, [super::testing::removed(&[2], "GPU"), stored(&[3], &ids(7, 16)).after(99).into()]);
    assert_eq!(bench.state()["endpoints"][0]["endpoint"], "endpoint in slot 1");
    let name = EndpointName { namespace: "default".into(), name: "e1".into() };
    bench.sink().begins(bench.id(1), &name);
    bench.send(&[&tokens], &[("default", 1)]);
    let state = bench.state();
    assert_eq!((&state["blocks"], &state["blockTokens"], &state["nEndpoints"]), (&json!(4), &json!(16), &json!(1)));
    assert!(state["bytes"].as_u64().is_some());
    let told = &state["endpoints"][0];
    assert_eq!(told["endpoint"], "default/e1");
    let places = json!([{"tier": "gpu", "group": null, "blocks": 1}, {"tier": "cpu", "group": null, "blocks": 1}]);
    assert_eq!((&told["places"], &told["speculativeBlocks"]), (&places, &json!(2)));
    assert_eq!((&told["messages"], &told["unknownParents"]), (&json!(2), &json!(1)));
    assert_eq!((&told["events"], &told["models"]), (&json!({"stored": 4, "removed": 1, "cleared": 0}), &json!(["m"])));
    assert_eq!(
        (&told["discarded"], &told["lastDiscarded"], &told["mismatches"]),
        (&json!(0), &json!(null), &json!([]))
    );
}

#[test]
fn the_state_shows_a_hundred_endpoints() {
    let bench = Bench::new(json!(null));
    for slot in 0..150 {
        let payload = super::testing::batch(vec![stored(&[1], &ids(0, 16)).into()]);
        bench.sink().message(EndpointId::new(slot, slot + 1), b"kv@pod@m", &payload);
    }
    let state = bench.state();
    assert_eq!((state["endpoints"].as_array().unwrap().len(), &state["nEndpoints"]), (100, &json!(150)));
}
