//! What a pick costs the process that serves it: CPU time a request beside a bare gRPC server that answers a constant, and
//! memory at rest.
//!
//! Both servers are processes of their own and take the same streams in turns, so that what else the machine does falls
//! on both. A ratio is the median over the rounds. `--quick` runs fewer rounds.

mod bodies;
#[expect(dead_code, reason = "the soak needs more of it")]
mod process;

use std::time::Duration;

use bodies::Request;
use epp::bench::baseline;
use epp::bench::client::{Answer, Client, Mode};
use epp::bench::dial::Dial;
use futures_util::stream::{self, StreamExt};
use process::{Engines, Server};
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const ENGINES: usize = 8;
const ENGINES_AT_REST: usize = 100;
const MOST_AT_REST_MB: f64 = 40.0;

/// What is measured.
struct Case {
    name: &'static str,
    request: Request,
    mode: Mode,
    /// Streams at once.
    at_once: usize,
    /// Streams a round.
    streams: usize,
    /// At most so many times the baseline.
    target: Option<f64>,
}

fn cases() -> Vec<Case> {
    let case = |name, request, mode, at_once, streams, target| Case { name, request, mode, at_once, streams, target };
    let (chat, long_chat, ids) = (Request::chat(200), Request::chat(100_000), Request::token_ids(100_000));
    vec![
        case("200-token chat, lean, one by one", chat.clone(), Mode::Lean, 1, 400, Some(1.5)),
        case("200-token chat, lean, 16 at once", chat.clone(), Mode::Lean, 16, 1200, Some(1.5)),
        case("200-token chat, duplex, 16 at once", chat, Mode::Duplex, 16, 1200, None),
        case("100k-token chat, lean, one by one", long_chat.clone(), Mode::Lean, 1, 60, Some(2.5)),
        case("100k-token chat, lean, 4 at once", long_chat.clone(), Mode::Lean, 4, 60, Some(2.5)),
        case("100k-token chat, duplex, 4 at once", long_chat, Mode::Duplex, 4, 60, None),
        case("100k token ids, lean, 4 at once", ids.clone(), Mode::Lean, 4, 60, None),
        case("100k token ids, duplex, 4 at once", ids, Mode::Duplex, 4, 60, None),
    ]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(port) = args.iter().position(|a| a == "baseline").and_then(|at| args.get(at + 1)) {
        let port = port.parse().expect("the bench starts it with a port");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built");
        return runtime.block_on(baseline::serve(port)).expect("the port is free, and the listener stays");
    }
    let quick = args.iter().any(|a| a == "--quick");
    let rounds = if quick { 9 } else { 31 };
    let only = args.iter().find(|a| !a.starts_with("--"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async {
        pick_costs(rounds, only.map_or("", String::as_str)).await;
        if only.is_none() {
            at_rest().await;
        }
    });
}

async fn pick_costs(rounds: usize, only: &str) {
    let engines = Engines::start(ENGINES);
    let (baseline, picker) = (Server::baseline(), Server::picker(&engines, Some(Duration::from_secs(5))));
    for case in cases().into_iter().filter(|c| c.name.contains(only)) {
        let clients = [connect(baseline.port, case.mode).await, connect(picker.port, case.mode).await];
        let (mut each, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        // The first round warms up.
        for round in 0..=rounds {
            let mut cpu = [0.0; 2];
            for (at, server) in [&baseline, &picker].into_iter().enumerate() {
                let before = server.on_cpu();
                stream::iter(0..case.streams)
                    .for_each_concurrent(case.at_once, |_| ask(&clients[at], &case.request))
                    .await;
                cpu[at] = (server.on_cpu() - before).as_secs_f64() * 1e6 / case.streams as f64;
            }
            if round > 0 {
                ratios.push(cpu[1] / cpu[0]);
                each.iter_mut().zip(cpu).for_each(|(all, one)| all.push(one));
            }
        }
        let [bare, picked] = each.map(median);
        let target = case.target.map_or(String::new(), |t| format!(", target at most {t}"));
        println!(
            "{:36} {picked:7.1} us CPU a request, baseline {bare:7.1}, ratio {:.2}{target}",
            case.name,
            median(ratios)
        );
    }
}

async fn connect(port: u16, mode: Mode) -> Client {
    let connected = Client::connect(&format!("127.0.0.1:{port}"), &Dial::Clear, mode, 1, Duration::from_secs(10)).await;
    connected.expect("the server takes connections")
}

/// Up to the answer that says where the request goes.
async fn ask(client: &Client, request: &Request) {
    match client.ask(request.question()).await.expect("the server answers") {
        Answer::Picked(open) => open.leave().await.expect("the stream ends well"),
        Answer::Refused(status) => panic!("expected an endpoint, found a refusal with {status}"),
    }
}

async fn at_rest() {
    let engines = Engines::start(ENGINES_AT_REST);
    let picker = Server::picker(&engines, None);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, rest) = (picker.on_cpu(), Duration::from_secs(5));
    tokio::time::sleep(rest).await;
    let cpu = (picker.on_cpu() - before).as_secs_f64() / rest.as_secs_f64();
    println!(
        "{ENGINES_AT_REST} engines, each asked every 50 ms, no requests: {:.1} MB resident, target under {MOST_AT_REST_MB}; \
         {:.0} % of a CPU",
        picker.resident_mb(),
        cpu * 100.0
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
