//! Three times as many requests as the engines take: what gets through, how long the important ones wait, and whether
//! everyone who is turned away is told why.
//!
//! First the engines are kept just busy through the same picker, which is the best that can be had; then requests come at
//! three times that rate. Answers differ in length, so that they do not end together. Targets: within 5 % of the best,
//! requests of high priority wait under 100 ms at p99, no refusal without a reason. Ends with 1 if one is missed.
//!
//! Flags: `--seconds=10`, `--engines=4`, `--seats=8`, `--times=3`.

#[path = "../soak/asker.rs"]
mod asker;
#[path = "../soak/page.rs"]
mod page;
#[path = "../picks/process.rs"]
#[expect(dead_code, reason = "the other benches need the rest")]
mod process;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use asker::{Answer, Client, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use page::{page, sum};
use parking_lot::Mutex;
use process::{Engines, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

const WARM: Duration = Duration::from_secs(2);
const WITHIN: f64 = 0.05;
const HIGH_WAITS_SECONDS: f64 = 0.1;

fn flag(name: &str, default: u64) -> u64 {
    let prefix = format!("--{name}=");
    let given = std::env::args().find_map(|arg| arg.strip_prefix(&prefix).map(str::to_owned));
    given
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("--{name}: expected a number, found {value}")))
}

fn config(endpoints: &Path, concurrency: u64) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {{type: file-discovery, parameters: {{path: {}}}}}
- {{type: active-request-scorer}}
- {{type: round-robin-fairness-policy}}
- {{type: concurrency-detector, parameters: {{maxConcurrency: {concurrency}}}}}
dataLayer: {{discovery: {{pluginRef: file-discovery}}}}
objectives: {{high: 10, batch: -1}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  defaultRequestTTL: 2s
  defaultPriorityBand: {{fairnessPolicyRef: round-robin-fairness-policy, maxRequests: 300}}
schedulingProfiles:
- {{name: default, plugins: [{{pluginRef: active-request-scorer}}]}}
",
        endpoints.display(),
    )
}

/// What came of the requests of one phase.
#[derive(Debug, Default)]
struct Counts {
    /// When each response was complete.
    served: Vec<Instant>,
    /// Seconds from asking to the pick of requests of high priority.
    high: Vec<f64>,
    refused: BTreeMap<String, u64>,
    without_reason: u64,
    failed: Vec<String>,
}

/// A picker, its engines, and who speaks to both.
struct Stand {
    client: Client,
    engines: HttpClient<HttpConnector, Full<Bytes>>,
    counts: Mutex<Counts>,
}

impl Stand {
    /// One request through the picker and its engine.
    async fn one(&self, number: u64, objective: Option<&'static str>) {
        let prompt = format!("Request {number} is like no other.");
        let tokens = 1 + number % 31;
        let body: Bytes = format!(r#"{{"model":"sim","prompt":"{prompt}","max_tokens":{tokens}}}"#).into();
        let request = Request { body: body.clone(), objective, tenant: format!("tenant-{}", number % 10) };
        let asked = Instant::now();
        let (answer, open) = match self.client.ask(&request).await {
            Ok(answered) => answered,
            Err(why) => return self.counts.lock().failed.push(why),
        };
        match answer {
            Answer::Refused { status, reason } => {
                let mut counts = self.counts.lock();
                counts.without_reason += u64::from(reason.is_none());
                *counts.refused.entry(format!("{status} {}", reason.unwrap_or_default())).or_default() += 1;
            }
            Answer::Picked(address) => {
                if objective == Some("high") {
                    self.counts.lock().high.push(asked.elapsed().as_secs_f64());
                }
                let served = self.serve(&address, body).await;
                let ended = open.end().await;
                let mut counts = self.counts.lock();
                match served.and(ended) {
                    Ok(None) => counts.served.push(Instant::now()),
                    Ok(Some(told)) => counts.failed.push(format!("{told:?}")),
                    Err(why) => counts.failed.push(why),
                }
            }
        }
    }

    async fn serve(&self, address: &str, body: Bytes) -> Result<(), String> {
        let request = http::Request::post(format!("http://{address}/v1/completions"));
        let request =
            request.header("content-type", "application/json").body(Full::new(body)).map_err(|e| e.to_string())?;
        let response = self.engines.request(request).await.map_err(|e| format!("engine: {e}"))?;
        let status = response.status();
        response.into_body().collect().await.map_err(|e| format!("engine: {e}"))?;
        if status.is_success() { Ok(()) } else { Err(format!("engine: {status}")) }
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built");
    let missed = runtime.block_on(overload());
    missed.iter().for_each(|target| println!("MISSED: {target}"));
    if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn overload() -> Vec<String> {
    let (n_engines, seats, times) = (flag("engines", 4), flag("seats", 8), flag("times", 3));
    let length = Duration::from_secs(flag("seconds", 10));
    // One more than an engine runs at once, so that it never runs dry.
    let flags = format!("--seats={seats}");
    let engines = Engines::start_with(n_engines as usize, &[&flags], |file| config(file, seats + 1));
    let picker = Server::picker_with(&engines, &[], Stdio::null());
    let stand = Arc::new(Stand {
        client: Client::connect(picker.port, 4).await,
        engines: HttpClient::builder(TokioExecutor::new()).build_http(),
        counts: Mutex::default(),
    });

    let (best, _) = saturated(&stand, n_engines * (seats + 1), length).await;
    println!("kept just busy: {best:.1} responses a second");
    let rate = best * times as f64;
    let before = page(picker.metrics_port);
    let (goodput, counts) = overloaded(&stand, rate, length).await;
    let (lost, page) = (1.0 - goodput / best, page(picker.metrics_port));
    println!("{rate:.0} requests a second: {goodput:.1} responses a second, {:.1} % below", lost * 100.0);

    let waits = "llm_d_epp_flow_control_request_queue_duration_seconds";
    let of = |page: &str, what: &str, bound: &[&str]| {
        sum(page, &format!("{waits}_{what}"), &[&["priority=\"10\"", "outcome=\"Dispatched\""], bound].concat())
    };
    let all = of(&page, "count", &[]) - of(&before, "count", &[]);
    let soon = of(&page, "bucket", &["le=\"0.1\""]) - of(&before, "bucket", &["le=\"0.1\""]);
    let mut high = counts.high.clone();
    high.sort_by(f64::total_cmp);
    let p99 = high.get(high.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(f64::NAN);
    println!(
        "high priority: {all} went, {:.2} % of them within 100 ms in the queue; seen by clients p99 {:.1} ms",
        soon / all * 100.0,
        p99 * 1e3
    );
    println!("refused: {:?}; failed: {}", counts.refused, counts.failed.len());

    let mut missed = Vec::new();
    if lost > WITHIN {
        missed.push(format!("goodput is {:.1} % below the best", lost * 100.0));
    }
    if soon / all < 0.99 || all == 0.0 {
        missed.push(format!("under 99 % of high priority wait at most {HIGH_WAITS_SECONDS} s"));
    }
    if counts.without_reason > 0 {
        missed.push(format!("{} refusals have no reason", counts.without_reason));
    }
    if let Some(why) = counts.failed.first() {
        missed.push(format!("{} requests failed, the first with: {why}", counts.failed.len()));
    }
    missed
}

/// As many requests at once as the engines take, one after another.
async fn saturated(stand: &Arc<Stand>, at_once: u64, length: Duration) -> (f64, Counts) {
    let until = Instant::now() + WARM + length;
    let mut workers = JoinSet::new();
    for worker in 0..at_once {
        let stand = stand.clone();
        workers.spawn(async move {
            for turn in 0.. {
                if Instant::now() > until {
                    break;
                }
                stand.one(worker << 32 | turn, None).await;
            }
        });
    }
    while workers.join_next().await.is_some() {}
    rated(stand, until, length)
}

/// Requests at this rate: a tenth of high priority, three of low.
async fn overloaded(stand: &Arc<Stand>, rate: f64, length: Duration) -> (f64, Counts) {
    let began = Instant::now();
    let until = began + WARM + length;
    let mut each = interval(Duration::from_millis(5));
    each.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut sent, mut open) = (0_u64, JoinSet::new());
    while Instant::now() < until {
        each.tick().await;
        while (sent as f64) < began.elapsed().as_secs_f64() * rate {
            sent += 1;
            let (stand, number) = (stand.clone(), sent);
            let objective = match number % 10 {
                0 => Some("high"),
                1..7 => None,
                _ => Some("batch"),
            };
            open.spawn(async move { stand.one(u64::MAX - number, objective).await });
        }
        while open.try_join_next().is_some() {}
    }
    while open.join_next().await.is_some() {}
    rated(stand, until, length)
}

/// Responses a second before `until`, over so long; and everything else.
fn rated(stand: &Stand, until: Instant, length: Duration) -> (f64, Counts) {
    let counts = std::mem::take(&mut *stand.counts.lock());
    let within = counts.served.iter().filter(|at| (until - length..until).contains(*at)).count();
    (within as f64 / length.as_secs_f64(), counts)
}
