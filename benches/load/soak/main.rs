//! Minutes of hard use: requests of mixed priorities, clients that leave, endpoints that come and go, configs that change.
//!
//! Rules: nobody is sent to an endpoint that is gone or has another role, every request gets an answer, refusals say why,
//! nothing is in flight at the end, nothing panics, and memory is level once it is warm. Ends with 1 if one is broken.
//!
//! Flags: `--seconds=60`, `--rate=2000` (requests a second), `--abort=5` (clients that leave, in percent),
//! `--engines=16`, `--rewrites=20` (of the endpoints file a second), `--reload-ms=1000`.

mod asker;
mod page;
#[path = "../picks/process.rs"]
#[expect(dead_code, reason = "the other benches need the rest")]
mod process;
mod tally;
mod world;

use std::fs::File;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asker::{Answer, Client, Request};
use page::{page, sum};
use process::{Engines, Server};
use tally::{Memory, Tally};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use world::World;

/// Who has no answer by then is lost: more than a request may wait.
const PATIENCE: Duration = Duration::from_secs(15);
const TENANTS: u32 = 20;

fn flag(name: &str, default: u64) -> u64 {
    let prefix = format!("--{name}=");
    let given = std::env::args().find_map(|arg| arg.strip_prefix(&prefix).map(str::to_owned));
    given
        .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("--{name}: expected a number, found {value}")))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime can be built");
    let broken = runtime.block_on(soak());
    broken.iter().for_each(|rule| println!("BROKEN: {rule}"));
    println!("{}", if broken.is_empty() { "every rule holds" } else { "rules are broken" });
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn soak() -> Vec<String> {
    let (seconds, rate, n_engines) = (flag("seconds", 60), flag("rate", 2000), flag("engines", 16));
    let engines = Engines::start_with(n_engines as usize, &[], |endpoints| world::config(endpoints, 0));
    let log_path = engines.directory.join("picker.log");
    let log = File::create(&log_path).expect("the target directory can be written");
    let picker = Arc::new(Server::picker_with(&engines, &[], Stdio::from(log)));
    let world = Arc::new(World::new(&engines.directory));
    world.rewrite(0);
    let client = Arc::new(Client::connect(picker.port, 4).await);
    sleep(Duration::from_secs(1)).await;

    println!("{rate} requests a second for {seconds} s, {n_engines} engines");
    let length = Duration::from_secs(seconds);
    let (tally, memory) = (Arc::new(Tally::default()), Arc::new(Memory::new(picker.resident_mb())));
    let mut changes = JoinSet::new();
    spawn_changes(&mut changes, &world, &engines, length);
    let (watched, seen) = (picker.clone(), memory.clone());
    changes.spawn(async move {
        let mut each = interval(Duration::from_millis(500));
        loop {
            each.tick().await;
            seen.note(watched.resident_mb());
        }
    });
    let sent = send(&client, &world, &tally, rate, length).await;
    memory.stop();
    changes.shutdown().await;

    let rest = at_rest(picker.metrics_port).await;
    let last = page(picker.metrics_port);
    println!("{:.0} requests a second were sent", sent as f64 / length.as_secs_f64());
    println!("{tally}");
    println!("{memory}");
    println!(
        "configs taken up: {}, refused: {}; endpoints files refused: {}; requests ended for others: {}",
        sum(&last, "epp_config_generation", &[]) - 1.0,
        sum(&last, "epp_config_reload_failures_total", &[]),
        sum(&last, "epp_board_refused_files_total", &[]),
        sum(&last, "llm_d_epp_flow_control_revocations_total", &[]),
    );
    let mut broken = tally.broken(sent);
    broken.extend(memory.broken());
    broken.extend(rest);
    if sum(&last, "epp_config_generation", &[]) < length.as_secs_f64() / 4.0 {
        broken.push("configs were not taken up".to_owned());
    }
    let log = std::fs::read_to_string(&log_path).unwrap_or_default();
    broken.extend(log.lines().filter(|line| line.contains("panic")).take(3).map(str::to_owned));
    broken
}

fn spawn_changes(changes: &mut JoinSet<()>, world: &Arc<World>, engines: &Engines, length: Duration) {
    let (rewrites, reload) = (flag("rewrites", 20).max(1), Duration::from_millis(flag("reload-ms", 1000).max(1)));
    let (of_file, directory) = (world.clone(), engines.directory.clone());
    let until = Instant::now() + length;
    changes.spawn(async move {
        let mut each = interval(Duration::from_secs(1) / rewrites as u32);
        for turn in 1.. {
            each.tick().await;
            if Instant::now() > until {
                break;
            }
            of_file.rewrite(turn);
        }
    });
    changes.spawn(async move {
        let mut each = interval(reload);
        let (config, endpoints) = (directory.join("config.yaml"), directory.join("endpoints.yaml"));
        for turn in 1.. {
            each.tick().await;
            if Instant::now() > until {
                break;
            }
            world::replace(&config, &world::config(&endpoints, turn));
        }
    });
}

/// Sends at this rate, whatever becomes of it; gives how many were sent, once all have ended.
async fn send(client: &Arc<Client>, world: &Arc<World>, tally: &Arc<Tally>, rate: u64, length: Duration) -> u64 {
    let abort = flag("abort", 5);
    let mut each = interval(Duration::from_millis(5));
    each.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (began, mut sent, mut open) = (Instant::now(), 0, JoinSet::new());
    while began.elapsed() < length {
        each.tick().await;
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        while sent < due {
            sent += 1;
            let (client, world, tally) = (client.clone(), world.clone(), tally.clone());
            open.spawn(async move {
                let answered = AtomicBool::new(false);
                let one = one(&client, &world, &tally, sent, &answered);
                if fastrand::u64(..100) >= abort {
                    one.await;
                } else if timeout(Duration::from_micros(fastrand::u64(..80_000)), one).await.is_err() {
                    tally.left(answered.load(Ordering::Relaxed));
                }
            });
        }
        while open.try_join_next().is_some() {}
    }
    while open.join_next().await.is_some() {}
    sent
}

/// One request, from the question to the end of its response. Says once it has its answer.
async fn one(client: &Client, world: &World, tally: &Tally, number: u64, answered: &AtomicBool) {
    let objective = match fastrand::u32(..10) {
        0 => Some("high"),
        1..7 => None,
        _ => Some("batch"),
    };
    let prompt = format!("You are chat {} of many. This is turn {number}.", number % 500);
    let body = format!(r#"{{"model":"sim","prompt":"{prompt}","max_tokens":16}}"#);
    let tenant = format!("tenant-{}", fastrand::u32(..TENANTS));
    let request = Request { body: body.into(), objective, tenant };
    let asked = Instant::now();
    let (answer, open) = match timeout(PATIENCE, client.ask(&request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => return tally.lost(why),
        Err(_) => return tally.lost("no answer in time".to_owned()),
    };
    answered.store(true, Ordering::Relaxed);
    match answer {
        Answer::Picked(address) => {
            tally.picked(asked.elapsed(), objective, world.wrong(&address, asked));
            sleep(Duration::from_millis(fastrand::u64(5..45))).await;
            match timeout(PATIENCE, open.end()).await {
                Ok(Ok(None)) => {}
                // It was ended to make room while it ran.
                Ok(Ok(Some(Answer::Refused { reason, .. }))) => tally.ended_early(reason),
                Ok(Ok(Some(Answer::Picked(_)))) => tally.ended_badly("was picked twice".to_owned()),
                Ok(Err(why)) => tally.ended_badly(why),
                Err(_) => tally.ended_badly("the stream did not end".to_owned()),
            }
        }
        Answer::Refused { status, reason } => tally.refused(status, reason),
    }
}

/// What is still under way some seconds after the last request has ended.
async fn at_rest(metrics_port: u16) -> Vec<String> {
    const NOTHING: [&str; 4] = [
        "llm_d_epp_request_running",
        "llm_d_epp_inflight_requests",
        "llm_d_epp_inflight_tokens",
        "llm_d_epp_flow_control_queue_size",
    ];
    let mut left = Vec::new();
    for _ in 0..50 {
        let page = page(metrics_port);
        left = NOTHING.map(|name| (name, sum(&page, name, &[]))).into_iter().filter(|(_, n)| *n != 0.0).collect();
        if left.is_empty() && page.contains(NOTHING[0]) {
            return Vec::new();
        }
        sleep(Duration::from_millis(100)).await;
    }
    left.into_iter().map(|(name, n)| format!("{name} is {n} at the end")).chain([format!("not at rest")]).collect()
}
