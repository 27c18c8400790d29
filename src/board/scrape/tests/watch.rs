//! How endpoints are watched.

use std::collections::BTreeMap;
use std::time::Duration;

use epp_plugin_api::{
    CustomMetric, EndpointMeta, EndpointName, EngineMapping, Extraction, ExtractorSpec, MetricHub, Observed, Payload,
    Selector, SourceSpec,
};
use prometheus_client::encoding::text::encode;

use super::super::{ScrapeSettings, ScrapeSetupError, Scraper, SourceSettings};
use super::*;
use crate::tasks::Tasks;

fn selector(family: &str) -> Option<Selector> {
    Some(Selector { family: family.to_owned(), labels: vec![] })
}

fn extractor() -> Extraction {
    let vllm = EngineMapping {
        name: "vllm".into(),
        queued: selector("vllm:num_requests_waiting"),
        running: selector("vllm:num_requests_running"),
        ..EngineMapping::default()
    };
    let other = EngineMapping { name: "other".into(), queued: selector("other"), ..EngineMapping::default() };
    let (engine_label, default_engine) = ("engine".into(), "vllm".into());
    Extraction::Engines(ExtractorSpec { engine_label, default_engine, engines: vec![vllm, other] })
}

fn source(path: &str) -> SourceSettings {
    SourceSettings {
        source_type: "metrics-data-source".into(),
        spec: SourceSpec {
            gives: Payload::Metrics,
            tls: false,
            path: path.into(),
            port: None,
            skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: None,
        },
        extractors: vec![("core-metrics-extractor".into(), extractor())],
    }
}

fn settings(sources: Vec<SourceSettings>) -> ScrapeSettings {
    ScrapeSettings { sources, interval: Duration::from_millis(50) }
}

fn scraper() -> Scraper {
    Scraper::new(settings(vec![source("/metrics")]), &MetricHub::default()).expect("a good set-up")
}

fn meta(address: SocketAddr, labels: &[(&str, &str)]) -> Arc<EndpointMeta> {
    let name = EndpointName { namespace: "default".into(), name: "e".into() };
    let labels: BTreeMap<_, _> = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
    Arc::new(EndpointMeta::new(name, address.ip().to_string(), address.port(), labels, 0))
}

#[tokio::test]
async fn keeps_what_the_engine_last_said() {
    let tasks = Tasks::default();
    let mut engine = Engine::start(|_| page(GOOD)).await;
    let watched = scraper().watch(meta(engine.address, &[]), &tasks);
    assert_eq!(watched.observed(), Observed::default());
    engine.settled().await;
    let (observed, health) = (watched.observed(), watched.health());
    assert_eq!((observed.waiting, observed.running, observed.at.is_some()), (Some(6.0), Some(3.0), true));
    assert_eq!((health.errors, health.last_error, health.last_ok.is_some()), (0, None, true));
    assert!(health.scrapes >= 1);
}

#[tokio::test]
async fn a_bad_answer_changes_nothing_and_is_counted() {
    let (hub, tasks) = (MetricHub::default(), Tasks::default());
    let scraper = Scraper::new(settings(vec![source("/metrics")]), &hub).expect("a good set-up");
    let counted = |name: &str| {
        let mut text = String::new();
        hub.with_registry(|r| encode(&mut text, r)).expect("a page can be written to memory");
        let line = text
            .lines()
            .find(|l| l.starts_with(&format!("llm_d_epp_datalayer_{name}_errors_total")))
            .map(str::to_owned);
        line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let mut engine = Engine::start(|_| page(GOOD)).await;
    let watched = scraper.watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    for (answer, counter, error) in [
        (reply("500 Oops", "", GOOD), "poll", "expected status 200, found 500"),
        (page(""), "extract", "the page lacks vllm:num_requests_waiting, vllm:num_requests_running"),
        (page("[]"), "extract", "the page lacks vllm:num_requests_waiting, vllm:num_requests_running"),
    ] {
        let before = counted(counter);
        engine.now(move |_| answer.clone());
        engine.settled().await;
        engine.settled().await;
        assert_eq!(watched.observed().waiting, Some(6.0), "{error}");
        assert_eq!(watched.health().last_error.as_deref(), Some(error));
        assert!(counted(counter) > before, "{error}");
    }
    engine.now(|_| page("vllm:num_requests_waiting 1\n"));
    engine.settled().await;
    engine.settled().await;
    assert_eq!((watched.observed().waiting, watched.observed().running), (Some(1.0), None));
}

#[tokio::test(start_paused = true)]
async fn a_silent_engine_is_given_up_at_the_deadline() {
    let tasks = Tasks::default();
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = silent.local_addr().expect("it is bound");
    let watched = scraper().watch(meta(address, &[]), &tasks);
    while watched.health().errors < 3 {
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert_eq!(watched.health().last_error.as_deref(), Some("expected an answer within 1s, found none"));
    assert_eq!(watched.observed(), Observed::default());
}

#[tokio::test]
async fn engines_that_do_not_answer_never_hold_up_one_that_does() {
    let tasks = Tasks::default();
    let (scraper, mut engine) = (scraper(), Engine::start(|_| page(GOOD)).await);
    let _watched = scraper.watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    let unproven = &scraper.0.bounds.unproven;
    let all = u32::try_from(unproven.available_permits()).expect("few");
    let _taken = unproven.acquire_many(all).await.expect("the semaphore is open");
    let asked = tokio::time::timeout(Duration::from_secs(60), engine.asked(5)).await;
    assert!(asked.is_ok(), "the healthy engine was held up");
}

#[tokio::test]
async fn one_scrape_is_in_flight_at_a_time() {
    let tasks = Tasks::default();
    let mut engine = Engine::start(|_| Answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(), true)).await;
    let _watched = scraper().watch(meta(engine.address, &[]), &tasks);
    engine.asked(1).await;
    // The first answer never ends, so the second request comes only after it was given up.
    engine.asked(1).await;
    assert_eq!(engine.connections.load(Relaxed), 2);
}

#[tokio::test]
async fn an_endpoint_that_is_dropped_is_left_alone() {
    let mut engine = Engine::start(|_| page(GOOD)).await;
    let tasks = Tasks::default();
    let watched = scraper().watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    let running: Vec<_> = watched.running.lock().iter().map(|r| r.task.clone()).collect();
    drop(watched);
    while !running.iter().all(tokio::task::AbortHandle::is_finished) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_update_leads_to_another_address_and_keeps_what_was_observed() {
    let tasks = Tasks::default();
    let (mut first, mut second) = (Engine::start(|_| page(GOOD)).await, Engine::start(|_| page("other 40\n")).await);
    let watched = scraper().watch(meta(first.address, &[]), &tasks);
    first.settled().await;
    watched.update(meta(second.address, &[]));
    second.settled().await;
    assert_eq!(watched.observed().waiting, Some(6.0));
    watched.update(meta(second.address, &[("engine", "other")]));
    second.settled().await;
    second.settled().await;
    assert_eq!(watched.observed().waiting, Some(40.0));
}

#[tokio::test]
async fn every_source_is_asked_and_may_name_its_port() {
    let tasks = Tasks::default();
    let (mut own, mut beside) = (Engine::start(|_| page(GOOD)).await, Engine::start(|_| page("gpu 70\n")).await);
    let gpu = CustomMetric { attribute_key: "gpu".into(), metric: Selector { family: "gpu".into(), labels: vec![] } };
    let mut exporter = source("/gpu");
    exporter.spec.port = Some(beside.address.port());
    exporter.extractors[0].1 = Extraction::Engines(ExtractorSpec {
        engine_label: "engine".into(),
        default_engine: "vllm".into(),
        engines: vec![EngineMapping { name: "vllm".into(), custom: vec![gpu], ..Default::default() }],
    });
    let scraper = Scraper::new(settings(vec![source("/metrics"), exporter]), &MetricHub::default());
    let watched = scraper.expect("a good set-up").watch(meta(own.address, &[]), &tasks);
    assert!(own.asked(2).await.starts_with("GET /metrics "));
    assert!(beside.asked(2).await.starts_with("GET /gpu "));
    own.settled().await;
    let observed = watched.observed();
    assert_eq!((observed.waiting, &*observed.custom), (Some(6.0), &[("gpu".to_owned(), 70.0)][..]));
}

#[tokio::test]
async fn a_source_without_extractors_is_asked_for_its_page() {
    let tasks = Tasks::default();
    let mut engine = Engine::start(|_| page("{\"data\":[]}")).await;
    let models = SourceSettings { extractors: vec![], ..source("/v1/models") };
    let scraper = Scraper::new(settings(vec![models]), &MetricHub::default()).expect("a good set-up");
    let watched = scraper.watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    assert_eq!((watched.health().errors, watched.observed()), (0, Observed::default()));
}

#[test]
fn a_bad_source_is_named() {
    let mut bad = source("/metrics");
    bad.spec.path = "/a b".into();
    let error = Scraper::new(settings(vec![bad]), &MetricHub::default()).err().map(|e| e.to_string());
    assert_eq!(error.as_deref(), Some("metrics-data-source: expected a path, found \"/a b\""));
    let mut bad = source("/metrics");
    (bad.spec.tls, bad.spec.client_cert_path, bad.spec.client_key_path) = (true, "/none".into(), "/none".into());
    let error = Scraper::new(settings(vec![bad]), &MetricHub::default());
    assert!(matches!(error, Err(ScrapeSetupError::Tls { .. })));
}

/// Another reading of the same pages: the running requests count as waiting ones.
fn swapped() -> SourceSettings {
    let vllm = EngineMapping {
        name: "vllm".into(),
        queued: selector("vllm:num_requests_running"),
        ..EngineMapping::default()
    };
    let spec = ExtractorSpec { engine_label: "engine".into(), default_engine: "vllm".into(), engines: vec![vllm] };
    let extractors = vec![("core-metrics-extractor".into(), Extraction::Engines(spec))];
    SourceSettings { extractors, ..source("/metrics") }
}

#[tokio::test]
async fn what_was_observed_stays_until_a_changed_source_is_read() {
    let tasks = Tasks::default();
    let (scraper, mut engine) = (scraper(), Engine::start(|_| page(GOOD)).await);
    let watched = scraper.watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    let before = watched.observed();
    engine.now(|_| reply("503 Busy", "", ""));
    assert!(scraper.change(settings(vec![swapped()])).expect("a good set-up"));
    watched.renew();
    engine.settled().await;
    let kept = watched.observed();
    assert_eq!((kept.waiting, kept.running), (before.waiting, before.running));
    engine.now(|_| page(GOOD));
    engine.settled().await;
    engine.settled().await;
    assert_eq!((watched.observed().waiting, watched.observed().running), (Some(3.0), None));
}

#[tokio::test]
async fn a_source_that_stays_as_it_is_goes_on_undisturbed() {
    let tasks = Tasks::default();
    let (scraper, mut engine) = (scraper(), Engine::start(|_| page(GOOD)).await);
    let watched = scraper.watch(meta(engine.address, &[]), &tasks);
    engine.settled().await;
    assert!(!scraper.change(settings(vec![source("/metrics")])).expect("a good set-up"));
    // What the first source reads counts after that of the second, so its place changes.
    assert!(scraper.change(settings(vec![source("/other"), source("/metrics")])).expect("a good set-up"));
    watched.renew();
    while !engine.asked(1).await.starts_with("GET /other ") {}
    engine.settled().await;
    assert_eq!((watched.observed().waiting, engine.connections.load(Relaxed)), (Some(6.0), 2));
    scraper.change(settings(vec![source("/metrics")])).expect("a good set-up");
    watched.renew();
    engine.settled().await;
    engine.settled().await;
    assert_eq!((watched.observed().waiting, engine.connections.load(Relaxed)), (Some(6.0), 2));
    scraper.change(settings(vec![])).expect("a good set-up");
    watched.renew();
    assert_eq!(watched.observed(), Observed::default());
}

#[tokio::test]
async fn a_bad_change_changes_nothing() {
    let scraper = scraper();
    assert!(scraper.change(settings(vec![source("/a b")])).is_err());
    assert!(!scraper.change(settings(vec![source("/metrics")])).expect("a good set-up"));
}
