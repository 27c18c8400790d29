//! Bounds: bodies, memory, series, pages, tasks and log lines.

use crate::harness::engine::Engine;
use crate::harness::picker::{Picker, Setup};
use crate::harness::talk::*;
use crate::harness::{endpoints, until};

const ASK: &str = r#"{"model":"m","prompt":"x"}"#;

async fn one(setup: Setup) -> (Picker, Engine) {
    let engine = Engine::start().await;
    (setup.start(&endpoints(&[engine.port])).await, engine)
}

/// Ports at which nobody answers: as many endpoints, without as many engines.
fn dead(n: u16) -> String {
    endpoints(&(1..=n).collect::<Vec<_>>())
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_it_ends() {
    let (picker, engine) = one(Setup::scorers(&["active-request-scorer"]).flag("--max-request-body=1Mi")).await;
    let mut talks = Vec::new();
    for _ in 0..50 {
        let talk = picker.open().await;
        talk.send(post(COMPLETIONS)).await;
        for _ in 0..17 {
            talk.send(piece(vec![b' '; 1 << 16], false)).await;
        }
        talks.push(talk);
    }
    for mut talk in talks {
        let Err(Refused::Answer { status, .. }) = talk.target().await else { panic!("no refusal") };
        assert_eq!(status, 413);
        assert_eq!(talk.next().await.unwrap(), None);
    }
    assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()));
}

#[tokio::test]
async fn bodies_that_never_end_have_one_limit_together() {
    let (picker, engine) = one(Setup::scorers(&["active-request-scorer"]).flag("--max-request-bodies=8Mi")).await;
    let mut talks = Vec::new();
    for _ in 0..20 {
        let talk = picker.open().await;
        talk.send(post(COMPLETIONS)).await;
        talk.send(piece(vec![b' '; 1 << 20], false)).await;
        talks.push(talk);
    }
    let refused = async || picker.sum("llm_d_epp_request_error_total", &["ResourceExhausted"]).await;
    until("twelve refusals", async || refused().await == 12.0).await;
    assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()), "one that is complete goes on");
    drop(talks);
}

#[tokio::test]
async fn a_body_that_never_ends_times_out() {
    let (picker, engine) = one(Setup::scorers(&["active-request-scorer"]).flag("--request-body-timeout=200ms")).await;
    let mut talk = picker.open().await;
    talk.send(post(COMPLETIONS)).await;
    talk.send(piece(*b"{", false)).await;
    let Err(Refused::Answer { status, .. }) = talk.target().await else { panic!("no refusal") };
    assert_eq!(status, 408);
    assert_eq!(picker.pick(COMPLETIONS, ASK).await, Ok(engine.address()));
}

#[tokio::test]
async fn images_in_bodies_are_not_kept_in_memory() {
    let (picker, engine) = one(Setup::scorers(&["prefix-cache-scorer"])).await;
    let before = picker.kib("VmRSS:");
    let data = "QUJD".repeat(2 << 20);
    let body = serde_json::json!({"model": "m", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}]}]});
    let body = body.to_string();
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut talk = picker.open().await;
        assert_eq!(talk.ask(CHAT, &body).await, Ok(engine.address()));
        held.push(talk);
    }
    let in_flight = (10 * body.len() as u64) >> 10;
    let peak = picker.kib("VmHWM:") - before;
    assert!(peak < 3 * in_flight, "{peak} KiB at most, for bodies of {in_flight} KiB");
    drop(held);
    until("less memory", async || picker.kib("VmRSS:") < before + in_flight).await;
}

#[tokio::test]
async fn model_names_of_clients_do_not_make_series_without_end() {
    let (picker, _engine) = one(Setup::scorers(&["queue-scorer"])).await;
    let channel = picker.channel().await;
    for i in 0..1200 {
        let mut talk = Talk::open(channel.clone()).await;
        talk.ask(COMPLETIONS, &format!("{{\"model\":\"made-up-{i}\",\"prompt\":\"x\"}}")).await.unwrap();
    }
    let page = picker.page().await;
    let series: Vec<_> = page.lines().filter(|l| l.starts_with("llm_d_epp_request_total{")).collect();
    assert!(series.len() <= 1001, "{}", series.len());
    let rest = series.iter().find(|l| l.contains("model_name=\"other\"")).expect("the rest has a series");
    assert!(rest.ends_with(" 200"), "{rest}");
}

#[tokio::test]
async fn endpoints_that_come_and_go_leave_no_task_or_socket() {
    let engines = Engine::fleet(4).await;
    let ports: Vec<_> = engines.iter().map(|e| e.port).collect();
    let picker = Setup::scorers(&["queue-scorer"]).start(&endpoints(&ports[..1])).await;
    until("the first", async || picker.knows(1).await).await;
    let open = async || picker.sum("process_open_fds", &[]).await;
    let before = open().await;
    for _ in 0..50 {
        picker.endpoints(&endpoints(&ports));
        until("all", async || picker.knows(4).await).await;
        picker.endpoints(&endpoints(&ports[..1]));
        until("one", async || picker.report().await["total"] == 1).await;
    }
    until("the sockets' end", async || open().await <= before).await;
    let seen = engines[3].scrapes();
    let of_first = engines[0].scrapes();
    until("scrapes of the first", async || engines[0].scrapes() > of_first + 3).await;
    assert_eq!(engines[3].scrapes(), seen);
}

#[tokio::test]
async fn debug_pages_show_no_prompt_and_are_bounded() {
    let picker = Setup::scorers(&["prefix-cache-scorer", "active-request-scorer"]).start(&dead(1200)).await;
    let channel = picker.channel().await;
    for i in 0..200 {
        let mut talk = Talk::open(channel.clone()).await;
        let body = format!("{{\"model\":\"m\",\"prompt\":\"SECRET {i} {}\"}}", "SECRET".repeat(100));
        talk.ask(COMPLETIONS, &body).await.unwrap();
    }
    for path in ["/debug/endpoints", "/debug/config", "/debug/plugins/state", "/metrics"] {
        let (status, page) = picker.get(path).await;
        assert!(status == 200 && !page.contains("SECRET"), "{path}");
        assert!(page.len() < 8 << 20, "{path}: {}", page.len());
    }
    let report = picker.report().await;
    assert_eq!((report["total"].as_u64(), report["endpoints"].as_array().map(Vec::len)), (Some(1200), Some(1000)));
    let state = picker.get("/debug/plugins/state").await.1;
    assert!(serde_json::from_str::<serde_json::Value>(&state).is_ok());
}

#[tokio::test]
async fn picks_log_nothing_at_the_usual_level() {
    let (picker, _engine) = one(Setup::scorers(&["prefix-cache-scorer", "queue-scorer"])).await;
    picker.endpoints(&dead(100));
    until("a hundred", async || picker.report().await["total"] == 100).await;
    let channel = picker.channel().await;
    for i in 0..100 {
        let mut talk = Talk::open(channel.clone()).await;
        talk.ask(COMPLETIONS, &format!("{{\"model\":\"m\",\"prompt\":\"cold {i}\"}}")).await.unwrap();
    }
    let of_picks: Vec<_> = picker
        .log()
        .lines()
        .filter(|l| !l.contains("epp::board") && !l.contains("epp::app"))
        .map(str::to_owned)
        .collect();
    assert_eq!(of_picks, [""; 0]);
    assert_eq!(picker.lines(&["error"]), [""; 0]);
}

#[tokio::test]
async fn a_prompt_of_a_million_tokens_is_picked() {
    let (picker, engine) = one(Setup::scorers(&["prefix-cache-scorer"])).await;
    let ids: Vec<_> = (0..1_000_000).map(|i| (i % 50_000).to_string()).collect();
    let body = format!("{{\"model\":\"m\",\"prompt\":[{}]}}", ids.join(","));
    assert_eq!(picker.pick(COMPLETIONS, &body).await, Ok(engine.address()));
}
