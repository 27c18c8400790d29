//! Tests of what is told when events cannot be matched to requests.

use serde_json::{Value, json};

use super::super::testing::{Bench, Pack, ids, stored};

/// The causes that are told of the first endpoint.
fn causes(bench: &Bench) -> Vec<String> {
    let told = bench.state()["endpoints"][0]["mismatches"].clone();
    told.as_array().into_iter().flatten().map(|it| it["cause"].as_str().unwrap().to_owned()).collect()
}

fn detail(bench: &Bench) -> String {
    bench.state()["endpoints"][0]["mismatches"][0]["detail"].as_str().unwrap_or_default().to_owned()
}

fn counted(bench: &Bench, cause: &str) -> Option<u64> {
    bench.metric(&format!("epp_kv_mismatch_total{{cause=\"{cause}\"}}"))
}

fn bench() -> Bench {
    Bench::new(json!(null))
}

#[test]
fn block_sizes_that_do_not_divide_each_other_are_told_once() {
    for (size, told) in [(16, false), (8, false), (64, false), (24, true), (10, true)] {
        let bench = bench();
        for _ in 0..3 {
            bench.tell(0, [stored(&[1, 2], &ids(0, 48)).sized(size).into()]);
        }
        assert_eq!(causes(&bench) == ["block_size"], told, "{size}");
        assert_eq!(counted(&bench, "block_size"), told.then_some(1), "{size}");
    }
    let bench = bench();
    bench.tell(0, [stored(&[1, 2], &ids(0, 48)).sized(24).into()]);
    assert!(detail(&bench).contains("blocks hold 24 tokens, those of the picker 16"));
}

#[test]
fn a_model_that_nobody_asks_for_is_told_with_the_one_that_is_asked_for() {
    let bench = bench();
    let event = || Pack::from(stored(&[1], &ids(0, 16)));
    bench.tell_of("/models/served", 0, [event()]);
    for _ in 0..40 {
        bench.ask(&ids(0, 16));
    }
    assert_eq!(causes(&bench), [""; 0]);
    bench.tell_of("/models/served", 0, [event(), event()]);
    assert_eq!((causes(&bench), counted(&bench, "model")), (vec!["model".to_owned()], Some(1)));
    assert!(detail(&bench).contains("\"/models/served\"") && detail(&bench).contains("\"m\""), "{}", detail(&bench));
}

#[test]
fn a_second_model_is_no_mismatch_while_requests_find_something() {
    let bench = bench();
    bench.tell(0, [stored(&[1], &ids(0, 16)).into()]);
    for _ in 0..40 {
        bench.ask(&ids(0, 16));
    }
    bench.tell_of("idle", 0, [stored(&[2], &ids(0, 16)).into()]);
    assert_eq!(causes(&bench), [""; 0]);
}

#[test]
fn a_hash_with_other_tokens_is_told() {
    let bench = bench();
    bench.tell(0, [stored(&[1, 2], &ids(0, 32)).into(), stored(&[1, 2], &ids(0, 32)).into()]);
    assert_eq!(causes(&bench), [""; 0]);
    bench.tell(0, [stored(&[1, 2], &ids(500, 32)).into()]);
    assert_eq!(causes(&bench), ["reused_hash"]);
    assert_eq!(bench.ask(&ids(500, 32)), [2, 0, 0], "the newest counts");
}

/// One hash is one block under each name of the model.
#[test]
fn engines_that_name_a_model_differently_reuse_no_hash() {
    let bench = bench();
    bench.tell_of("a", 0, [stored(&[1, 2], &ids(0, 32)).into()]);
    bench.tell_of("b", 1, [stored(&[1, 2], &ids(0, 32)).into()]);
    bench.tell_of("b", 0, [stored(&[1, 2], &ids(0, 32)).into()]);
    assert_eq!(counted(&bench, "reused_hash"), None);
}

#[test]
fn many_unknown_parents_are_told_and_a_few_are_not() {
    let orphan = || Pack::from(stored(&[7], &ids(0, 16)).after(99));
    let good = || Pack::from(stored(&[1], &ids(0, 16)));
    for (orphans, goods, told) in [(31, 0, false), (32, 0, true), (40, 60, false)] {
        let bench = bench();
        (0..goods).for_each(|_| bench.tell(0, [good()]));
        (0..orphans).for_each(|_| bench.tell(0, [orphan()]));
        assert_eq!(causes(&bench) == ["unknown_parents"], told, "{orphans} of {}", orphans + goods);
        assert!(!told || detail(&bench).contains("replaySocketPort"));
    }
}

#[test]
fn an_endpoint_that_cannot_be_read_at_all_is_told() {
    for (good_first, told) in [(false, true), (true, false)] {
        let bench = bench();
        if good_first {
            bench.tell(0, []);
        }
        (0..20).for_each(|_| bench.sink().message(bench.id(0), b"kv@pod@m", b"\x90"));
        assert_eq!(causes(&bench) == ["undecodable"], told);
        assert_eq!(counted(&bench, "undecodable"), told.then_some(1));
    }
}

#[test]
fn extra_keys_that_no_request_has_are_told() {
    for (salt, told) in [("", true), ("s", false)] {
        let mut bench = bench();
        bench.parsed.cache_salt = salt.into();
        for _ in 0..40 {
            bench.ask(&ids(900, 16));
        }
        (0..40).for_each(|_| bench.tell(0, [stored(&[1], &ids(0, 16)).extras(&[&["x"]]).into()]));
        assert_eq!(causes(&bench) == ["extras"], told, "{salt:?}");
    }
}

#[test]
fn each_endpoint_is_told_of_by_itself() {
    let bench = bench();
    for row in [0, 1, 1] {
        bench.tell(row, [stored(&[1], &ids(0, 24)).sized(24).into()]);
    }
    assert_eq!(counted(&bench, "block_size"), Some(2));
    let told = bench.state()["endpoints"].clone();
    assert_eq!(told.as_array().map(Vec::len), Some(2));
    assert_eq!(told[1]["mismatches"][0]["cause"], Value::from("block_size"));
}
