//! Where requests go: affinity, ties, refusals, and what is counted in flight.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, entry, until};

const ASK: &str = r#"{"model":"m","prompt":"x"}"#;

async fn pool(n: usize, setup: Setup) -> (Picker, Vec<Engine>) {
    let engines = Engine::fleet(n).await;
    let ports: Vec<_> = engines.iter().map(|e| e.port).collect();
    (setup.start(&endpoints(&ports)).await, engines)
}

async fn by_prefix() -> (Picker, Vec<Engine>) {
    pool(4, Setup::scorers(&["prefix-cache-scorer"]).flag("--emit-endpoint-scores")).await
}

/// Where a request goes, and the scores of all.
async fn judged(picker: &Picker, path: &str, body: &serde_json::Value) -> (String, BTreeMap<String, f64>) {
    let mut talk = picker.open().await;
    talk.send(post(path)).await;
    talk.send(piece(body.to_string(), true)).await;
    let answer = talk.answer().await;
    (set(&answer, DESTINATION).expect("a destination"), scores(&answer))
}

/// The best score that `second` has after `first` was sent.
async fn match_of(path: &str, first: serde_json::Value, second: serde_json::Value) -> f64 {
    let (picker, _engines) = by_prefix().await;
    let (_, cold) = judged(&picker, path, &first).await;
    assert!(cold.len() == 4 && cold.values().all(|s| *s == 0.0), "{cold:?}");
    let (_, scores) = judged(&picker, path, &second).await;
    scores.values().copied().fold(0.0, f64::max)
}

fn chat(turns: &[&str]) -> serde_json::Value {
    let role = |i: usize| if i.is_multiple_of(2) { "user" } else { "assistant" };
    let turn = |(i, text): (usize, &&str)| serde_json::json!({"role": role(i), "content": text});
    serde_json::json!({"model": "m", "messages": turns.iter().enumerate().map(turn).collect::<Vec<_>>()})
}

fn image(url: &str) -> serde_json::Value {
    let parts = serde_json::json!([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]);
    serde_json::json!({"model": "m", "messages": [{"role": "user", "content": parts}]})
}

#[tokio::test]
async fn short_prompts_spread() {
    let (picker, _engines) = by_prefix().await;
    let mut targets = BTreeMap::new();
    let channel = picker.channel().await;
    for i in 0..1000 {
        let mut talk = Talk::open(channel.clone()).await;
        let body = format!("{{\"model\":\"m\",\"prompt\":\"say {i} to {}\"}}", i * 7);
        *targets.entry(talk.ask(COMPLETIONS, &body).await.unwrap()).or_insert(0) += 1;
    }
    // Each of 4 gets 250 of 1000, give or take 6 times the standard deviation.
    assert!(targets.len() == 4 && targets.values().all(|n| (168..=332).contains(n)), "{targets:?}");
}

#[tokio::test]
async fn the_end_of_a_prompt_counts() {
    let long = "https://images.example/".repeat(60);
    let first = image(&format!("{long}cat.png"));
    assert_eq!(match_of(CHAT, first.clone(), first.clone()).await, 1.0);
    assert!(match_of(CHAT, first, image(&format!("{long}dog.png"))).await < 1.0);
}

#[tokio::test]
async fn images_are_part_of_the_prompt() {
    assert_eq!(match_of(CHAT, image("https://a.example/1.png"), image("https://b.example/2.png")).await, 0.0);
}

#[tokio::test]
async fn tenants_with_salts_share_nothing() {
    let salted = |salt: &str| serde_json::json!({"model": "m", "prompt": "long ".repeat(500), "cache_salt": salt});
    assert_eq!(match_of(COMPLETIONS, salted("a"), salted("a")).await, 1.0);
    assert_eq!(match_of(COMPLETIONS, salted("a"), salted("b")).await, 0.0);
}

#[tokio::test]
async fn chats_match_by_their_history_and_not_by_their_last_turn() {
    let long = |word: &str| word.repeat(200);
    let first = [long("one "), long("two "), long("three "), long("four "), long("same ")];
    let other = [long("uno "), long("dos "), long("tres "), long("quattro "), long("same ")];
    let first: Vec<_> = first.iter().map(String::as_str).collect();
    let other: Vec<_> = other.iter().map(String::as_str).collect();
    assert_eq!(match_of(CHAT, chat(&first), chat(&other)).await, 0.0);
    let more = [&first[..], &["and then", "what"]].concat();
    let score = match_of(CHAT, chat(&first), chat(&more)).await;
    assert!(score > 0.9, "{score}");
}

#[tokio::test]
async fn an_endpoint_that_returns_is_cold() {
    let (picker, engines) = by_prefix().await;
    let body = serde_json::json!({"model": "m", "prompt": "long ".repeat(500)});
    let (target, _) = judged(&picker, COMPLETIONS, &body).await;
    let ports: Vec<_> = engines.iter().map(|e| e.port).collect();
    let without: String = engines
        .iter()
        .enumerate()
        .filter(|(_, e)| e.address() != target)
        .map(|(i, e)| entry(&format!("e{i}"), e.port, "{}"))
        .collect();
    picker.endpoints(&format!("endpoints:\n{without}"));
    until("the removal", async || picker.knows(3).await).await;
    picker.endpoints(&endpoints(&ports));
    until("the return", async || picker.knows(4).await).await;
    let (_, scores) = judged(&picker, COMPLETIONS, &body).await;
    assert!(scores.values().all(|s| *s == 0.0), "{scores:?}");
}

#[tokio::test]
async fn ties_between_idle_endpoints_spread() {
    for scorer in
        ["active-request-scorer", "queue-scorer", "running-requests-size-scorer", "kv-cache-utilization-scorer"]
    {
        let (picker, _engines) = pool(4, Setup::scorers(&[scorer])).await;
        until("all", async || picker.knows(4).await).await;
        let channel = picker.channel().await;
        let mut order = Vec::new();
        for _ in 0..200 {
            let mut talk = Talk::open(channel.clone()).await;
            order.push(talk.ask(COMPLETIONS, ASK).await.unwrap());
            // One at a time: it is over before the next one comes.
            talk.rest().await.unwrap();
        }
        let mut counts = BTreeMap::new();
        for target in &order {
            *counts.entry(target).or_insert(0) += 1;
        }
        // 50 each, give or take 5 times the standard deviation.
        assert!(counts.len() == 4 && counts.values().all(|n| (20..=80).contains(n)), "{scorer}: {counts:?}");
        // As often the same again as chance has it, which no turn-taking and no clock does.
        let again = order.windows(2).filter(|w| w[0] == w[1]).count();
        assert!((18..=82).contains(&again), "{scorer}: {again}");
    }
}

#[tokio::test]
async fn scores_are_finite_without_any_load() {
    for n in [1, 3] {
        let scorers = ["active-request-scorer", "queue-scorer", "running-requests-size-scorer", "load-aware-scorer"];
        let (picker, _engines) = pool(n, Setup::scorers(&scorers).flag("--emit-endpoint-scores")).await;
        until("all", async || picker.knows(n).await).await;
        let (_, scores) = judged(&picker, COMPLETIONS, &serde_json::json!({"model": "m", "prompt": "x"})).await;
        assert!(scores.len() == n && scores.values().all(|s| s.is_finite()), "{scores:?}");
        assert_eq!(scores.values().map(|s| s.to_bits()).collect::<BTreeSet<_>>().len(), 1, "{scores:?}");
    }
}

#[tokio::test]
async fn an_endpoint_that_returns_owes_nothing() {
    let (picker, engines) = pool(1, Setup::scorers(&["active-request-scorer"])).await;
    let (_, a) = picker.hold(COMPLETIONS, ASK).await.unwrap();
    assert_eq!(picker.in_flight().await, [1]);
    picker.endpoints("endpoints: []");
    until("the removal", async || picker.knows(0).await).await;
    picker.endpoints(&endpoints(&[engines[0].port]));
    until("the return", async || picker.knows(1).await).await;
    assert_eq!(picker.in_flight().await, [0]);
    let (_, b) = picker.hold(COMPLETIONS, ASK).await.unwrap();
    assert_eq!(picker.in_flight().await, [1]);
    a.rest().await.unwrap();
    assert_eq!(picker.in_flight().await, [1]);
    b.rest().await.unwrap();
    until("the release", async || picker.in_flight().await == [0]).await;
}

#[tokio::test]
async fn a_silent_stream_counts_until_it_ends() {
    let (picker, engines) = pool(1, Setup::scorers(&["active-request-scorer"])).await;
    let (_, silent) = picker.hold(COMPLETIONS, ASK).await.unwrap();
    // Meanwhile the board is made anew many times, other requests come and go, and the file changes.
    picker.endpoints(&format!("endpoints:\n{}", entry("e0", engines[0].port, "{changed: yes}")));
    let seen = engines[0].scrapes();
    until("many scrapes", async || engines[0].scrapes() > seen + 40).await;
    for _ in 0..20 {
        picker.pick(COMPLETIONS, ASK).await.unwrap();
    }
    until("the others' release", async || picker.in_flight().await == [1]).await;
    silent.rest().await.unwrap();
    until("the release", async || picker.in_flight().await == [0]).await;
}

#[tokio::test]
async fn refusals_tell_a_full_pool_from_an_empty_one() {
    let label = "{type: by-label, parameters: {label: gold, validValues: [\"yes\"]}}";
    let setup = Setup::scorers(&["queue-scorer"]).plugin("by-label", label);
    let (picker, _engines) = pool(1, setup).await;
    let Err(Refused::Answer { status, reason, .. }) = picker.pick(COMPLETIONS, ASK).await else { panic!("no refusal") };
    assert_eq!((status, reason.as_deref()), (429, Some("rejected-saturated")));

    let (picker, _engines) = pool(1, Setup::scorers(&["queue-scorer"])).await;
    let mut talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    talk.send(with_subset(piece(ASK, true), &["10.9.8.7"])).await;
    let Err(Refused::Answer { status, reason, .. }) = talk.target().await else { panic!("no refusal") };
    assert_eq!((status, reason.as_deref()), (503, Some("rejected-no-endpoints")));
}

#[tokio::test]
async fn cancelled_requests_give_back_exactly_what_they_took() {
    let (picker, _engines) = pool(2, Setup::scorers(&["active-request-scorer"])).await;
    let channel = picker.channel().await;
    for i in 0..50 {
        let mut talk = Talk::open(channel.clone()).await;
        let steps = i % 5;
        if steps > 0 {
            talk.send(post(COMPLETIONS)).await;
        }
        if steps > 1 {
            talk.send(piece(ASK, true)).await;
        }
        if steps > 2 {
            talk.target().await.unwrap();
        }
        if steps > 3 {
            talk.send(response_head(&[(":status", "200")])).await;
            talk.send(response_piece("x", i % 2 == 0)).await;
        }
    }
    until("zero", async || picker.in_flight().await == [0, 0]).await;
    let (first, _a) = picker.hold(COMPLETIONS, ASK).await.unwrap();
    let (second, _b) = picker.hold(COMPLETIONS, ASK).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(picker.in_flight().await, [1, 1]);
}

#[tokio::test]
async fn an_endpoint_never_heard_of_is_picked_like_the_others() {
    // Nobody answers at these ports.
    let picker = Setup::scorers(&["queue-scorer", "kv-cache-utilization-scorer"]).start(&endpoints(&[1, 2])).await;
    let mut targets = BTreeSet::new();
    for _ in 0..50 {
        targets.insert(picker.pick(COMPLETIONS, ASK).await.unwrap());
    }
    assert_eq!(targets.len(), 2);
}

#[tokio::test]
async fn a_destination_that_the_client_names_is_overwritten() {
    let (picker, engines) = pool(1, Setup::scorers(&["queue-scorer"])).await;
    let spoofed = [
        ("x-gateway-destination-endpoint", "169.254.169.254:80"),
        ("X-Gateway-Destination-Endpoint", "169.254.169.254:81"),
        ("x-gateway-destination-endpoint-subset", "169.254.169.254"),
    ];
    let mut talk = picker.open().await;
    talk.send(post_with(COMPLETIONS, &spoofed)).await;
    talk.send(piece(ASK, true)).await;
    let answer = talk.answer().await;
    assert_eq!(set(&answer, DESTINATION), Some(engines[0].address()));
    assert!(overwrites(&answer, DESTINATION));
    assert!(removes(&answer).contains(&"x-gateway-destination-endpoint-subset".to_owned()));
    assert!(!format!("{answer:?}").contains("169.254"));
}
