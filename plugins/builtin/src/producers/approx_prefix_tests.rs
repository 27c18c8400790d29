//! Tests of the approximate prefix producer.

use epp_plugin_api::{Parsed, Piece, ProfileRun, Runs};
use serde_json::json;

use crate::producers::token;
use crate::testing::{Rig, Row, cycle, request, snapshot};

use super::*;

crate::conformance!(TYPE, json!({"autoTune": false}));

/// A producer, and the tokenizer before it.
struct Bench {
    rig: Rig,
    tokens: Arc<dyn Producer>,
    producer: Arc<dyn Producer>,
    model: &'static str,
    salt: &'static str,
}

impl Bench {
    fn new(parameters: serde_json::Value) -> Self {
        let rig = Rig::default();
        let tokens = rig.build(&token::TYPE, json!(null)).producer.unwrap();
        let producer = rig.build(&TYPE, parameters).producer.unwrap();
        Self { rig, tokens, producer, model: "m", salt: "" }
    }

    /// Matched and total blocks by row for a request of these prompts; then it goes where `runs` says.
    fn send(&self, board: &Snapshot, prompts: &[&[u32]], runs: &[(&str, u32)]) -> Vec<(u32, u32)> {
        let mut parsed = Parsed { cache_salt: self.salt.into(), ..Parsed::default() };
        for prompt in prompts {
            let start = parsed.ids.len() / 4;
            parsed.ids.extend(prompt.iter().flat_map(|id| id.to_le_bytes()));
            parsed.pieces.push(Piece::NextPrompt);
            parsed.pieces.push(Piece::Ids { at: start..start + prompt.len() });
        }
        let mut request = request(b"", parsed);
        request.target_model = self.model.into();
        let cx = cycle(board, &request);
        let mut columns = Columns::default();
        columns.reset(board.rows());
        self.tokens.produce(&cx, &mut columns).unwrap();
        self.producer.produce(&cx, &mut columns).unwrap();
        let key = self.rig.slots.column::<PrefixMatch>(TYPE.name);
        let got = columns.read(key).unwrap().iter().map(|m| (m.match_blocks, m.total_blocks)).collect();
        if !runs.is_empty() {
            let runs = Runs {
                names: runs.iter().map(|(name, _)| name.to_string()).collect(),
                runs: runs.iter().map(|(_, row)| ProfileRun::Chose(vec![EndpointIdx(*row)])).collect(),
                peer: None,
            };
            self.producer.learn(&cx, &columns, &Picked { runs: &runs, primary: 0 });
        }
        got
    }

    fn ask(&self, board: &Snapshot, prompt: &[u32]) -> Vec<(u32, u32)> {
        self.send(board, &[prompt], &[])
    }
}

fn pool(n: usize) -> Snapshot {
    snapshot(1, vec![Row::default(); n])
}

fn engine(block_tokens: u32, blocks: u32) -> Row {
    let mut row = Row::heard(0.0, 0.0, 0.0);
    row.observed.block_tokens = Some(block_tokens);
    row.observed.blocks = Some(blocks);
    row
}

fn ids(start: u32, n: u32) -> Vec<u32> {
    (start..start + n).collect()
}

#[test]
fn nobody_holds_a_new_prompt() {
    let bench = Bench::new(json!(null));
    assert_eq!(bench.ask(&pool(2), &ids(0, 100)), [(0, 2), (0, 2)]);
}

#[test]
fn the_target_and_the_prefill_choice_hold_the_prompt() {
    let bench = Bench::new(json!(null));
    let board = pool(3);
    bench.send(&board, &[&ids(0, 128)], &[("decode", 0), ("prefill", 2), ("encode", 1)]);
    let fork = [ids(0, 64), ids(900, 64)].concat();
    assert_eq!(bench.ask(&board, &fork), [(1, 2), (0, 2), (1, 2)]);
    assert_eq!(bench.ask(&board, &ids(64, 64)), [(0, 1); 3]);
}

#[test]
fn short_prompts_share_nothing_unless_they_are_equal() {
    let bench = Bench::new(json!(null));
    let board = pool(1);
    bench.send(&board, &[&[1, 2, 3]], &[("default", 0)]);
    assert_eq!(bench.ask(&board, &[1, 2, 4]), [(0, 1)]);
    assert_eq!(bench.ask(&board, &[1, 2]), [(0, 1)]);
    assert_eq!(bench.ask(&board, &[1, 2, 3]), [(1, 1)]);
}

#[test]
fn models_and_salts_share_nothing() {
    let mut bench = Bench::new(json!(null));
    let board = pool(1);
    bench.send(&board, &[&ids(0, 64)], &[("default", 0)]);
    for (model, salt, blocks) in [("m", "", 1), ("n", "", 0), ("m", "s", 0)] {
        (bench.model, bench.salt) = (model, salt);
        assert_eq!(bench.ask(&board, &ids(0, 64)), [(blocks, 1)], "{model} {salt}");
    }
}

#[test]
fn each_prompt_of_a_request_counts() {
    let bench = Bench::new(json!(null));
    let board = pool(1);
    let (x, y, z) = (ids(0, 64), ids(100, 64), ids(200, 64));
    bench.send(&board, &[&x, &y], &[("default", 0)]);
    assert_eq!(bench.ask(&board, &y), [(1, 1)]);
    assert_eq!(bench.send(&board, &[&x, &z, &y, &ids(300, 1)], &[]), [(2, 4)]);
}

#[test]
fn only_so_many_prompts_of_a_request_count() {
    let bench = Bench::new(json!(null));
    let prompts = vec![&[7u32][..]; MOST_PROMPTS + 1];
    assert_eq!(bench.send(&pool(1), &prompts, &[]), [(0, MOST_PROMPTS as u32)]);
}

#[test]
fn a_request_without_tokens_is_told_so() {
    let bench = Bench::new(json!(null));
    let board = pool(1);
    assert_eq!(bench.send(&board, &[], &[("default", 0)]), [(0, 0)]);
}

#[test]
fn a_block_is_what_the_engine_says_but_at_least_64_tokens() {
    for (parameters, said, total) in [
        (json!(null), 128, 2),
        (json!(null), 16, 3),
        (json!(null), 0, 3),
        (json!({"blockSizeTokens": 192}), 0, 1),
        (json!({"blockSizeTokens": 192}), 16, 3),
        (json!({"autoTune": false, "blockSizeTokens": 32}), 128, 3),
        (json!({"autoTune": false, "blockSize": 96}), 16, 2),
        (json!({"autoTune": false, "blockSize": 96, "blockSizeTokens": 192}), 16, 1),
    ] {
        let board = snapshot(1, [Row::default(), engine(said, 0)]);
        assert_eq!(Bench::new(parameters.clone()).ask(&board, &ids(0, 192))[0].1, total, "{parameters} {said}");
    }
}

#[test]
fn only_so_much_of_a_prompt_counts() {
    for (tokens, blocks, total) in [(128, 2048, 2), (191, 1, 2), (63, 9, 0), (0, 3, 3), (0, 0, 4), (131_072, 0, 4)] {
        let parameters = json!({"maxPrefixTokensToMatch": tokens, "maxPrefixBlocksToMatch": blocks});
        assert_eq!(Bench::new(parameters).ask(&pool(1), &ids(0, 256)), [(0, total)], "{tokens} {blocks}");
    }
}

#[test]
fn an_endpoint_keeps_its_most_recent_blocks() {
    for (parameters, said, kept) in [
        (json!(null), 2, 2),
        (json!({"lruCapacityPerServer": 3}), 0, 3),
        (json!({"lruCapacityPerServer": 100}), 3, 3),
        (json!({"autoTune": false, "lruCapacityPerServer": 3}), 1000, 3),
    ] {
        let (bench, board) = (Bench::new(parameters), snapshot(1, [engine(64, said)]));
        for n in 0..=kept {
            bench.send(&board, &[&ids(n * 1000, 64)], &[("default", 0)]);
        }
        for n in 0..=kept {
            assert_eq!(bench.ask(&board, &ids(n * 1000, 64)), [(u32::from(n > 0), 1)], "{said} {n}");
        }
    }
}

#[test]
fn a_removed_endpoint_comes_back_cold() {
    let bench = Bench::new(json!(null));
    let board = pool(2);
    bench.send(&board, &[&ids(0, 128)], &[("default", 0)]);
    bench.send(&board, &[&ids(0, 64)], &[("default", 1)]);
    assert!(bench.rig.page().contains("llm_d_epp_prefix_indexer_size{plugin_name=\"approx-prefix-cache-producer\",plugin_type=\"approx-prefix-cache-producer\"} 3\n"));
    bench.producer.forget(board.id(EndpointIdx(0)));
    assert_eq!(bench.ask(&board, &ids(0, 128)), [(0, 2), (1, 2)]);
    assert!(bench.rig.page().contains("inference_extension_prefix_indexer_size 1\n"));
}

#[test]
fn metrics_tell_hits_of_the_target() {
    let bench = Bench::new(json!(null));
    let board = pool(1);
    bench.send(&board, &[&ids(0, 256)], &[("default", 0)]);
    bench.send(&board, &[&[ids(0, 128), ids(900, 128)].concat()], &[("default", 0)]);
    bench.send(&board, &[], &[("default", 0)]);
    let page = bench.rig.page();
    let labels = "plugin_name=\"approx-prefix-cache-producer\",plugin_type=\"approx-prefix-cache-producer\"";
    for line in [
        format!("llm_d_epp_prefix_indexer_size{{{labels}}} 6"),
        format!("llm_d_epp_prefix_indexer_hit_ratio_sum{{{labels}}} 0.5"),
        format!("llm_d_epp_prefix_indexer_hit_ratio_count{{{labels}}} 2"),
        format!("llm_d_epp_prefix_indexer_hit_ratio_bucket{{le=\"0.4\",{labels}}} 1"),
        format!("llm_d_epp_prefix_indexer_hit_ratio_bucket{{le=\"0.5\",{labels}}} 2"),
        format!("llm_d_epp_prefix_indexer_hit_bytes_sum{{{labels}}} 512.0"),
        format!("llm_d_epp_prefix_indexer_hit_bytes_count{{{labels}}} 3"),
        "inference_extension_prefix_indexer_hit_ratio_count 2".to_owned(),
        "inference_extension_prefix_indexer_hit_bytes_sum 512.0".to_owned(),
    ] {
        assert!(page.lines().any(|l| l == line), "{line}\n{page}");
    }
}

#[test]
fn refuses_parameters_out_of_range() {
    for (parameters, culprit) in [
        (json!({"autoTune": false, "blockSizeTokens": 0}), "blockSizeTokens"),
        (json!({"maxPrefixTokensToMatch": -1}), "maxPrefixTokensToMatch"),
        (json!({"blockSizeTokens": "16"}), "blockSizeTokens"),
        (json!({"maxPrefixToknesToMatch": 100}), "maxPrefixToknesToMatch"),
    ] {
        assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
    }
    Rig::default().build(&TYPE, json!({"blockSizeTokens": 0}));
}

#[test]
fn needs_tokens() {
    let [reads, ..] = Rig::default().keys(&TYPE, json!(null));
    assert_eq!(reads[0].to_string(), "TokenizedPrompt/token-producer");
}
