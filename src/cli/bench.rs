//! `epp bench`: recorded traffic through pickers over real sockets, with what each took and cost.

mod aim;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::ValueEnum;
use epp_trace::bad::OnBad;
use epp_trace::format::Format;
use epp_trace::trace::Trace;
use http::HeaderName;
use tokio::task::JoinHandle;

use self::aim::Over;
use crate::bench::baseline;
use crate::bench::load::{self, Plan};
use crate::bench::process::Process;
use crate::bench::report::{FIGURES, Figures, Picker, Report, Spread};
use crate::bench::target::{Patience, Target};
use crate::bench::work::{Manner, Pace, Prompts, Turns, Wants, Work};
use crate::cli::progress::{Progress, Unit, read_trace};
use crate::config::duration::parse_duration;
use crate::page;

/// How long a picker may take until it accepts connections.
const PATIENCE: Duration = Duration::from_secs(10);
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
const MOST_ROUNDS: u32 = 1000;

/// Sends recorded traffic to a picker, or to several in turns, and says how fast each answers and what it costs.
///
/// docs/bench.md says how to read it. Fails if the run proves nothing: requests went out more than 1 % too slowly or too
/// fast, or fewer than 99 % got an endpoint.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The ext_proc port of the picker; or `http://HOST:PORT` (`https:` too) of a gateway, such as Envoy, that asks one and
    /// has engines behind it, or of an engine
    #[arg(long, value_name = "HOST:PORT", required_unless_present_any = ["baseline", "serve_baseline"])]
    target: Option<String>,
    /// Another picker or gateway, which takes turns with it
    #[arg(long, value_name = "HOST:PORT", requires = "target")]
    versus: Option<String>,
    /// A server of this program that answers everything with a constant takes a turn, too: what nobody can save
    #[arg(long)]
    baseline: bool,
    /// The pickers speak TLS; any certificate will do, as they make their own
    #[arg(long)]
    tls: bool,
    /// Trust the certificates of this PEM file and what they have signed, and no others
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Send each request to the engine that was picked, as RL clients do, and measure its response
    #[arg(long, requires = "target")]
    dispatch: bool,
    /// The process of the picker: its CPU time and memory are told
    #[arg(long, value_name = "PID", requires = "target")]
    pid: Option<u32>,
    /// The process of the other picker
    #[arg(long, value_name = "PID", requires = "versus")]
    versus_pid: Option<u32>,
    /// The recorded traffic: a file, `-` for the standard input, or a folder with a session a file
    #[arg(long, value_name = "FILE", required_unless_present = "serve_baseline")]
    trace: Option<PathBuf>,
    /// Its format, as `epp trace` takes it; found by the first bytes unless given
    #[arg(long, value_name = "F")]
    format: Option<Format>,
    /// What to do about a record that cannot be read: `stop` or `skip`
    #[arg(long, value_name = "WHAT", default_value_t = OnBad::Stop)]
    on_bad: OnBad,
    /// Send at the trace's own times, so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = positive, conflicts_with_all = ["rate", "concurrency"])]
    rate_scale: f64,
    /// Send as the trace has it, but so many requests a second on average
    #[arg(long, value_name = "N", value_parser = positive, conflicts_with = "concurrency")]
    rate: Option<f64>,
    /// Keep so many requests under way, whatever the trace's times are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: Option<u32>,
    /// When turns of a session come: after the answers that they wait for and their gap, or at the trace's times
    #[arg(long, value_enum, default_value_t = Come::Waiting, value_name = "WHEN")]
    turns: Come,
    /// Send no more than the first N requests of the trace in a round
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    requests: Option<u32>,
    /// The first N requests of a round are not counted; a tenth of them unless given
    #[arg(long, value_name = "N")]
    warm_up: Option<u32>,
    /// How often each picker gets the requests; 3 unless given, 1 if there is one picker
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROUNDS)))]
    rounds: Option<u32>,
    /// Who asks pickers: a client that sends headers and body at once, or Envoy in one of two set-ups
    #[arg(long, value_enum, default_value_t = As::Direct, value_name = "WHO")]
    mode: As,
    /// How prompts are sent of which the trace has no text
    #[arg(long, value_enum, default_value_t = Sent::Ids, value_name = "AS")]
    prompts: Sent,
    /// Ask for this model instead of the trace's
    #[arg(long)]
    model: Option<String>,
    /// Where nobody generates: how long a response takes for each of its tokens; it is in flight for so long
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s")]
    token_time: Duration,
    /// How long it may take until an endpoint is known, or the headers of a response are there
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    timeout: Duration,
    /// How long a whole response of an engine may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    response_timeout: Duration,
    /// The response header of a gateway that names the endpoint
    #[arg(long, value_name = "NAME", default_value = "x-engine")]
    endpoint_header: HeaderName,
    /// Connections to each picker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Write all figures of all rounds there
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Write a page with charts of all rounds there: one HTML file, to be looked at in a browser
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Be the server of `--baseline` on this port, and nothing else
    #[arg(long, value_name = "PORT", hide = true)]
    serve_baseline: Option<u16>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum As {
    /// A client that dispatches requests itself
    Direct,
    /// Envoy that sends the request's body in one message, and no response body
    Lean,
    /// Envoy that streams both bodies
    Duplex,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Come {
    /// After the answers that they wait for, and their gap
    Waiting,
    /// At the trace's times
    Timed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sent {
    /// As token ids
    Ids,
    /// As text with a word for each token
    Text,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

/// One that takes turns.
struct Turn {
    name: &'static str,
    address: String,
    target: Arc<Target>,
    process: Option<Process>,
    rounds: Vec<Figures>,
}

/// Measures and prints.
///
/// # Errors
/// If the trace or a picker cannot be had, or if the run proves nothing.
pub async fn run(args: Args) -> anyhow::Result<()> {
    if let Some(port) = args.serve_baseline {
        return baseline::serve(port).await;
    }
    let path = args.trace.clone().unwrap_or_default();
    let (format, on_bad, name) = (args.format, args.on_bad, path.display().to_string());
    let trace = tokio::task::spawn_blocking(move || read_trace(&path, format, on_bad)).await?;
    let trace = trace.with_context(|| name.clone())?;
    let over = args.over()?;
    let work = Arc::new(args.work(trace, over));
    let (_baseline, mut turns) = args.connected(over).await?;
    let patience = Patience { answer: args.timeout, response: args.response_timeout, token_time: args.token_time };
    let plan = Plan { pace: args.pace(), patience };
    let rounds = args.rounds.unwrap_or(if turns.len() > 1 { 3 } else { 1 });
    let mut report = args.report(&work, over, name, plan.pace, rounds);
    let (ended, mut complaints) = (Arc::default(), Vec::new());
    let shown = show(&ended, work.len() * turns.len() * rounds as usize);
    for round in 1..=rounds {
        for turn in &mut turns {
            let measured = load::run(&turn.target, &work, plan, turn.process, &ended).await?;
            let complaint = measured.tally.complaint.as_ref();
            complaints.extend(complaint.map(|complaint| format!("epp: {}, round {round}: {complaint}\n", turn.name)));
            turn.rounds.push(Figures::of(&measured));
        }
    }
    shown.abort();
    // Its line is wiped off before anything else is said.
    let _ = shown.await;
    let _ = std::io::stderr().write_all(complaints.concat().as_bytes());
    report.pickers = turns.into_iter().map(Turn::finish).collect();
    report.conclude();
    // Nobody is left to be told when the pipe is closed.
    let _ = std::io::stdout().write_all(table(&report).as_bytes());
    if let Some(out) = &args.json {
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    if let Some(out) = &args.html {
        std::fs::write(out, page::bench::page(&report)?).with_context(|| format!("cannot write {}", out.display()))?;
    }
    if !report.valid {
        bail!("the run proves nothing: {}", report.problems.join("; "));
    }
    Ok(())
}

impl Args {
    fn pace(&self) -> Pace {
        match (self.concurrency, self.rate) {
            (Some(n), _) => Pace::AtOnce(n as usize),
            (None, Some(rate)) => Pace::Rate(rate),
            (None, None) => Pace::Scaled(self.rate_scale),
        }
    }

    fn work(&self, trace: Trace, over: Over) -> Work {
        let manner = Manner {
            prompts: match self.prompts {
                Sent::Ids => Prompts::Ids,
                Sent::Text => Prompts::Text,
            },
            wants: match over {
                Over::Picks => Wants::Endpoint,
                Over::Dispatch | Over::Http => Wants::Response,
            },
            turns: match self.turns {
                Come::Waiting => Turns::Waiting,
                Come::Timed => Turns::Timed,
            },
            model: self.model.clone(),
        };
        let n = self.requests.map_or(usize::MAX, |n| n as usize);
        Work::new(trace, manner, n, self.warm_up.map(|n| n as usize))
    }

    /// Everyone who takes turns, connected; and the baseline's process, which ends when dropped.
    async fn connected(&self, over: Over) -> anyhow::Result<(Option<Baseline>, Vec<Turn>)> {
        let mut wanted = Vec::new();
        wanted.extend(self.target.clone().map(|address| ("target", address, self.pid)));
        wanted.extend(self.versus.clone().map(|address| ("versus", address, self.versus_pid)));
        let baseline = self.baseline.then(Baseline::start).transpose()?;
        wanted.extend(baseline.as_ref().map(|b| ("baseline", format!("127.0.0.1:{}", b.port), Some(b.child.id()))));
        let mut turns = Vec::new();
        for (name, address, pid) in wanted {
            let target = Arc::new(self.reach(name, &address, over).await?);
            let process = pid.map(Process);
            if let Some(process) = process {
                process.on_cpu()?;
            }
            turns.push(Turn { name, address, target, process, rounds: Vec::new() });
        }
        Ok((baseline, turns))
    }

    fn report(&self, work: &Work, over: Over, trace: String, pace: Pace, rounds: u32) -> Report {
        let load = match pace {
            Pace::AtOnce(1) => "closed loop, one request at a time".into(),
            Pace::AtOnce(n) => format!("closed loop, {n} requests at a time"),
            Pace::Rate(rate) => format!("open loop, {rate} requests a second on average"),
            Pace::Scaled(1.0) => "open loop, at the trace's own times".into(),
            Pace::Scaled(x) => format!("open loop, {x} times as fast as the trace"),
        };
        Report {
            trace,
            requests: work.len() - work.warm_up,
            warm_up: work.warm_up,
            mode: match (over, self.mode) {
                (Over::Http, _) => "http",
                (Over::Dispatch, _) => "dispatch",
                (Over::Picks, As::Direct) => "direct",
                (Over::Picks, As::Lean) => "lean",
                (Over::Picks, As::Duplex) => "duplex",
            },
            load: format!("{load}, {rounds} {}", if rounds == 1 { "round" } else { "rounds" }),
            valid: false,
            problems: Vec::new(),
            pickers: Vec::new(),
            ratios: Vec::new(),
        }
    }
}

impl Turn {
    fn finish(self) -> Picker {
        let Self { name, address, rounds, .. } = self;
        Picker { name: name.into(), address, rounds, over_rounds: BTreeMap::new() }
    }
}

/// This program as the server of constants; ended when dropped.
struct Baseline {
    child: Child,
    port: u16,
}

impl Baseline {
    fn start() -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let this = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(this);
        command.args(["bench", "--serve-baseline", &port.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|why| anyhow!("cannot start the baseline: {why}"))?;
        Ok(Self { child, port })
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says how many requests have ended, until the task is aborted.
fn show(ended: &Arc<AtomicUsize>, of: usize) -> JoinHandle<()> {
    let (ended, mut progress) = (ended.clone(), Progress::new("bench", Unit::Requests, Some(of as u64)));
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PROGRESS_EVERY).await;
            progress.tell(ended.load(Ordering::Relaxed) as u64);
        }
    })
}

/// The report for people: a row a figure, a column a picker, then what the first is to the others.
fn table(report: &Report) -> String {
    let mut out = String::new();
    let warm_up = if report.warm_up > 0 { format!(" after {} to warm up", report.warm_up) } else { String::new() };
    let _ = writeln!(out, "trace   {}, {} requests a round{warm_up}", report.trace, report.requests);
    let _ = writeln!(out, "load    {}; {} streams", report.load, report.mode);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut heads = vec![String::new()];
    heads.extend(report.pickers.iter().map(|picker| picker.name.clone()));
    let others: Vec<&String> = report.pickers.iter().skip(1).map(|picker| &picker.name).collect();
    heads.extend(others.iter().map(|other| format!("{}/{other}", report.pickers[0].name)));
    rows.push(heads);
    for figure in FIGURES {
        let each: Vec<Option<&Spread>> = report.pickers.iter().map(|p| p.over_rounds.get(figure)).collect();
        if each.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![figure.replace('_', " ")];
        row.extend(each.into_iter().map(cell));
        row.extend(others.iter().map(|other| {
            cell(report.ratios.iter().find(|r| r.figure == figure && r.to == **other).map(|ratio| &ratio.spread))
        }));
        rows.push(row);
    }
    let n_columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for problem in &report.problems {
        let _ = writeln!(out, "INVALID {problem}");
    }
    out
}

fn cell(spread: Option<&Spread>) -> String {
    match spread {
        None => "-".into(),
        Some(Spread { median, low, high }) if low == high => digits(*median),
        Some(Spread { median, low, high }) => format!("{} ({} to {})", digits(*median), digits(*low), digits(*high)),
    }
}

/// Three digits that count, more before the point.
fn digits(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    pub fn parse(flags: &[&str]) -> Result<Args, String> {
        let line = Line::try_parse_from([&["bench", "--trace=t"], flags].concat());
        line.map(|line| line.args).map_err(|e| e.to_string())
    }

    #[test]
    fn flags_that_make_no_sense_together_are_refused() {
        for (flags, name) in [
            (&["--rate=1"][..], "--target"),
            (&["--target=a:1", "--rate=1", "--concurrency=1"], "--concurrency"),
            (&["--target=a:1", "--rate-scale=2", "--rate=1"], "--rate"),
            (&["--target=a:1", "--rate-scale=0"], "above 0"),
            (&["--target=a:1", "--rate=NaN"], "above 0"),
            (&["--target=a:1", "--versus-pid=1"], "--versus"),
            (&["--target=a:1", "--rounds=0"], "--rounds"),
            (&["--baseline", "--pid=1"], "--target"),
            (&["--target=a:1", "--turns=never"], "--turns"),
            (&["--baseline", "--dispatch"], "--target"),
        ] {
            let text = parse(flags).unwrap_err();
            assert!(text.contains(name), "{flags:?}: {text}");
        }
    }

    #[test]
    fn the_load_is_the_traces_own_unless_said_otherwise() {
        let pace = |flags: &[&str]| parse(&[&["--target=a:1"], flags].concat()).unwrap().pace();
        assert_eq!(pace(&[]), Pace::Scaled(1.0));
        assert_eq!(pace(&["--rate-scale=2.5"]), Pace::Scaled(2.5));
        assert_eq!(pace(&["--rate=7"]), Pace::Rate(7.0));
        assert_eq!(pace(&["--concurrency=3"]), Pace::AtOnce(3));
    }

    #[test]
    fn people_read_a_table_with_spreads() {
        let spread = |median, low, high| Spread { median, low, high };
        let picker = |name: &str, p50| Picker {
            name: name.into(),
            address: String::new(),
            rounds: Vec::new(),
            over_rounds: [("latency_p50_ms", p50)].into(),
        };
        let report = Report {
            trace: "t.jsonl".into(),
            requests: 90,
            warm_up: 10,
            mode: "direct",
            load: "closed loop, 4 requests at a time, 3 rounds".into(),
            valid: false,
            problems: vec!["target, round 1: too slow".into()],
            pickers: vec![picker("target", spread(0.25, 0.125, 0.5)), picker("versus", spread(12.0, 12.0, 12.0))],
            ratios: vec![crate::bench::report::Ratio {
                figure: "latency_p50_ms",
                of: "target".into(),
                to: "versus".into(),
                spread: spread(0.02, 0.01, 0.04),
            }],
        };
        let want = [
            "trace   t.jsonl, 90 requests a round after 10 to warm up",
            "load    closed loop, 4 requests at a time, 3 rounds; direct streams",
            "                target                  versus  target/versus",
            "latency p50 ms  0.250 (0.125 to 0.500)  12.0    0.020 (0.010 to 0.040)",
            "INVALID target, round 1: too slow",
        ];
        assert_eq!(table(&report).lines().collect::<Vec<_>>(), want);
    }
}
