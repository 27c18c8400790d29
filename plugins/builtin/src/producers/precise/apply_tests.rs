//! Tests of what becomes of events, as requests see it.

use serde_json::json;

use super::super::testing::{Bench, Pack, cleared, frames, ids, removed, removed_of, stored};
use super::*;

fn bench() -> Bench {
    Bench::new(json!(null))
}

#[test]
fn leading_blocks_count_until_the_first_hole() {
    let bench = bench();
    let (hashes, tokens) = ([1, 2, 3, 4], ids(0, 64));
    for (held, expected) in [(&[1u64, 2][..], 2), (&[1, 3, 4], 1), (&[2, 3, 4], 0), (&[1, 2, 4], 2)] {
        bench.tell(0, [cleared(), stored(&hashes, &tokens).into()]);
        let gone: Vec<u64> = hashes.into_iter().filter(|hash| !held.contains(hash)).collect();
        bench.tell(0, [removed(&gone, "GPU")]);
        assert_eq!(bench.ask(&tokens), [expected, 0, 0], "{held:?}");
    }
}

#[test]
fn a_topic_names_the_model_if_it_has_three_parts() {
    for (topic, model) in [
        (&b"kv@pod-123@llama-2-7b"[..], "llama-2-7b"),
        (b"pod-123@llama-2-7b", ""),
        (b"fallback", ""),
        (b"kv@", ""),
        (b"", ""),
        (b"kv@a@b@c", ""),
        (b"kv@a@\xff\xfe", ""),
    ] {
        assert_eq!(model_of(topic), model);
    }
}

#[test]
fn models_adapters_salts_and_media_are_told_apart() {
    let mut bench = bench();
    let tokens = ids(0, 32);
    bench.tell_of("other", 0, [stored(&[1, 2], &tokens).into()]);
    bench.tell(1, [stored(&[3, 4], &tokens).with("lora_name", "adapter".into()).into()]);
    bench.tell(2, [stored(&[5, 6], &tokens).extras(&[&["img", "salt"], &["img"]]).into()]);
    assert_eq!(bench.ask(&tokens), [0, 0, 0]);
    bench.model = "other";
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
    bench.model = "adapter";
    assert_eq!(bench.ask(&tokens), [0, 2, 0]);
    bench.model = "m";
    bench.parsed.cache_salt = "salt".into();
    assert_eq!(bench.ask(&tokens), [0, 0, 0]);
    bench.parsed.features = vec![("img".into(), 3, 20)];
    assert_eq!(bench.ask(&tokens), [0, 0, 2]);
}

/// Engines hash an adapter's name into every block and list it first among the extra keys.
#[test]
fn the_name_of_the_adapter_is_no_extra_key() {
    let mut bench = bench();
    let tokens = ids(0, 32);
    let event = stored(&[3, 4], &tokens).with("lora_name", "adapter".into());
    bench.tell(0, [event.extras(&[&["adapter", "salt"], &["adapter"]]).into()]);
    (bench.model, bench.parsed.cache_salt) = ("adapter", "salt".into());
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
}

#[test]
fn a_child_goes_on_where_its_parent_ended_and_is_left_out_without_it() {
    let bench = bench();
    let tokens = ids(0, 64);
    bench.tell(0, [stored(&[3, 4], &tokens[32..]).after(77).into()]);
    assert_eq!((bench.ask(&tokens[32..]), bench.ask(&tokens)), ([0; 3], [0; 3]));
    assert_eq!(bench.metric("epp_kv_stores_dropped_total{reason=\"unknown_parent\"}"), Some(1));
    bench.tell(0, [stored(&[1, 2], &tokens[..32]).into()]);
    bench.tell(0, [stored(&[3, 4], &tokens[32..]).after(2).into()]);
    assert_eq!(bench.ask(&tokens), [4, 0, 0]);
    // Engines with equal hashes share what a hash stands for.
    bench.tell(1, [stored(&[3, 4], &tokens[32..]).after(2).into()]);
    assert_eq!(bench.ask(&tokens), [4, 0, 0]);
    bench.tell(1, [stored(&[1, 2], &tokens[..32]).into()]);
    assert_eq!(bench.ask(&tokens), [4, 4, 0]);
}

#[test]
fn several_blocks_of_an_engine_make_one() {
    let bench = Bench::blocks_of(64);
    let (tokens, hashes) = (ids(0, 128), [100, 101, 102, 103, 104, 105, 106, 107]);
    bench.tell(0, [stored(&hashes, &tokens).into()]);
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
    bench.tell(0, [removed(&[104], "GPU")]);
    assert_eq!(bench.ask(&tokens), [1, 0, 0]);
    bench.tell(0, [removed(&[100], "GPU")]);
    assert_eq!(bench.ask(&tokens), [0, 0, 0]);
}

#[test]
fn one_block_of_an_engine_makes_several() {
    let bench = Bench::blocks_of(64);
    let tokens = ids(0, 320);
    bench.tell(0, [stored(&[200, 201], &tokens[..256]).sized(128).into()]);
    assert_eq!(bench.ask(&tokens), [4, 0, 0]);
    bench.tell(0, [stored(&[202], &tokens[256..]).sized(64).after(201).into()]);
    assert_eq!(bench.ask(&tokens), [5, 0, 0]);
    bench.tell(0, [removed(&[200], "GPU")]);
    assert_eq!((bench.ask(&tokens), bench.ask(&tokens[128..])), ([0; 3], [0; 3]));
}

#[test]
fn less_than_a_block_is_not_indexed() {
    let bench = Bench::blocks_of(64);
    bench.tell(0, [stored(&[1, 2, 3], &ids(0, 48)).into()]);
    assert_eq!(bench.ask(&ids(0, 64)), [0; 3]);
    assert_eq!(bench.metric("epp_kv_stores_dropped_total{reason=\"short_of_a_block\"}"), Some(1));
    assert_eq!(bench.state()["blocks"], 0);
}

#[test]
fn what_is_stored_twice_is_removed_twice() {
    let bench = bench();
    let (tokens, hashes) = (ids(0, 64), [1, 2, 3, 4]);
    bench.tell(0, [stored(&hashes, &tokens).into(), stored(&hashes, &tokens).into(), removed(&hashes, "GPU")]);
    assert_eq!(bench.ask(&tokens), [4, 0, 0]);
    let counted = |what| bench.metric(&format!("llm_d_epp_kv_cache_events_dedup_removed_hashes_{what}_total")).unwrap();
    assert_eq!((counted("suppressed"), counted("forwarded")), (4, 0));
    bench.tell(0, [removed(&hashes, "GPU")]);
    assert_eq!(bench.ask(&tokens), [0; 3]);
    assert_eq!((counted("suppressed"), counted("forwarded")), (4, 4));
    assert_eq!(bench.metric("kvcache_kvevents_dedup_removed_hashes_forwarded_total"), Some(4));
    bench.tell(
        0,
        [stored(&hashes, &tokens).into(), stored(&hashes[..1], &tokens[..16]).into(), removed(&[1, 2, 9], "")],
    );
    assert_eq!(bench.ask(&tokens), [1, 0, 0]);
    assert_eq!((counted("suppressed"), counted("forwarded")), (5, 6));
}

#[test]
fn clearing_empties_one_endpoint_and_its_counts() {
    let bench = bench();
    let (tokens, hashes) = (ids(0, 64), [1, 2, 3, 4]);
    let store = || Pack::from(stored(&hashes, &tokens));
    bench.tell(1, [store()]);
    bench.tell(0, [store(), store(), stored(&hashes, &[]).on("CPU").into(), cleared()]);
    assert_eq!(bench.cached(&tokens), [0, 4, 0]);
    bench.tell(0, [store(), removed(&hashes, "GPU")]);
    assert_eq!(bench.cached(&tokens), [0, 4, 0]);
}

/// After `reset_prefix_cache`, as at each new version of a trained model, the engine is cold.
#[test]
fn what_a_real_engine_sent_is_indexed_and_cleared() {
    let mut bench = Bench::blocks_of(128);
    bench.model = "tiny";
    let (frames, tokens) = (frames(), bench_tokens());
    bench.sink().message(bench.id(0), &frames[0].topic, &frames[0].payload);
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
    bench.sink().message(bench.id(0), &frames[1].topic, &frames[1].payload);
    assert_eq!(bench.ask(&tokens), [0, 0, 0]);
}

/// The tokens of the real engine's prompt.
fn bench_tokens() -> Vec<u32> {
    let mut batch = Batch::default();
    batch.decode(super::super::events::Dialect::Vllm, &frames()[0].payload).unwrap();
    let [Event::Stored(event)] = batch.events() else { unreachable!() };
    batch.tokens(event).as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

#[test]
fn an_event_without_tokens_adds_a_tier_to_known_blocks() {
    let bench = bench();
    let (tokens, hashes) = (ids(0, 64), [1, 2, 3, 4]);
    bench.tell(0, [stored(&hashes, &[]).on("CPU").into(), stored(&hashes, &tokens).into(), removed(&hashes, "")]);
    assert_eq!(bench.cached(&tokens), [0; 3], "what was not known then is not there now");
    assert_eq!(bench.metric("epp_kv_stores_dropped_total{reason=\"unknown_blocks\"}"), Some(1));
    bench.tell(0, [stored(&hashes, &tokens).into(), stored(&hashes, &[]).on("CPU").into(), removed(&hashes, "")]);
    assert_eq!((bench.ask(&tokens), bench.cached(&tokens)), ([3, 0, 0], [4, 0, 0]));
    bench.tell(0, [removed(&hashes, "GPU")]);
    assert_eq!(bench.cached(&tokens), [4, 0, 0]);
    bench.tell(0, [removed(&hashes, "cpu")]);
    assert_eq!(bench.cached(&tokens), [0; 3]);
}

fn weighed(weights: serde_json::Value) -> Bench {
    Bench::new(json!({"indexerConfig": {"kvCacheBackendConfigs": weights}}))
}

#[test]
fn the_best_tier_of_each_block_counts() {
    let bench = weighed(json!([{"name": "gpu", "weight": 1.0}, {"name": "cpu", "weight": 0.5}]));
    let (tokens, hashes) = (ids(0, 96), [1, 2, 3, 4, 5, 6]);
    let on_cpu = |hashes: &[u64]| Pack::from(stored(hashes, &[]).on("CPU"));
    bench.tell(0, [stored(&hashes, &tokens).into(), on_cpu(&hashes[2..3]), removed(&hashes[3..5], "GPU")]);
    bench.tell(1, [on_cpu(&hashes[3..5])]);
    assert_eq!((bench.ask(&tokens), bench.cached(&tokens)), ([3, 0, 0], [3, 0, 0]));
    bench.tell(0, [removed(&hashes[2..3], "GPU")]);
    assert_eq!((bench.ask(&tokens), bench.cached(&tokens)), ([2, 0, 0], [3, 0, 0]), "2.5 is rounded down");
}

#[test]
fn blocks_weigh_by_tier_and_the_sum_is_rounded_down() {
    let default = || json!([{"name": "gpu", "weight": 1.0}, {"name": "cpu", "weight": 0.8}]);
    for (tiers, weights, expected) in [
        (&["GPU", "gpu", ""][..], default(), 3),
        (&["GPU", "CPU"], default(), 1),
        (&["CPU"; 5], default(), 4),
        (&["GPU", "cpu", "Cpu"], default(), 2),
        (&["CPU"], default(), 0),
        (&["disk", "DISK"], default(), 2),
        (&["GPU", "CPU", "CPU"], json!([{"name": "CPU", "weight": 0.5}]), 2),
        (&["GPU"; 4], json!([{"name": "gpu", "weight": 0.25}]), 1),
        (&["GPU"; 10], json!([{"name": "gpu", "weight": 0.1}]), 1),
        (&["GPU"], json!([{"name": "gpu", "weight": 2.5}]), 2),
    ] {
        let bench = weighed(weights);
        let tokens = ids(0, 16 * tiers.len() as u32);
        for (at, tier) in tiers.iter().enumerate() {
            let mut event = stored(&[at as u64 + 1], &tokens[16 * at..16 * at + 16]).on(tier);
            event.parent = (at > 0).then_some(at as u64);
            bench.tell(0, [event.into()]);
        }
        assert_eq!(bench.ask(&tokens), [expected, 0, 0], "{tiers:?}");
        assert_eq!(bench.cached(&tokens), [tiers.len() as u32, 0, 0], "{tiers:?}");
    }
}

#[test]
fn blocks_in_the_hosts_memory_are_told_apart() {
    let bench = bench();
    let (tokens, hashes) = (ids(0, 64), [1, 2, 3, 4]);
    bench.tell(0, [stored(&hashes, &tokens).into(), stored(&hashes[..2], &[]).on("cpu").into()]);
    bench.tell(1, [stored(&hashes[..3], &tokens[..48]).on("CPU").into()]);
    bench.tell(2, [stored(&hashes, &tokens).into()]);
    let matches = bench.send(&[&tokens], &[]).unwrap();
    let host: Vec<_> = matches.iter().map(|m| (m.cached_blocks, m.host_blocks)).collect();
    assert_eq!(host, [(4, Some(2)), (3, Some(3)), (4, Some(0))]);
}

#[test]
fn only_groups_that_keep_whole_prefixes_are_indexed() {
    let bench = bench();
    let tokens = ids(0, 32);
    for (kind, expected) in [
        ("full_attention", 2),
        ("mla_attention", 2),
        ("sink_full_attention", 2),
        ("sliding_window", 0),
        ("sliding_window_mla", 0),
        ("mamba", 0),
        ("chunked_local_attention", 0),
        ("encoder_only_attention", 0),
        ("cross_attention", 0),
        ("unknown", 0),
    ] {
        bench.tell(0, [cleared(), stored(&[1, 2], &tokens).group(4, kind).into()]);
        assert_eq!(bench.ask(&tokens), [expected, 0, 0], "{kind}");
    }
    bench.tell(1, [stored(&[1, 2], &tokens).group(4, "").into()]);
    assert_eq!(bench.ask(&tokens), [0; 3]);
    let skipped = |kind, reason| {
        let name = "llm_d_epp_kv_cache_events_stores_skipped_total";
        bench.metric(&format!("{name}{{cache_kind=\"{kind}\",reason=\"{reason}\"}}"))
    };
    assert_eq!(skipped("mamba", "unsupported_cache_kind"), Some(1));
    assert_eq!(skipped("unknown", "unsupported_cache_kind"), Some(1));
    bench.tell(1, [stored(&[1, 2], &tokens).group(4, "mla_attention").into(), cleared()]);
    bench.tell(1, [stored(&[1, 2], &tokens).group(4, "").into()]);
    assert_eq!(bench.ask(&tokens), [0, 2, 0], "the kind is remembered, also over a clear");
}

#[test]
fn blocks_of_a_group_must_span_their_tokens() {
    let bench = bench();
    let tokens = ids(0, 64);
    for (size, hashes, reason) in [
        (16, &[1u64][..], "non_dense_block_span"),
        (32, &[1, 2, 3, 4], "non_dense_block_span"),
        (i64::MAX, &[1, 2], "non_dense_block_span"),
        (0, &[1, 2, 3, 4], "invalid_block_size"),
    ] {
        let event = stored(hashes, &tokens).sized(size.into()).group(0, "full_attention");
        // The parent is not even looked for.
        bench.tell(0, [event.after(99).into()]);
        let labels = format!("cache_kind=\"full_attention\",reason=\"{reason}\"");
        assert!(bench.metric(&format!("llm_d_epp_kv_cache_events_stores_skipped_total{{{labels}}}")).is_some());
    }
    assert_eq!(bench.ask(&tokens), [0; 3]);
}

#[test]
fn a_block_stays_as_long_as_one_of_its_groups_holds_it() {
    let bench = bench();
    let (tokens, full) = (ids(0, 32), "full_attention");
    let of = |group| Pack::from(stored(&[1, 2], &tokens).group(group, full));
    bench.tell(0, [of(0), of(1), stored(&[7], &ids(9, 16)).group(70, "mamba").into()]);
    bench.tell(0, [removed_of(&[1, 2], 70), removed_of(&[1, 2], 71), removed_of(&[1, 2], 0)]);
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
    let skipped = |kind, reason| {
        let name = "llm_d_epp_kv_cache_events_removals_skipped_total";
        bench.metric(&format!("{name}{{cache_kind=\"{kind}\",reason=\"{reason}\"}}"))
    };
    assert_eq!((skipped("mamba", "unsupported_cache_kind"), skipped("unknown", "unknown_group")), (Some(1), Some(1)));
    bench.tell(0, [removed_of(&[1, 2], 1)]);
    assert_eq!(bench.ask(&tokens), [0; 3]);
}

#[test]
fn extra_keys_are_fitted_to_blocks_of_another_size() {
    let (img, none): (&[&str], &[&str]) = (&["img"], &[]);
    for (ours, theirs, keys, offset, expected) in [
        (16, 32, &[img, none][..], 0, 4),
        (16, 32, &[none, img], 32, 4),
        (16, 32, &[img, none], 16, 0),
        (32, 16, &[img, none, none, none], 0, 2),
        (32, 16, &[none, none, none, img], 40, 2),
    ] {
        let mut bench = Bench::blocks_of(ours);
        let (tokens, hashes) = (ids(0, 64), [1, 2, 3, 4]);
        bench.tell(0, [stored(&hashes[..keys.len()], &tokens).sized(theirs).extras(keys).into()]);
        bench.parsed.features = vec![("img".into(), offset, if ours == 32 { 24 } else { 32 })];
        assert_eq!(bench.ask(&tokens), [expected, 0, 0], "{ours} {theirs} {offset}");
    }
}

#[test]
fn a_message_that_cannot_be_read_changes_nothing() {
    let bench = bench();
    let tokens = ids(0, 32);
    bench.tell(0, [stored(&[1, 2], &tokens).into()]);
    bench.tell(0, [removed(&[1, 2], "GPU"), Pack::Null]);
    bench.sink().message(bench.id(0), b"kv@pod@m", b"");
    assert_eq!(bench.ask(&tokens), [2, 0, 0]);
    assert_eq!(bench.metric("epp_kv_batches_discarded_total"), Some(2));
    let state = bench.state();
    assert_eq!(state["endpoints"][0]["discarded"], 2);
    assert_eq!(state["endpoints"][0]["lastDiscarded"], "expected a batch of events, found the end of the message");
}

/// An engine that starts again holds nothing.
#[test]
fn what_is_lost_is_forgotten_at_that_endpoint() {
    let bench = bench();
    let tokens = ids(0, 32);
    for row in [0, 1] {
        bench.tell(row, [stored(&[1, 2], &tokens).into(), stored(&[1, 2], &[]).on("CPU").into()]);
    }
    bench.sink().lost(bench.id(0));
    assert_eq!(bench.cached(&tokens), [0, 2, 0]);
    bench.tell(0, [stored(&[1, 2], &tokens).into()]);
    assert_eq!(bench.cached(&tokens), [2, 2, 0]);
}

#[test]
fn who_has_left_comes_back_cold_and_late_messages_change_nothing() {
    let bench = bench();
    let tokens = ids(0, 32);
    for row in [0, 1] {
        bench.tell(row, [stored(&[1, 2], &tokens).into()]);
    }
    bench.producer().forget(bench.id(0));
    assert_eq!(bench.ask(&tokens), [0, 2, 0]);
    bench.tell(0, [stored(&[1, 2], &tokens).into()]);
    bench.sink().lost(bench.id(0));
    assert_eq!(bench.ask(&tokens), [0, 2, 0]);
    assert_eq!(bench.state()["nEndpoints"], 1);
    // The same slot, given to another endpoint.
    let next = EndpointId::new(bench.id(0).slot() as u32, 100);
    let payload = super::super::testing::batch(vec![stored(&[1, 2], &tokens).into()]);
    bench.sink().message(next, b"kv@pod@m", &payload);
    assert_eq!(bench.ask(&tokens), [0, 2, 0], "it is not the endpoint of the board");
    assert_eq!(bench.state()["blocks"], 4);
}
