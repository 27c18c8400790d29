//! The table of arms, how their times are spread, and what they reused.

use super::Shown;
use crate::page::bars::{self, Bar};
use crate::page::chart::{Plot, figure, key};
use crate::page::document::Document;
use crate::page::lines::{self, Line, cumulative};
use crate::page::markup::Markup;
use crate::page::numbers::{grouped, number, percent, round_short, short, time};
use crate::page::scale::Scale;
use crate::page::table::{Better, Cell, Column, Head, Table};
use crate::simulate::report::{ArmReport, Histogram, Spread};

/// Curves are drawn from where this part of the values of some arm is below.
const FIRST_PART: f64 = 0.001;

pub(super) fn draw(document: &mut Document, arms: &[Shown]) {
    let note = "The best of each column is marked. Reuse is the share of prompt tokens that engines had cached; the possible \
                is what one cache for all endpoints, which forgets nothing, would have had.";
    document.section("Arms side by side", note, "one", |section| {
        section.nested("div", &[("class", &"panel")], |panel| table(arms).draw(panel));
    });
    notes(document, arms);
    failures(document, arms);
    spreads(document, arms);
    reuse(document, arms);
}

/// A column with how a value is read off an arm and written.
type Read = (Column, fn(&ArmReport) -> Option<f64>, fn(f64) -> String);

fn table<'a>(arms: &[Shown<'a>]) -> Table<'a> {
    let mut columns: Vec<Read> = vec![
        (Column::new("reuse", "of prompt", Better::More), |arm| Some(reused(arm)), percent),
        (Column::new("reuse", "of possible", Better::More), |arm| Some(arm.reuse_share), percent),
        (Column::new("time to first token", "p50", Better::Less), |arm| Some(arm.ttft_seconds.p50), time),
        (Column::new("time to first token", "p90", Better::Less), |arm| Some(arm.ttft_seconds.p90), time),
        (Column::new("time to first token", "p99", Better::Less), |arm| Some(arm.ttft_seconds.p99), time),
        (Column::new("time per output token", "p50", Better::Less), |arm| Some(arm.tpot_seconds.p50), time),
        (Column::new("time per output token", "p90", Better::Less), |arm| Some(arm.tpot_seconds.p90), time),
        (Column::new("time per output token", "p99", Better::Less), |arm| Some(arm.tpot_seconds.p99), time),
        (Column::new("end to end", "p50", Better::Less), |arm| Some(arm.e2e_seconds.p50), time),
        (Column::new("end to end", "p90", Better::Less), |arm| Some(arm.e2e_seconds.p90), time),
        (Column::new("end to end", "p99", Better::Less), |arm| Some(arm.e2e_seconds.p99), time),
        (
            Column::new("in flight, max / mean", "over all", Better::Less),
            |arm| Some(arm.inflight_max_over_mean),
            number,
        ),
        (
            Column::new("in flight, max / mean", "each moment", Better::Less),
            |arm| Some(arm.inflight_momentary_max_over_mean),
            number,
        ),
        (Column::new("", "makespan", Better::Less), |arm| Some(arm.makespan_seconds), time),
        (Column::new("", "failed", Better::Less), |arm| Some(arm.requests.saturating_sub(arm.completed) as f64), count),
    ];
    if arms.iter().any(|(_, arm)| arm.rollouts.is_some()) {
        columns.extend([
            (
                Column::new("rollouts", "together", Better::More),
                (|arm: &ArmReport| Some(arm.rollouts.as_ref()?.colocated_groups)) as fn(&ArmReport) -> Option<f64>,
                percent as fn(f64) -> String,
            ),
            (
                Column::new("rollouts", "straggler", Better::Less),
                |arm| Some(arm.rollouts.as_ref()?.straggler_ratio),
                number,
            ),
            (Column::new("rollouts", "tail", Better::Less), |arm| Some(arm.rollouts.as_ref()?.tail_share), percent),
            (Column::new("rollouts", "idle", Better::Less), |arm| Some(arm.rollouts.as_ref()?.idle_share), percent),
        ]);
    }
    let cell =
        |arm: &ArmReport, (_, read, said): &Read| read(arm).map_or_else(Cell::default, |value| Cell::new(value, said));
    let row = |(look, arm): &Shown<'a>| (Head::Arm(look), columns.iter().map(|column| cell(arm, column)).collect());
    Table {
        about: "arms side by side".into(),
        corner: "arm",
        rows: arms.iter().map(row).collect(),
        columns: columns.iter().map(|(column, ..)| column.clone()).collect(),
    }
}

fn count(n: f64) -> String {
    grouped(n as u64)
}

/// Reused tokens by all prompt tokens of requests that were answered.
fn reused(arm: &ArmReport) -> f64 {
    arm.reused_tokens as f64 / (arm.prompt_tokens as f64).max(1.0)
}

/// What of the arms' configs was not played, if anything.
fn notes(document: &mut Document, arms: &[Shown]) {
    let notes = || arms.iter().flat_map(|(_, arm)| arm.notes.iter().map(move |note| (&arm.name, note)));
    if notes().next().is_none() {
        return;
    }
    document.section("What was passed over", "", "one", |section| {
        section.nested("ul", &[("class", &"panel")], |list| {
            notes().for_each(|(arm, note)| list.element("li", &[], format_args!("{arm}: {note}")));
        });
    });
}

/// Why requests failed, if any did.
fn failures(document: &mut Document, arms: &[Shown]) {
    let mut reasons: Vec<&str> = arms.iter().flat_map(|(_, arm)| arm.failures.keys().map(String::as_str)).collect();
    reasons.sort_unstable();
    reasons.dedup();
    if reasons.is_empty() {
        return;
    }
    let cells = |arm: &ArmReport| {
        reasons.iter().map(|reason| Cell::new(arm.failures.get(*reason).copied().unwrap_or(0) as f64, count)).collect()
    };
    let table = Table {
        about: "why requests failed".into(),
        corner: "arm",
        columns: reasons.iter().map(|reason| Column::new("", reason, Better::Less)).collect(),
        rows: arms.iter().map(|(look, arm)| (Head::Arm(look), cells(arm))).collect(),
    };
    document.section("Requests that failed", "", "one", |section| {
        section.nested("div", &[("class", &"panel")], |panel| table.draw(panel));
    });
}

/// What times are told of: a title, where they are in a report, and how.
type Kind = (&'static str, fn(&ArmReport) -> (&Histogram, &Spread));

fn spreads(document: &mut Document, arms: &[Shown]) {
    let kinds: [Kind; 3] = [
        ("Time to first token", |arm| (&arm.histograms.ttft, &arm.ttft_seconds)),
        ("Time per output token", |arm| (&arm.histograms.tpot, &arm.tpot_seconds)),
        ("End to end", |arm| (&arm.histograms.e2e, &arm.e2e_seconds)),
    ];
    let counted = |(_, of): &Kind| arms.iter().any(|(_, arm)| of(arm).0.counts.iter().any(|n| *n > 0));
    let kinds: Vec<Kind> = kinds.into_iter().filter(counted).collect();
    if kinds.is_empty() {
        return;
    }
    let note = "How many of the requests were done within a time, which grows by powers of ten: further left is faster. \
                Beside each arm is its median.";
    document.section("How times are spread", note, "two", |section| {
        for (title, of) in kinds {
            spread(section, title, arms, of);
        }
    });
}

fn spread(section: &mut Markup, title: &str, arms: &[Shown], of: fn(&ArmReport) -> (&Histogram, &Spread)) {
    let curves: Vec<Vec<(f64, f64)>> =
        arms.iter().map(|(_, arm)| cumulative(&of(arm).0.bounds, &of(arm).0.counts)).collect();
    // Up to there nearly nobody of an arm was done.
    let begins = |curve: &Vec<(f64, f64)>| {
        let seen = curve.iter().position(|(_, part)| *part >= FIRST_PART)?;
        curve.get(seen.saturating_sub(1)).map(|(bound, _)| *bound)
    };
    let ends = curves.iter().filter_map(|curve| curve.last()).map(|(bound, _)| *bound);
    let x = Scale::times(curves.iter().filter_map(begins).fold(f64::INFINITY, f64::min), ends.fold(0.0, f64::max));
    let y = Scale::parts();
    let about = format!("{title} of {} arms, as cumulative curves", arms.len());
    let plot = Plot { about: &about, x: &x, y: &y, x_title: "", height: "tall" };
    let lines: Vec<Line> = arms
        .iter()
        .zip(&curves)
        .map(|((look, _), curve)| Line { arm: look, points: curve.iter().map(|point| Some(*point)).collect() })
        .collect();
    let numbers = numbers(title, arms, of);
    figure(section, title, "", Some(&numbers), |figure| {
        lines::draw(figure, &plot, &lines);
        let medians: Vec<_> = arms.iter().map(|(look, arm)| (*look, Cell::new(of(arm).1.p50, time))).collect();
        key(figure, &medians);
    });
}

fn numbers<'a>(title: &str, arms: &[Shown<'a>], of: fn(&ArmReport) -> (&Histogram, &Spread)) -> Table<'a> {
    let columns = ["mean", "p50", "p90", "p99", "max"].map(|head| Column::new("", head, Better::Less));
    let row = |(look, arm): &Shown<'a>| {
        let Spread { mean, p50, p90, p99, max } = of(arm).1;
        (Head::Arm(look), [mean, p50, p90, p99, max].map(|value| Cell::new(*value, time)).into())
    };
    Table { about: title.to_lowercase(), corner: "arm", columns: columns.into(), rows: arms.iter().map(row).collect() }
}

fn reuse(document: &mut Document, arms: &[Shown]) {
    let possible = arms.iter().map(|(_, arm)| arm.reusable_tokens).max().unwrap_or(0);
    if possible == 0 {
        return;
    }
    let most = arms.iter().map(|(_, arm)| arm.reused_tokens).fold(possible, u64::max);
    let scale = Scale::rounded(0.0, most as f64, 5, round_short);
    let bar = |arm, of: &ArmReport| Bar { arm, value: of.reused_tokens as f64, said: percent(of.reuse_share) };
    let columns = ["reused tokens", "reusable tokens", "of possible"].map(Column::plain);
    let cells = |arm: &ArmReport| {
        let tokens = [arm.reused_tokens, arm.reusable_tokens].map(|tokens| Cell::new(tokens as f64, count));
        tokens.into_iter().chain([Cell::new(arm.reuse_share, percent)]).collect()
    };
    let rows = arms.iter().map(|(look, arm)| (Head::Arm(look), cells(arm))).collect();
    let table = Table { about: "reuse of cached prompt tokens".into(), corner: "arm", columns: columns.into(), rows };
    let note = format!(
        "Prompt tokens that were cached where they went. The line is what was possible, {} tokens; beside each arm is its \
         part of that.",
        short(possible)
    );
    document.section("Reuse against what was possible", "", "one", |section| {
        figure(section, "Reused prompt tokens", &note, Some(&table), |figure| {
            let bars: Vec<Bar> = arms.iter().map(|(arm, of)| bar(arm, of)).collect();
            bars::draw(figure, &scale, "prompt tokens", &bars, Some(possible as f64));
        });
    });
}
