//! `epp simulate`: recorded traffic through the pipeline and simulated engines, in time that is only counted.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::builder::NonEmptyStringValueParser;
use epp_plugin_api::PluginType;
use epp_trace::bad::OnBad;
use epp_trace::format::Format;

use super::progress::{Progress, Unit, read_trace};
use crate::page::simulation;
use crate::simulate::arm::{Arm, BUILT_IN};
use crate::simulate::calibration::Calibration;
use crate::simulate::report::{ArmReport, Report, Setup};
use crate::simulate::rollout::Rollouts;
use crate::simulate::schedule;
use crate::simulate::simulation::run as simulate;
use crate::simulate::stage::Stage;
use crate::simulate::traffic::Traffic;

/// More endpoints than this are taken for a slip.
const MOST_ENDPOINTS: u32 = 100_000;

/// Sends recorded traffic through the picker's own pipeline to simulated engines, in virtual time, and compares ways of
/// choosing.
///
/// The same traffic, configs and seed give the same report, byte by byte. docs/simulate.md says what is simulated and what
/// is not.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = arms())]
pub struct Args {
    /// The trace: a file, `-` for the standard input, or a folder with a session a file
    #[arg(long, value_name = "FILE", required_unless_present_any = ["rl", "report"])]
    pub trace: Option<PathBuf>,
    /// The format of the trace, as `epp trace` takes it; found by the first bytes unless given
    #[arg(long, value_name = "F")]
    pub format: Option<Format>,
    /// What to do about a record that cannot be read: `stop`, or `skip` to leave it out and count it
    #[arg(long, value_name = "WHAT", default_value_t = OnBad::Stop)]
    pub on_bad: OnBad,
    /// Rollouts instead of a trace: groups, samples, prompt, output, sigma, most, turns, gap, tool, steps, pause, each
    /// as NAME=NUMBER with commas between them; docs/simulate.md describes them
    #[arg(long, value_name = "SET", conflicts_with = "trace")]
    pub rl: Option<Rollouts>,
    /// How many engines there are
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ENDPOINTS)))]
    pub endpoints: u32,
    /// A way of choosing: a built-in one by its name, or NAME=CONFIG for a config file; can be repeated. Default: all
    /// that are built in
    #[arg(long = "arm", value_name = "ARM", value_parser = NonEmptyStringValueParser::new())]
    pub arms: Vec<String>,
    /// What chance begins with
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How many times as fast as recorded requests come; gaps in sessions shrink alike
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub rate_scale: f64,
    /// Only so many requests of the trace
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// A calibration file, YAML or JSON, that describes the engines, or dense-8b-80gb, which is the default,
    /// dense-8b-24gb or dense-70b-4x80gb; docs/simulate.md has the fields and where the numbers come from
    #[arg(long, value_name = "FILE")]
    pub engine: Option<PathBuf>,
    /// How fast the engines are, given to the endpoints in turns; 1 is as calibrated
    #[arg(long, value_name = "X,Y", value_delimiter = ',', default_value = "1")]
    pub speeds: Vec<f64>,
    /// How often every engine is asked for its load
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    pub scrape_interval_ms: u64,
    /// How long it takes until the picker knows what an engine said; as the calibration file has it unless given
    #[arg(long, value_name = "MS")]
    pub scrape_delay_ms: Option<u64>,
    /// How long it takes until the picker knows what an engine said of its cache, if the config listens to that
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pub event_delay_ms: u64,
    /// A list of engines that fail, leave, join or become slow, and when, YAML or JSON; docs/simulate.md describes it
    #[arg(long, value_name = "FILE")]
    pub changes: Option<PathBuf>,
    /// So many endpoints, the first ones, are for prefill and the others for decode, by their role labels; 0: all are for
    /// both
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub prefill: u32,
    /// After how long an engine's load counts as unknown
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub staleness_ms: u64,
    /// Where the report goes; `-` is the standard output, instead of the table
    #[arg(long, value_name = "OUT")]
    pub json: Option<PathBuf>,
    /// Write a page with charts of all arms there: one HTML file, to be looked at in a browser
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
    /// Simulate nothing, and show a report again that was written with --json: as the table, and with --html as a page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "rl", "arms", "json"])]
    pub report: Option<PathBuf>,
}

fn arms() -> String {
    let lines = BUILT_IN.iter().map(|arm| format!("\n  {:<22} {}", arm.name, arm.about));
    format!("Built-in arms:{}", lines.collect::<String>())
}

/// Prints a table to stdout and writes the report; fails if anything that it is given makes no sense.
pub fn run(args: &Args, registry: &[&'static PluginType]) -> ExitCode {
    let report = match &args.report {
        Some(path) => written(path),
        None => report(args, registry),
    };
    let result = report.and_then(|report| {
        let to_stdout = args.json.as_deref() == Some(Path::new("-"));
        if let Some(path) = args.json.as_ref().filter(|_| !to_stdout) {
            std::fs::write(path, report.json()).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &args.html {
            std::fs::write(path, simulation::page(&report)).with_context(|| path.display().to_string())?;
        }
        let text = if to_stdout { report.json() } else { table(&report) };
        // Nobody is left to be told when the pipe is closed.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "epp: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// A report as it was written before.
fn written(path: &Path) -> anyhow::Result<Report> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Report::read(&text).with_context(|| format!("{}: expected a report of epp simulate", path.display()))
}

fn report(args: &Args, registry: &[&'static PluginType]) -> anyhow::Result<Report> {
    let arms = args.arms.iter().map(|arm| chosen(arm)).collect::<anyhow::Result<Vec<Arm>>>()?;
    let arms = match arms.is_empty() {
        true => BUILT_IN.iter().filter_map(|arm| Arm::built_in(arm.name)).collect(),
        false => arms,
    };
    for (at, arm) in arms.iter().enumerate() {
        if arms[..at].iter().any(|earlier| earlier.name == arm.name) {
            bail!("--arm: expected another name for each arm, found {} twice", arm.name);
        }
    }
    let engine = args.engine.as_deref().map_or_else(|| Ok(Calibration::default()), calibration)?;
    let engines = (0..args.endpoints as usize).map(|i| engine.at_speed(args.speeds[i % args.speeds.len()]));
    let engines = engines.collect::<Result<Vec<_>, _>>().map_err(|why| anyhow!("--speeds: {why}"))?;
    if args.prefill > 0 && args.prefill >= args.endpoints {
        bail!("--prefill: expected fewer than the {} endpoints, found {}", args.endpoints, args.prefill);
    }
    let changes = match &args.changes {
        None => Vec::new(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            schedule::read(&text, args.endpoints).map_err(|why| anyhow!("{}: {why}", path.display()))?
        }
    };
    let (name, traffic) = traffic(args)?;
    let stage = Stage {
        traffic: &traffic,
        engines,
        prefill: args.prefill as usize,
        transfer: engine.transfer().map_err(|why| anyhow!(why))?,
        changes: &changes,
        seed: args.seed,
        scrape_interval: Duration::from_millis(args.scrape_interval_ms),
        scrape_delay: match args.scrape_delay_ms {
            Some(millis) => Duration::from_millis(millis),
            None => engine.scrape_delay().map_err(|why| anyhow!(why))?,
        },
        event_delay: Duration::from_millis(args.event_delay_ms),
        staleness: Duration::from_millis(args.staleness_ms),
        registry,
    };
    let mut reports = Vec::new();
    for arm in &arms {
        let mut progress = Progress::new(&arm.name, Unit::Requests, Some(traffic.len() as u64));
        let done = simulate(arm, &stage, &mut |done| progress.tell(done as u64));
        drop(progress);
        let done = done.map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            anyhow!("the config of arm {} has mistakes:\n  {}", arm.name, lines.join("\n  "))
        })?;
        for note in &done.notes {
            let _ = writeln!(std::io::stderr(), "{}: {note}", arm.name);
        }
        reports.push(done);
    }
    let (prompt_tokens, output_tokens) = traffic.tokens();
    let setup = Setup {
        traffic: name,
        requests: traffic.len() as u64,
        prompt_tokens,
        output_tokens,
        endpoints: args.endpoints.into(),
        speeds: args.speeds.clone(),
        seed: args.seed,
        rate_scale: args.rate_scale,
        scrape_interval_seconds: stage.scrape_interval.as_secs_f64(),
        scrape_delay_seconds: stage.scrape_delay.as_secs_f64(),
        event_delay_seconds: stage.event_delay.as_secs_f64(),
        prefill_endpoints: args.prefill.into(),
        changes: changes.clone(),
        engine,
    };
    Ok(Report { setup, arms: reports })
}

/// The built-in type of engine of this name, or what a file describes.
///
/// # Errors
/// If there is none, or what is wrong with it.
pub fn calibration(path: &Path) -> anyhow::Result<Calibration> {
    if let Some(known) = Calibration::built_in().into_iter().find(|engine| Path::new(&engine.name) == path) {
        return Ok(known);
    }
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Calibration::read(&text).map_err(|why| anyhow!("{}: {why}", path.display()))
}

fn chosen(arm: &str) -> anyhow::Result<Arm> {
    let Some((name, path)) = arm.split_once('=') else {
        return Arm::built_in(arm)
            .ok_or_else(|| anyhow!("--arm: expected NAME=CONFIG or one of {}, found {arm}", Arm::names()));
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("--arm {name}: {path}"))?;
    Ok(Arm::of_config(name, text))
}

fn traffic(args: &Args) -> anyhow::Result<(String, Traffic)> {
    let rate = args.rate_scale;
    if !(rate.is_finite() && rate > 0.0) {
        bail!("--rate-scale: expected a number above 0, found {rate}");
    }
    let (name, traffic) = match (&args.rl, &args.trace) {
        (Some(rollouts), _) => (rollouts.to_string(), Traffic::of_rollouts(rollouts, args.seed)),
        (None, Some(path)) => {
            let said = || path.display().to_string();
            let trace = read_trace(path, args.format, args.on_bad).with_context(said)?;
            let limit = args.limit.unwrap_or(usize::MAX);
            let name = path.file_name().map_or_else(said, |name| name.to_string_lossy().into_owned());
            (name, Traffic::of_trace(trace, rate, limit).map_err(|why| anyhow!("{}: {why}", said()))?)
        }
        (None, None) => bail!("expected --trace or --rl"),
    };
    if traffic.is_empty() {
        bail!("there is no request to send");
    }
    Ok((name, traffic))
}

/// One line an arm.
fn table(report: &Report) -> String {
    let rollouts = report.arms.iter().any(|arm| arm.rollouts.is_some());
    let mut head: Vec<String> = [
        "arm",
        "requests",
        "failed",
        "reuse",
        "of possible",
        "ttft p50",
        "ttft p99",
        "tpot p50",
        "e2e p50",
        "e2e p99",
        "in-flight max/mean",
        "at each moment",
        "makespan",
    ]
    .map(str::to_owned)
    .into();
    if rollouts {
        head.extend(["together", "straggler", "tail", "idle"].map(str::to_owned));
    }
    let rows = report.arms.iter().map(|arm| line(arm, rollouts));
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = heading(&report.setup);
    for line in &lines {
        let mut row = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(row, "  {cell:>width$}");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

fn heading(setup: &Setup) -> String {
    let Setup { traffic, requests, prompt_tokens, output_tokens, endpoints, engine, .. } = setup;
    format!(
        "{traffic}: {requests} requests, {prompt_tokens} prompt and {output_tokens} output tokens; {endpoints} endpoints, \
         {}\n\n",
        engine.name
    )
}

fn line(arm: &ArmReport, rollouts: bool) -> Vec<String> {
    let failed = arm.requests.saturating_sub(arm.completed);
    let reuse = arm.reused_tokens as f64 / (arm.prompt_tokens as f64).max(1.0);
    let mut cells = vec![
        arm.name.clone(),
        arm.requests.to_string(),
        failed.to_string(),
        percent(reuse),
        percent(arm.reuse_share),
        seconds(arm.ttft_seconds.p50),
        seconds(arm.ttft_seconds.p99),
        seconds(arm.tpot_seconds.p50),
        seconds(arm.e2e_seconds.p50),
        seconds(arm.e2e_seconds.p99),
        format!("{:.2}", arm.inflight_max_over_mean),
        format!("{:.2}", arm.inflight_momentary_max_over_mean),
        seconds(arm.makespan_seconds),
    ];
    match &arm.rollouts {
        Some(of) => {
            cells.extend([percent(of.colocated_groups), format!("{:.2}", of.straggler_ratio)]);
            cells.extend([percent(of.tail_share), percent(of.idle_share)]);
        }
        None if rollouts => cells.resize(cells.len() + 4, String::new()),
        None => {}
    }
    cells
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.2} s"),
        s => format!("{s:.0} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_arm_is_named_with_those_that_there_are() {
        let why = chosen("rendom").unwrap_err().to_string();
        assert!(
            why.starts_with("--arm: expected NAME=CONFIG or one of default, ") && why.ends_with("found rendom"),
            "{why}"
        );
        assert!(format!("{:#}", chosen("mine=/nowhere").unwrap_err()).starts_with("--arm mine: /nowhere: "));
    }

    #[test]
    fn an_engine_is_built_in_or_read() {
        assert_eq!(calibration(Path::new("dense-8b-24gb")).unwrap().blocks, 2670);
        assert!(format!("{:#}", calibration(Path::new("/nowhere")).unwrap_err()).starts_with("/nowhere: "));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0.0123, 1.5, 3537.2].map(seconds), ["12.3 ms", "1.50 s", "3537 s"]);
        assert_eq!(percent(0.4567), "45.7 %");
    }
}
