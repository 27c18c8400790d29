//! `epp trace FILE`: what is in recorded traffic.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use epp_trace::bad::{Error, OnBad, Skipped};
use epp_trace::format::Format;
use epp_trace::summary::{Reuse, Sessions, Spread, Summary};

use super::progress::read_trace;
use crate::page::numbers::{duration, grouped, short};
use crate::page::traffic;

/// How many lines a plot is high.
const ROWS: u32 = 4;
/// Parts of a line that a bar may fill, from none to all of it.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Tells what is in recorded traffic: requests, lengths, sessions, arrivals over time, and what a cache could reuse.
///
/// docs/traces.md describes the formats.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The file, `-` for the standard input, or a folder with a session a file
    pub file: PathBuf,
    /// mooncake, weka, azure, bailian, burstgpt, generator, rollout, request-log, openai-batch or decisions; found by
    /// the first bytes unless given
    #[arg(long, value_name = "F")]
    pub format: Option<Format>,
    /// What to do about a record that cannot be read: `stop`, or `skip` to leave it out and count it
    #[arg(long, value_name = "WHAT", default_value_t = OnBad::Stop)]
    pub on_bad: OnBad,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write a page with plots there: one HTML file, to be looked at in a browser
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,
}

/// Prints the summary to stdout, and what was left out to stderr; fails if the trace cannot be read.
pub fn run(args: &Args) -> ExitCode {
    match read_trace(&args.file, args.format, args.on_bad) {
        Ok(trace) => {
            let summary = Summary::of(&trace);
            if let Some(out) = &args.html
                && let Err(why) = std::fs::write(out, traffic::page(&name(args), &summary))
            {
                let _ = writeln!(std::io::stderr(), "epp: cannot write {}: {why}", out.display());
                return ExitCode::FAILURE;
            }
            let text = if args.json { json(&summary) } else { page(&summary) };
            // Nobody is left to be told when these pipes are closed.
            let _ = std::io::stdout().write_all(text.as_bytes());
            let _ = std::io::stderr().write_all(left_out(&trace.skipped).as_bytes());
            ExitCode::SUCCESS
        }
        Err(why) => {
            let hint = if matches!(why, Error::Bad(_)) { " (--on-bad skip leaves such records out)" } else { "" };
            let _ = writeln!(std::io::stderr(), "epp: {}: {why}{hint}", args.file.display());
            ExitCode::FAILURE
        }
    }
}

/// What the trace is called on a page.
fn name(args: &Args) -> String {
    match args.file.file_name() {
        Some(name) if args.file != Path::new("-") => name.to_string_lossy().into_owned(),
        Some(_) | None => "the standard input".into(),
    }
}

fn json(summary: &Summary) -> String {
    let mut text = serde_json::to_string_pretty(summary).expect("a summary has text as keys");
    text.push('\n');
    text
}

fn left_out(skipped: &Skipped) -> String {
    if skipped.n_records == 0 {
        return String::new();
    }
    let mut text = format!("epp: left out {} bad records, the first of them:\n", grouped(skipped.n_records));
    for bad in &skipped.first {
        text.push_str(&format!("  {bad}\n"));
    }
    text
}

/// The summary as lines of a name and what there is to say.
fn page(summary: &Summary) -> String {
    let mut page = Page::default();
    page.line("format", summary.format);
    let mut requests = grouped(summary.requests as u64);
    for (n, what) in [(summary.skipped, "bad and left out"), (summary.out_of_order, "out of order and sorted")] {
        if n > 0 {
            let _ = write!(requests, ", {} {what}", grouped(n));
        }
    }
    page.line("requests", &requests);
    page.line("duration", &duration(summary.duration_seconds));
    if let Some(rate) = summary.requests_per_second {
        let burstiness = summary.burstiness.map_or(String::new(), |cv| format!(", burstiness {cv:.2} (1 is Poisson)"));
        page.line("arrivals", &format!("{rate:.3} a second{burstiness}"));
        page.plot(&summary.arrivals.requests);
        let each = summary.arrivals.seconds_each;
        let most = summary.arrivals.requests.iter().max().copied().unwrap_or(0);
        page.line("", &format!("a column is {}, the highest has {}", duration(each), grouped(most.into())));
    }
    for (name, spread) in [("prompt tokens", &summary.prompt_tokens), ("output tokens", &summary.output_tokens)] {
        match spread {
            Some(spread) => page.spread(name, spread),
            None => page.line(name, "the trace does not say"),
        }
    }
    if let Some(sessions) = &summary.sessions {
        page.sessions(sessions);
    }
    let models: Vec<String> =
        summary.models.iter().map(|of| format!("{} ({})", of.model, grouped(of.requests))).collect();
    if !models.is_empty() {
        page.line("models", &models.join(", "));
    }
    if let Some(reuse) = &summary.reuse {
        page.reuse(reuse);
    }
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, name: &str, text: &str) {
        let line = format!("{name:<14} {text}");
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn plot(&mut self, values: &[u32]) {
        for row in bars(values, ROWS) {
            self.line("", &row);
        }
    }

    fn spread(&mut self, name: &str, spread: &Spread) {
        let Spread { mean, p50, p90, p99, max, total, by_power_of_two } = spread;
        let [p50, p90, p99, max] = [p50, p90, p99, max].map(|n| grouped(u64::from(*n)));
        let (mean, total) = (grouped(mean.round() as u64), short(*total));
        self.line(name, &format!("p50 {p50}, p90 {p90}, p99 {p99}, max {max}, mean {mean}, together {total}"));
        let lowest = by_power_of_two.iter().position(|n| *n > 0).unwrap_or(0);
        let wide: Vec<u32> = by_power_of_two[lowest..].iter().flat_map(|n| [*n; 3]).collect();
        let (from, to) = (lower(lowest), lower(by_power_of_two.len()));
        for row in bars(&wide, 1) {
            self.line("", &format!("{row}  from {} to {}, doubling", grouped(from), grouped(to)));
        }
    }

    fn sessions(&mut self, Sessions { sessions, turns, gap_seconds_p50 }: &Sessions) {
        let (n, of) = (grouped(*sessions as u64), grouped(turns.total));
        self.line(
            "sessions",
            &format!("{n} with {of} turns: p50 {}, p90 {}, max {}", turns.p50, turns.p90, grouped(turns.max.into())),
        );
        if let Some(gap) = gap_seconds_p50 {
            self.line("", &format!("median gap before a turn {}", duration(*gap)));
        }
    }

    fn reuse(&mut self, reuse: &Reuse) {
        let (share, tokens) = (reuse.share * 100.0, short(reuse.reusable_tokens));
        self.line(
            "reuse possible",
            &format!("{share:.1} % of the prompt tokens ({tokens}), if nothing is ever evicted"),
        );
        let blocks = match (reuse.unique_blocks, reuse.block_tokens) {
            (Some(n), Some(size)) => format!(" in {} blocks of {size}", grouped(n)),
            (None, _) | (_, None) => String::new(),
        };
        self.line("unique", &format!("{} tokens{blocks}", short(reuse.unique_tokens)));
        let set = &reuse.working_set;
        let (most, mean) = (short(set.tokens_max), short(set.tokens_mean));
        let minutes = duration(set.window_seconds as f64);
        self.line("working set", &format!("of {minutes}: at most {most} tokens, {mean} on average"));
    }
}

/// The least number of that many binary digits.
fn lower(digits: usize) -> u64 {
    if digits == 0 { 0 } else { 1 << (digits - 1) }
}

/// Bars of these heights, the highest as high as there are rows, top row first. What is there at all can be seen.
fn bars(values: &[u32], n_rows: u32) -> Vec<String> {
    let most = values.iter().max().copied().unwrap_or(0).max(1);
    let steps = |value: u32| (u64::from(value) * u64::from(n_rows) * 8).div_ceil(u64::from(most)) as u32;
    let rows = (0..n_rows).rev();
    rows.map(|row| values.iter().map(|value| BARS[steps(*value).saturating_sub(row * 8).min(8) as usize]).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use epp_trace::reader::Reader;
    use epp_trace::trace::Trace;

    use super::*;

    fn of(text: &'static str) -> Summary {
        let reader = Reader::new(Box::new(text.as_bytes()), None).unwrap();
        Summary::of(&Trace::read(reader, OnBad::Skip).unwrap())
    }

    const TEXT: &str = "{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 10, \"hash_ids\": [1, 2]}\n\
                        {\"timestamp\": 60000, \"input_length\": 1500, \"output_length\": 0, \"hash_ids\": [1, 2, 3]}\n\
                        {}\n\
                        {\"timestamp\": 30000, \"input_length\": 300, \"output_length\": 10, \"hash_ids\": [4]}\n";

    #[test]
    fn people_read_a_page() {
        let want = [
            "format         mooncake",
            "requests       3, 1 bad and left out, 1 out of order and sorted",
            "duration       60.0 s",
            "arrivals       0.050 a second, burstiness 0.00 (1 is Poisson)",
            "               █                             █                            █",
            "               █                             █                            █",
            "               █                             █                            █",
            "               █                             █                            █",
            "               a column is 1.0 s, the highest has 1",
            "prompt tokens  p50 1,024, p90 1,500, p99 1,500, max 1,500, mean 941, together 2,824",
            "               ▄▄▄   ███  from 256 to 2,048, doubling",
            "output tokens  p50 10, p90 10, p99 10, max 10, mean 7, together 20",
            "               ▄▄▄         ███  from 0 to 16, doubling",
            "reuse possible 36.3 % of the prompt tokens (1,024), if nothing is ever evicted",
            "unique         1,800 tokens in 4 blocks of 512",
            "working set    of 5.0 min: at most 1,800 tokens, 1,800 on average",
        ];
        assert_eq!(page(&of(TEXT)).lines().collect::<Vec<_>>(), want);
    }

    #[test]
    fn programs_read_json() {
        let value: serde_json::Value = serde_json::from_str(&json(&of(TEXT))).unwrap();
        assert_eq!(value["requests"], 3);
        assert_eq!(value["skipped"], 1);
        assert_eq!(value["reuse"]["reusable_tokens"], 1024);
        assert_eq!(value["sessions"], serde_json::Value::Null);
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        assert_eq!(bars(&[0, 1, 8, 16], 2), ["   █", " ▁██"]);
        assert_eq!(bars(&[1, 1000], 1), ["▁█"]);
        assert_eq!(bars(&[], 1), [""]);
    }
}
