//! The page of `epp trace`: what is in recorded traffic.

use epp_trace::summary::{Arrivals, Reuse, Sessions, Spread, Summary};

use super::arms::Arm;
use super::bars::{self, Bar};
use super::chart::{Plot, figure};
use super::columns;
use super::document::Document;
use super::markup::Markup;
use super::numbers::{duration, grouped, number, percent, short, tick};
use super::scale::Scale;
use super::table::{Better, Cell, Column, Head, Table};

/// What columns that are nobody's look like.
const COLOUR: &str = "hue-0 alone";

/// Draws what is in the trace of this name.
pub fn page(name: &str, summary: &Summary) -> String {
    let requests = grouped(summary.requests as u64);
    let mut document = Document::new(
        &format!("What is in {name}"),
        &format!("{requests} requests within {}.", duration(summary.duration_seconds)),
    );
    document.head(|head| facts(head, summary));
    arrivals(&mut document, &summary.arrivals);
    lengths(&mut document, summary);
    if let Some(reuse) = &summary.reuse {
        self::reuse(&mut document, reuse);
    }
    if let Some(sessions) = &summary.sessions {
        turns(&mut document, sessions);
    }
    models(&mut document, summary);
    document.into_html()
}

fn facts(head: &mut Markup, summary: &Summary) {
    let mut facts = vec![("Format", summary.format.to_owned()), ("Requests", grouped(summary.requests as u64))];
    for (what, n) in [("Bad and left out", summary.skipped), ("Out of order and sorted", summary.out_of_order)] {
        facts.extend((n > 0).then(|| (what, grouped(n))));
    }
    facts.push(("Duration", duration(summary.duration_seconds)));
    facts.extend(summary.requests_per_second.map(|rate| ("Requests a second", number(rate))));
    facts.extend(summary.burstiness.map(|cv| ("Burstiness (1 is Poisson)", number(cv))));
    for (what, spread) in [("Prompt tokens", &summary.prompt_tokens), ("Output tokens", &summary.output_tokens)] {
        facts.push((what, spread.as_ref().map_or_else(|| "unknown".into(), |spread| short(spread.total))));
    }
    if let Some(Sessions { sessions, turns, gap_seconds_p50 }) = &summary.sessions {
        facts.push(("Sessions", grouped(*sessions as u64)));
        facts.push(("Turns", grouped(turns.total)));
        facts.extend(gap_seconds_p50.map(|gap| ("Median gap before a turn", duration(gap))));
    }
    if let Some(reuse) = &summary.reuse {
        facts.push(("Reuse possible", percent(reuse.share)));
        facts.push(("Unique tokens", short(reuse.unique_tokens)));
        if let (Some(n), Some(size)) = (reuse.unique_blocks, reuse.block_tokens) {
            facts.push(("Unique blocks", format!("{} of {size} tokens", grouped(n))));
        }
        let within = duration(reuse.working_set.window_seconds as f64);
        facts.push(("Working set", format!("{} tokens at most within {within}", short(reuse.working_set.tokens_max))));
    }
    head.nested("dl", &[("class", &"setup")], |list| {
        for (name, said) in facts {
            list.nested("div", &[], |fact| {
                fact.element("dt", &[], name);
                fact.element("dd", &[], said);
            });
        }
    });
}

fn arrivals(document: &mut Document, arrivals: &Arrivals) {
    let Arrivals { seconds_each, requests } = arrivals;
    let most = requests.iter().copied().max().unwrap_or(0);
    // All at one moment is no course of time.
    if requests.len() < 2 || most == 0 {
        return;
    }
    let (x, unit) = Scale::elapsed(seconds_each * requests.len() as f64);
    let y = Scale::rounded(0.0, f64::from(most), 4, tick);
    let title = format!("{} since the first request", unit.name());
    let about = format!("requests over time, at most {most} within {}", duration(*seconds_each));
    let plot = Plot { about: &about, x: &x, y: &y, x_title: &title, height: "tall" };
    let values: Vec<f64> = requests.iter().map(|n| f64::from(*n)).collect();
    let row = |(i, n): (usize, &u32)| {
        (Head::Text(duration(i as f64 * seconds_each)), vec![Cell::new(f64::from(*n), |n| grouped(n as u64))])
    };
    let numbers = Table {
        about: "arrivals over time".into(),
        corner: "from",
        columns: vec![Column::plain("requests")],
        rows: requests.iter().enumerate().map(row).collect(),
    };
    let note = format!("A column is {}.", duration(*seconds_each));
    document.section("Arrivals", "", "one", |section| {
        figure(section, "Requests over time", &note, Some(&numbers), |figure| {
            columns::draw(figure, &plot, COLOUR, &values, None);
        });
    });
}

fn lengths(document: &mut Document, summary: &Summary) {
    let kinds = [("Prompt tokens", &summary.prompt_tokens), ("Output tokens", &summary.output_tokens)];
    let kinds: Vec<(&str, &Spread)> =
        kinds.into_iter().filter_map(|(title, spread)| Some((title, spread.as_ref()?))).collect();
    if kinds.is_empty() {
        return;
    }
    document.section("Lengths", "", "two", |section| {
        kinds.iter().for_each(|(title, spread)| lengths_of(section, title, "requests", spread));
    });
}

/// How many are how long, in columns that double.
fn lengths_of(section: &mut Markup, title: &str, counted: &'static str, spread: &Spread) {
    let Spread { mean, p50, p90, p99, max, by_power_of_two, .. } = spread;
    let first = by_power_of_two.iter().position(|n| *n > 0).unwrap_or(0);
    let counts = &by_power_of_two[first.min(by_power_of_two.len())..];
    let values: Vec<f64> = counts.iter().map(|n| f64::from(*n)).collect();
    let bounds: Vec<u64> = (first..=by_power_of_two.len()).map(least_of).collect();
    let x = Scale::doubling(&bounds);
    let y = Scale::rounded(0.0, values.iter().copied().fold(0.0, f64::max), 4, tick);
    let about = format!("{title}: {counted} by length, from {} to {}", grouped(bounds[0]), grouped((*max).into()));
    let plot =
        Plot { about: &about, x: &x, y: &y, x_title: &format!("{}, doubling", title.to_lowercase()), height: "tall" };
    let [p50, p90, p99, max] = [p50, p90, p99, max].map(|n| grouped(u64::from(*n)));
    let note = format!("Median {p50}, p90 {p90}, p99 {p99}, at most {max}, mean {}.", number(*mean));
    let row = |(i, n): (usize, &u32)| {
        let (from, to) = (bounds[i], bounds[i + 1].saturating_sub(1));
        let said = if from >= to { grouped(from) } else { format!("{} to {}", grouped(from), grouped(to)) };
        (Head::Text(said), vec![Cell::new(f64::from(*n), |n| grouped(n as u64))])
    };
    let numbers = Table {
        about: format!("{} by length", title.to_lowercase()),
        corner: "length",
        columns: vec![Column::plain(counted)],
        rows: counts.iter().enumerate().map(row).collect(),
    };
    figure(section, title, &note, Some(&numbers), |figure| columns::draw(figure, &plot, COLOUR, &values, None));
}

/// The least number of that many binary digits.
fn least_of(digits: usize) -> u64 {
    if digits == 0 { 0 } else { 1 << (digits - 1).min(63) }
}

fn reuse(document: &mut Document, reuse: &Reuse) {
    let parts = [("could be reused", reuse.share), ("new", 1.0 - reuse.share)];
    let looks = Arm::all(parts.iter().enumerate().map(|(i, (name, _))| (*name, i == 0)));
    let bars: Vec<Bar> =
        looks.iter().zip(parts).map(|(arm, (_, part))| Bar { arm, value: part * 100.0, said: percent(part) }).collect();
    let scale = Scale::rounded(0.0, 100.0, 5, |part| format!("{} %", tick(part)));
    let note = "What one cache would have that forgets nothing: tokens at the beginning of a prompt that were at the beginning of \
                an earlier one.";
    let tokens = |n: u64| vec![Cell::new(n as f64, |n| grouped(n as u64))];
    let set = &reuse.working_set;
    let rows = [
        ("prompt tokens", reuse.prompt_tokens),
        ("could be reused", reuse.reusable_tokens),
        ("unique", reuse.unique_tokens),
        ("working set, at most", set.tokens_max),
        ("working set, mean", set.tokens_mean),
    ];
    let numbers = Table {
        about: "reuse that is possible".into(),
        corner: "",
        columns: vec![Column::plain("tokens")],
        rows: rows.into_iter().map(|(name, n)| (Head::Text(name.into()), tokens(n))).collect(),
    };
    document.section("Reuse that is possible", "", "one", |section| {
        figure(section, "Prompt tokens", note, Some(&numbers), |figure| {
            bars::draw(figure, &scale, "share of prompt tokens", &bars, None);
        });
    });
}

fn turns(document: &mut Document, sessions: &Sessions) {
    document.section("Sessions", "", "two", |section| lengths_of(section, "Turns", "sessions", &sessions.turns));
}

fn models(document: &mut Document, summary: &Summary) {
    if summary.models.is_empty() {
        return;
    }
    let share = |n: u64| n as f64 / (summary.requests as f64).max(1.0);
    let row = |of: &epp_trace::summary::Model| {
        let cells = vec![Cell::new(of.requests as f64, |n| grouped(n as u64)), Cell::new(share(of.requests), percent)];
        (Head::Text(of.model.clone()), cells)
    };
    let table = Table {
        about: "requests by model".into(),
        corner: "model",
        columns: vec![Column::plain("requests"), Column::new("", "share", Better::Neither)],
        rows: summary.models.iter().map(row).collect(),
    };
    document.section("Models", "", "two", |section| {
        section.nested("div", &[("class", &"panel")], |panel| table.draw(panel));
    });
}
