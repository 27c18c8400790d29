//! Pages of engines, and the picker's own page.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::engine::{Engine, Page, vllm};
use crate::harness::picker::Setup;
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

const ASK: &str = r#"{"model":"m","prompt":"x"}"#;

fn sample(name: &str) -> String {
    let path = format!("{}/tests/data/engine-metrics/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("a sample")
}

#[tokio::test]
async fn ranks_of_one_engine_are_put_together() {
    let engine = Engine::start().await;
    let page = sample("vllm-v1-kvname-dp2-engine-labels");
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&[engine.port])).await;
    let reversed: Vec<_> = page.lines().rev().collect();
    for text in [page.clone(), reversed.join("\n") + "\n"] {
        engine.says(Page::Text(vllm(99, 99, 0.9)));
        let last = async || picker.report().await["endpoints"][0]["last"].clone();
        until("the page before", async || last().await["waiting"] == 99.0).await;
        engine.says(Page::Text(text));
        until("the sums", async || last().await["waiting"] == 2.0).await;
        let last = last().await;
        assert_eq!((last["running"].as_f64(), last["kv_usage"].as_f64()), (Some(8.0), Some(0.385)), "{last}");
    }
}

#[tokio::test]
async fn a_family_that_may_be_absent_is_no_error() {
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&[engine.port])).await;
    until("scrapes", async || engine.scrapes() > 10).await;
    assert_eq!(picker.lines(&["error", "warn"]), [""; 0]);
    assert_eq!(picker.sum("llm_d_epp_datalayer_extract_errors_total", &[]).await, 0.0);
    engine.says(Page::Text("vllm:num_requests_waiting 1\n".into()));
    until("a count", async || picker.sum("llm_d_epp_datalayer_extract_errors_total", &[]).await > 0.0).await;
}

#[tokio::test]
async fn a_silent_pool_is_named_and_served_until_it_speaks_again() {
    let engine = Engine::start().await;
    let setup = Setup::scorers(&["queue-scorer"]).flag("--metrics-staleness-threshold=100ms");
    let picker = setup.flag("--refresh-prometheus-metrics-interval=50ms").start(&endpoints(&[engine.port])).await;
    until("a good scrape", async || picker.knows(1).await).await;
    engine.says(Page::Status(500));
    until("staleness", async || picker.sum("epp_board_stale_endpoints", &[]).await == 1.0).await;
    for _ in 0..20 {
        assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()));
    }
    until("no ready endpoint", async || picker.sum("llm_d_epp_ready_endpoints", &[]).await == 0.0).await;
    let page = picker.page().await;
    assert!(!page.contains("NaN") && !page.contains("nan "), "{page}");
    until("a line", async || picker.lines(&["warn"]).iter().any(|l| l.contains("stale"))).await;
    assert_eq!(picker.lines(&["warn"]).iter().filter(|l| l.contains("stale")).count(), 1);
    engine.says(Page::Text(vllm(5, 0, 0.0)));
    until("recovery", async || {
        let report = picker.report().await;
        picker.knows(1).await && report["endpoints"][0]["last"]["waiting"] == 5.0
    })
    .await;
    until("recovery on the page", async || picker.sum("llm_d_epp_ready_endpoints", &[]).await == 1.0).await;
}

#[tokio::test]
async fn a_page_with_a_line_of_mebibytes_is_read() {
    let engine = Engine::start().await;
    let label = "{\\\",=}".repeat(400_000);
    engine.says(Page::Text(format!("vllm:weird_info{{x=\"{label}\"}} 1\n{}", vllm(4, 2, 0.1))));
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&[engine.port])).await;
    until("the queue", async || picker.report().await["endpoints"][0]["last"]["waiting"] == 4.0).await;
}

#[tokio::test]
async fn labels_of_a_family_are_always_the_same() {
    let engine = Engine::start().await;
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&[engine.port])).await;
    for (path, body, more) in [
        (COMPLETIONS, ASK, &[][..]),
        (COMPLETIONS, ASK, &[("x-llm-d-inference-objective", "o"), ("x-llm-d-inference-fairness-id", "f")]),
        (COMPLETIONS, r#"{"prompt":"x"}"#, &[]),
        ("/v1/messages/count_tokens", "{}", &[]),
        ("/inference/v1/generate", r#"{"token_ids":[1]}"#, &[]),
    ] {
        let talk = picker.open().await;
        talk.send(post_with(path, more)).await;
        talk.send(piece(body, true)).await;
        talk.send(response_head(&[(":status", "200")])).await;
        talk.send(response_piece(r#"{"usage":{"prompt_tokens":1}}"#, true)).await;
        talk.rest().await.unwrap();
    }
    let mut of_family: BTreeMap<String, BTreeSet<Vec<String>>> = BTreeMap::new();
    for line in picker.page().await.lines().filter(|l| !l.starts_with('#')) {
        let Some((family, rest)) = line.split_once('{') else { continue };
        let labels = rest.split('}').next().unwrap_or_default().split("\",");
        let keys = labels.map(|l| l.split('=').next().unwrap_or_default().to_owned()).filter(|k| k != "le");
        of_family.entry(family.to_owned()).or_default().insert(keys.collect());
    }
    assert!(of_family.len() > 20);
    let mixed: Vec<_> = of_family.iter().filter(|(_, keys)| keys.len() > 1).collect();
    assert!(mixed.is_empty(), "{mixed:?}");
}

#[tokio::test]
async fn series_of_endpoints_that_left_vanish() {
    let engines = Engine::fleet(50).await;
    let ports: Vec<_> = engines.iter().map(|e| e.port).collect();
    let setup = Setup::scorers(&["active-request-scorer"]).flag("--refresh-prometheus-metrics-interval=50ms");
    let picker = setup.start(&endpoints(&ports)).await;
    let mut held = Vec::new();
    for _ in 0..50 {
        held.push(picker.hold(COMPLETIONS, ASK).await.unwrap());
    }
    let named = async || picker.page().await.lines().filter(|l| l.contains("=\"e49\"")).count();
    until("series of e49", async || named().await > 0).await;
    drop(held);
    picker.endpoints(&endpoints(&ports[..1]));
    until("the removal", async || picker.knows(1).await).await;
    until("their end", async || named().await == 0).await;
    let page = picker.page().await;
    assert!(!page.lines().any(|l| (1..50).any(|i| l.contains(&format!("=\"e{i}\"")))), "{page}");
}

#[tokio::test]
async fn detail_shows_lines_of_requests_and_the_default_does_not() {
    let engine = Engine::start().await;
    for (flag, expected) in [("-v=2", false), ("-v=5", true), ("--zap-log-level=debug", true)] {
        let picker = Setup::scorers(&["queue-scorer"]).flag(flag).start(&endpoints(&[engine.port])).await;
        picker.pick(COMPLETIONS, ASK).await.unwrap();
        assert_eq!(!picker.lines(&["debug"]).is_empty(), expected, "{flag}");
    }
}
