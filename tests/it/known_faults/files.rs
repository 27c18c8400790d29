//! What happens to the pool when the endpoints file changes, in whatever way.

use crate::harness::engine::{Engine, Page, sglang, vllm};
use crate::harness::picker::{Picker, Setup, refusal_to_start};
use crate::harness::talk::*;
use crate::harness::{endpoints, entry, until};

const ASK: &str = r#"{"model":"m","prompt":"x"}"#;

async fn addresses(picker: &Picker) -> Vec<String> {
    let report = picker.report().await;
    let endpoints = report["endpoints"].as_array().expect("a list");
    endpoints.iter().map(|e| e["address"].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn an_empty_list_empties_the_pool() {
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&[engine.port])).await;
    picker.endpoints("endpoints: []");
    until("the empty list", async || picker.knows(0).await).await;
    let refused = picker.pick(COMPLETIONS, ASK).await.unwrap_err();
    let Refused::Answer { status, reason, .. } = refused else { panic!("expected an answer, found {refused:?}") };
    assert_eq!((status, reason.as_deref()), (503, Some("rejected-no-endpoints")));
}

#[tokio::test]
async fn a_bad_entry_costs_only_itself() {
    let engines = Engine::fleet(2).await;
    let bad = "- {name: spoiled, address: \"http://nope\", port: \"1\"}\n";
    let text = format!("endpoints:\n{}{bad}{}", entry("a", engines[0].port, "{}"), entry("b", engines[1].port, "{}"));
    let picker = Setup::scorers(&["queue-scorer"]).start(&text).await;
    assert_eq!(addresses(&picker).await, [engines[0].address(), engines[1].address()]);
    let warnings = picker.lines(&["warn"]);
    assert!(warnings.len() == 1 && warnings[0].contains("spoiled") && warnings[0].contains("scheme"), "{warnings:?}");
}

#[tokio::test]
async fn an_entry_that_leaves_and_returns_in_quick_turns_ends_as_the_file_says() {
    let engines = Engine::fleet(2).await;
    let both = endpoints(&[engines[0].port, engines[1].port]);
    let picker = Setup::scorers(&["queue-scorer"]).start(&both).await;
    for _ in 0..50 {
        picker.endpoints(&endpoints(&[engines[0].port]));
        tokio::task::yield_now().await;
        picker.endpoints(&both);
    }
    until("both", async || picker.knows(2).await).await;
    let seen = engines[1].scrapes();
    until("another scrape", async || engines[1].scrapes() > seen + 1).await;
    until("a pick of it", async || picker.pick(COMPLETIONS, ASK).await == Ok(engines[1].address())).await;
}

#[tokio::test]
async fn changed_labels_take_effect_and_keep_the_counts() {
    let engines = Engine::fleet(2).await;
    let text = |labels: &str| {
        format!("endpoints:\n{}{}", entry("a", engines[0].port, labels), entry("b", engines[1].port, "{}"))
    };
    let setup = Setup::scorers(&["queue-scorer"]).plugin("decode-filter", "{type: decode-filter}");
    let picker = setup.start(&text("{llm-d.ai/role: decode}")).await;
    let mut talk = picker.open().await;
    until("a pick of a", async || {
        talk = picker.open().await;
        talk.ask(COMPLETIONS, ASK).await == Ok(engines[0].address())
    })
    .await;
    until("the others' release", async || picker.in_flight().await == [1, 0]).await;

    picker.endpoints(&text("{llm-d.ai/role: prefill}"));
    until("the new role", async || picker.report().await["endpoints"][0]["labels"]["llm-d.ai/role"] == "prefill").await;
    until("the new role in picks", async || picker.pick(COMPLETIONS, ASK).await == Ok(engines[1].address())).await;
    for _ in 0..20 {
        assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engines[1].address()));
    }
    until("the others' release", async || picker.in_flight().await == [1, 0]).await;
    drop(talk);
    until("the release", async || picker.in_flight().await == [0, 0]).await;
}

#[tokio::test]
async fn a_changed_engine_type_changes_what_is_read() {
    let engine = Engine::start().await;
    engine.says(Page::Text(vllm(3, 0, 0.0) + &sglang(7)));
    let text =
        |kind: &str| format!("endpoints:\n{}", entry("a", engine.port, &format!("{{llm-d.ai/engine-type: {kind}}}")));
    let picker = Setup::scorers(&["queue-scorer"]).start(&text("vllm")).await;
    let waiting = async |n: f64| picker.report().await["endpoints"][0]["last"]["waiting"].as_f64() == Some(n);
    until("the queue of vLLM", async || waiting(3.0).await).await;
    picker.endpoints(&text("sglang"));
    until("the queue of SGLang", async || waiting(7.0).await).await;
}

#[tokio::test]
async fn unknown_keys_are_told_once_a_file() {
    let engines = Engine::fleet(3).await;
    let more = |e: &Engine, i: usize| {
        format!("- {{name: e{i}, address: 127.0.0.1, port: {}, rankIndex: {i}, extra: {{a: {{b: 1}}}}}}\n", e.port)
    };
    let text: String = engines.iter().enumerate().map(|(i, e)| more(e, i)).collect();
    for (flag, times) in [("-v=2", 0), ("-v=4", 1)] {
        let picker = Setup::scorers(&["queue-scorer"]).flag(flag).start(&format!("endpoints:\n{text}")).await;
        until("all", async || picker.knows(3).await).await;
        let told = picker.log().lines().filter(|l| l.contains("extra")).count();
        assert_eq!(told, times, "{}", picker.log());
    }
}

#[tokio::test]
async fn of_two_entries_of_one_name_the_last_is_used_and_the_other_left_alone() {
    let engines = Engine::fleet(2).await;
    let text = format!("endpoints:\n{}{}", entry("x", engines[0].port, "{}"), entry("x", engines[1].port, "{}"));
    let picker = Setup::scorers(&["queue-scorer"]).start(&text).await;
    until("the one", async || picker.knows(1).await).await;
    assert_eq!(addresses(&picker).await, [engines[1].address()]);
    assert_eq!(engines[0].scrapes(), 0);
    assert!(picker.lines(&["warn"]).iter().any(|l| l.contains("default/x")), "{}", picker.log());
}

#[tokio::test]
async fn a_missing_file_ends_the_start_with_its_path() {
    let log = refusal_to_start(Setup::scorers(&["queue-scorer"]).spawn(None)).await;
    assert!(log.contains("endpoints.yaml") && !log.contains("\"serving\""), "{log}");
}

#[tokio::test]
async fn an_address_with_more_than_a_host_is_left_out_with_its_reason() {
    let engine = Engine::start().await;
    for address in ["http://10.0.0.1", "10.0.0.1:8000", " 10.0.0.1 ", ""] {
        let text = format!("{}- {{name: odd, address: \"{address}\", port: \"1\"}}\n", endpoints(&[engine.port]));
        let picker = Setup::scorers(&["queue-scorer"]).start(&text).await;
        assert_eq!(addresses(&picker).await, [engine.address()], "{address:?}");
        let bad = &picker.report().await["file"]["bad"][0];
        let reason = bad["reason"].as_str().expect("a reason");
        assert!(bad["name"] == "odd" && reason.starts_with("address: expected an IP address"), "{address:?}: {bad}");
    }
}
