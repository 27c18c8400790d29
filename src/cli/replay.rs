//! `epp replay FILE`: recorded decisions made again, under another config if asked.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use super::progress::Progress;
use crate::app;
use crate::replay::report::{Difference, Report};
use crate::replay::{self, Wish};

/// Makes recorded decisions again and says which differ and why: under the recorded config, or under another one, so that
/// a change of weights, parameters, filters or scorers can be judged on real traffic before it is deployed.
///
/// Recordings are made with `--record`. docs/replay.md says what is done again and what is taken as recorded.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The recording; FILE.1 is read before it, if there is one
    file: PathBuf,
    /// Judge by this config instead of the recorded one
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Only the last N decisions
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Tell of so many differences in full
    #[arg(long, value_name = "N", default_value_t = 5)]
    show: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Fail if any decision differs
    #[arg(long)]
    expect_same: bool,
}

/// Prints the report to stdout; fails if the recording cannot be replayed.
pub fn run(args: &Args) -> ExitCode {
    let report = match report(args) {
        Ok(report) => report,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "epp: {why:#}");
            return ExitCode::FAILURE;
        }
    };
    let text = if args.json { json(&report) } else { page(&report) };
    // Nobody is left to be told when the pipe is closed.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if args.expect_same && report.differ > 0 {
        let _ = writeln!(std::io::stderr(), "epp: expected the same decisions, found {} that differ", report.differ);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn report(args: &Args) -> anyhow::Result<Report> {
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let config = args.config.as_ref().map(read).transpose()?;
    let wish = Wish { config: config.as_deref(), last: args.last, n_shown: args.show };
    let mut progress = Progress::of_file(&args.file);
    replay::run(&args.file, &wish, app::registry(), &mut |done| progress.tell(done))
}

fn json(report: &Report) -> String {
    let mut text = serde_json::to_string_pretty(report).expect("a report has text as keys");
    text.push('\n');
    text
}

fn page(report: &Report) -> String {
    let mut out = String::new();
    if let (Some(first), Some(last)) = (report.first, report.last) {
        let _ = writeln!(out, "recorded  {} decisions from {first:.3} to {last:.3}", report.cycles);
    } else {
        let _ = writeln!(out, "recorded  no decisions");
    }
    let refused = report.cycles - report.judged - report.unknown;
    let of_them = if refused > 0 { format!(", {refused} came to nobody's score") } else { String::new() };
    let _ = writeln!(out, "judged    {}{of_them}", report.judged);
    let share = report.differ as f64 / report.judged.max(1) as f64 * 100.0;
    let _ = writeln!(out, "differ    {} ({share:.1} %)", report.differ);
    for (profile, n) in &report.differ_by_profile {
        let _ = writeln!(out, "          {n} in profile {profile}");
    }
    for note in &report.notes {
        let _ = writeln!(out, "note      {note}");
    }
    let width = report.picks.keys().map(|endpoint| endpoint.chars().count()).max().unwrap_or_default().max(8);
    if !report.picks.is_empty() {
        let _ = writeln!(out, "\n{:width$}  {:>8}  {:>8}", "endpoint", "recorded", "now");
    }
    for (endpoint, picks) in &report.picks {
        let _ = writeln!(out, "{endpoint:width$}  {:>8}  {:>8}", picks.recorded, picks.now);
    }
    for difference in &report.differences {
        explain(&mut out, difference);
    }
    out
}

/// A difference as a table: for each scorer its weight and what it gave both endpoints, weighted as then and as now.
fn explain(out: &mut String, difference: &Difference) {
    let named = |endpoint: &Option<String>| endpoint.clone().unwrap_or_else(|| "nobody".into());
    let (then, now) = (named(&difference.recorded), named(&difference.now));
    let Difference { at, request, profile, .. } = difference;
    let _ = writeln!(out, "\n{at:.3} request {request:?}, profile {profile}: {then} -> {now}");
    let width = difference.scorers.iter().map(|s| s.scorer.chars().count()).max().unwrap_or_default().max(6);
    let (a, b) = (then.chars().count().max(16), now.chars().count().max(16));
    let _ = writeln!(out, "  {:width$}  {:>14}  {then:>a$}  {now:>b$}", "scorer", "weight");
    let pair = |[before, after]: [f64; 2]| format!("{before:.3} -> {after:.3}");
    for share in &difference.scorers {
        let weighted = |[then, after]: [Option<f64>; 2]| {
            let one = |score: Option<f64>, weight: f64| score.map_or("-".into(), |s| format!("{:.3}", s * weight));
            format!("{} -> {}", one(then, share.weights[0]), one(after, share.weights[1]))
        };
        let [before, after] = share.weights;
        let weight = format!("{before} -> {after}");
        let (recorded, now) = (weighted(share.recorded), weighted(share.now));
        let _ = writeln!(out, "  {:width$}  {weight:>14}  {recorded:>a$}  {now:>b$}", share.scorer);
    }
    for dropped in &difference.dropped {
        let filter = dropped.filter.as_ref().map_or("a filter".into(), |filter| format!("filter {filter}"));
        let how = if dropped.is_now { "drops" } else { "dropped" };
        let when = if dropped.is_now { "now" } else { "then" };
        let _ = writeln!(out, "  {filter} {how} {} {when}", named(&dropped.endpoint));
    }
    let [recorded, now] = difference.totals().map(pair);
    let _ = writeln!(out, "  {:width$}  {:>14}  {recorded:>a$}  {now:>b$}", "total", "");
}
