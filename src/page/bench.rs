//! The page of `epp bench`: how fast each picker answered and what it cost, round by round.
//!
//! It reads the report as a program outside would, by the names of its fields: figures that are new there are in the tables
//! without a change here.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arms::Arm;
use super::chart::{Plot, figure};
use super::columns;
use super::document::Document;
use super::markup::Markup;
use super::numbers::{grouped, number, tick, time};
use super::ranges::{self, Range};
use super::scale::Scale;
use super::table::{Better, Cell, Column, Head, Table};
use crate::bench::report::FIGURES;

/// What the page needs of a report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    trace: String,
    requests: u64,
    warm_up: u64,
    mode: String,
    load: String,
    valid: bool,
    problems: Vec<String>,
    pickers: Vec<Picker>,
    ratios: Vec<Ratio>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Picker {
    name: String,
    address: String,
    rounds: Vec<Value>,
    over_rounds: BTreeMap<String, Spread>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ratio {
    figure: String,
    of: String,
    to: String,
    median: f64,
    low: f64,
    high: f64,
}

type Shown<'a> = (&'a Arm, &'a Picker);

/// Percentiles of a round, by their names in the report and on the page.
const PERCENTILES: [(&str, &str); 5] =
    [("p50_ms", "p50"), ("p90_ms", "p90"), ("p99_ms", "p99"), ("p999_ms", "p99.9"), ("max_ms", "max")];

/// Draws the report.
///
/// # Errors
/// If it is not made as reports of `epp bench` are.
pub fn page(report: &impl Serialize) -> Result<String, serde_json::Error> {
    let report: Report = serde_json::from_value(serde_json::to_value(report)?)?;
    let looks = Arm::all(report.pickers.iter().enumerate().map(|(i, picker)| (picker.name.as_str(), i == 0)));
    let pickers: Vec<Shown> = looks.iter().zip(&report.pickers).collect();
    let mut document = Document::new(&format!("Measurement with {}", file_name(&report.trace)), &summary(&report));
    document.head(|head| self::head(head, &report));
    document.arms(&looks);
    figures(&mut document, &pickers, &report.ratios);
    times(&mut document, &pickers);
    ratios(&mut document, &looks, &report.ratios);
    costs(&mut document, &pickers);
    picks(&mut document, &pickers);
    rounds(&mut document, &pickers);
    Ok(document.into_html())
}

/// The last part of a path, which says what the trace is.
fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

fn summary(report: &Report) -> String {
    let warm_up =
        if report.warm_up > 0 { format!(" after {} to warm up", grouped(report.warm_up)) } else { String::new() };
    format!("{} requests a round{warm_up}; {}.", grouped(report.requests), report.load)
}

fn head(head: &mut Markup, report: &Report) {
    if report.valid {
        head.element(
            "p",
            &[("class", &"valid")],
            "The run is valid: requests went out at the rate asked for, and were answered.",
        );
    } else {
        head.nested("div", &[("class", &"warning"), ("role", &"note")], |warning| {
            warning.element("strong", &[], "The run proves nothing.");
            warning
                .nested("ul", &[], |list| report.problems.iter().for_each(|problem| list.element("li", &[], problem)));
        });
    }
    head.nested("dl", &[("class", &"setup")], |list| {
        let named = report.pickers.iter().map(|picker| (picker.name.as_str(), picker.address.as_str()));
        for (name, said) in [("mode", report.mode.as_str())].into_iter().chain(named) {
            list.nested("div", &[], |fact| {
                fact.element("dt", &[], name);
                fact.element("dd", &[], said);
            });
        }
    });
}

/// Every figure over the rounds, and what the first picker is to the others.
fn figures(document: &mut Document, pickers: &[Shown], ratios: &[Ratio]) {
    let names: BTreeSet<&str> =
        pickers.iter().flat_map(|(_, picker)| picker.over_rounds.keys().map(String::as_str)).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    // As in the table of the terminal; what is not there comes last.
    names.sort_by_key(|name| FIGURES.iter().position(|figure| figure == name).unwrap_or(FIGURES.len()));
    if names.is_empty() {
        return;
    }
    let others: Vec<&str> = {
        let mut seen = BTreeSet::new();
        ratios.iter().map(|ratio| ratio.to.as_str()).filter(|to| seen.insert(*to)).collect()
    };
    let mut columns: Vec<Column> = pickers.iter().map(|(look, _)| Column::plain(&look.name)).collect();
    columns.extend(others.iter().map(|other| {
        let of = ratios.first().map_or("", |ratio| ratio.of.as_str());
        Column::plain(format_args!("{of} / {other}"))
    }));
    let row = |name: &str| {
        let mut cells: Vec<Cell> =
            pickers.iter().map(|(_, picker)| spread(picker.over_rounds.get(name).copied())).collect();
        cells.extend(others.iter().map(|other| {
            let ratio = ratios.iter().find(|ratio| ratio.figure == name && ratio.to == *other);
            spread(ratio.map(|Ratio { median, low, high, .. }| Spread { median: *median, low: *low, high: *high }))
        }));
        (Head::Text(name.replace('_', " ")), cells)
    };
    let rows = names.into_iter().map(row).collect();
    let table = Table { about: "figures over the rounds".into(), corner: "figure", columns, rows };
    let note = "The median over the rounds, with the least and the greatest. A ratio is taken within each round.";
    document.section("Figures", note, "one", |section| {
        section.nested("div", &[("class", &"panel")], |panel| table.draw(panel));
    });
}

fn spread(spread: Option<Spread>) -> Cell {
    let Some(Spread { median, low, high }) = spread else {
        return Cell::default();
    };
    let range = if low == high { String::new() } else { format!(" ({} to {})", number(low), number(high)) };
    Cell { value: Some(median), text: format!("{}{range}", number(median)) }
}

/// A number of each round that has it, found by a path of names.
fn measured(picker: &Picker, path: &[&str]) -> Vec<f64> {
    let at = |round: &Value| path.iter().try_fold(round, |value, name| value.get(name)).and_then(Value::as_f64);
    picker.rounds.iter().filter_map(at).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { high } else { (values[middle - 1] + high) / 2.0 })
}

/// The ranges of the pickers that have any measurement, each multiplied by `unit`.
fn measurements<'a>(pickers: &[Shown<'a>], path: &[&str], unit: f64, said: impl Fn(f64) -> String) -> Vec<Range<'a>> {
    let range = |(look, picker): &Shown<'a>| {
        let values: Vec<f64> = measured(picker, path).into_iter().map(|value| value * unit).collect();
        let said = said(median(&values)?);
        Some(Range { arm: look, values, said })
    };
    pickers.iter().filter_map(range).collect()
}

/// What may be told in percentiles, by its path of names in a round, with its title and how to read it.
const KNOWN_TIMES: [(&str, &str, &str); 6] = [
    ("latency", "Latency", "From when a request should have gone out to when its endpoint was known."),
    ("service", "Service", "The same from when it did go out."),
    ("responses.headers", "Response headers", "From when a request should have gone out."),
    ("responses.ttft", "Time to first token", "From when a request should have gone out."),
    ("responses.tpot", "Time per output token", "From the first token to the last."),
    ("responses.e2e", "End to end", "From when a request should have gone out to the last token."),
];

/// Whatever rounds tell in percentiles, as in [`KNOWN_TIMES`]: first what is known, then what is new.
fn kinds_of_times(pickers: &[Shown]) -> Vec<(String, String, &'static str)> {
    let mut paths = BTreeSet::new();
    pickers.iter().flat_map(|(_, picker)| &picker.rounds).for_each(|round| told_in_percentiles(round, "", &mut paths));
    let known = KNOWN_TIMES.into_iter().filter(|(path, ..)| paths.contains(*path));
    let is_new = |path: &&String| KNOWN_TIMES.iter().all(|(known, ..)| known != path);
    let new = paths.iter().filter(is_new).map(|path| (path.clone(), capitalised(path), ""));
    known.map(|(path, title, note)| (path.to_owned(), title.to_owned(), note)).chain(new).collect()
}

fn told_in_percentiles(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if value.get("p50_ms").is_some() {
            into.insert(path);
        } else {
            told_in_percentiles(value, &path, into);
        }
    }
}

fn times(document: &mut Document, pickers: &[Shown]) {
    let of = |kind: &str| {
        PERCENTILES.map(|(name, title)| {
            let path: Vec<&str> = kind.split('.').chain([name]).collect();
            (title, measurements(pickers, &path, 1e-3, time))
        })
    };
    let kinds: Vec<_> =
        kinds_of_times(pickers).into_iter().map(|(path, title, note)| (title, note, of(&path))).collect();
    let any = |rows: &[(&str, Vec<Range>)]| rows.iter().any(|(_, ranges)| !ranges.is_empty());
    if !kinds.iter().any(|(_, _, rows)| any(rows)) {
        return;
    }
    document.section("Times", "A dot is a round; the number is the median of the rounds.", "two", |section| {
        for (title, note, rows) in kinds.iter().filter(|(_, _, rows)| any(rows)) {
            let values = || rows.iter().flat_map(|(_, ranges)| ranges).flat_map(|range| &range.values).copied();
            let above = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let scale = Scale::times(above, values().fold(0.0, f64::max));
            figure(section, title, note, None, |figure| {
                for (name, ranges) in rows.iter().filter(|(_, ranges)| !ranges.is_empty()) {
                    ranges::draw(figure, name, &scale, ranges, None);
                }
                ranges::axis(figure, &scale, "time, in powers of ten");
            });
        }
    });
}

fn capitalised(name: &str) -> String {
    let mut letters = name.chars().map(|c| if c == '_' || c == '.' { ' ' } else { c });
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn ratios(document: &mut Document, looks: &[Arm], ratios: &[Ratio]) {
    let told = |ratio: &&Ratio| [ratio.median, ratio.low, ratio.high].iter().all(|r| r.is_finite() && *r > 0.0);
    let ratios: Vec<&Ratio> = ratios.iter().filter(told).collect();
    let Some(first) = ratios.first() else {
        return;
    };
    let ends = ratios.iter().fold((1.0, 1.0), |(low, high), ratio| (ratio.low.min(low), ratio.high.max(high)));
    let scale = Scale::ratios(ends.0, ends.1);
    let mut names: Vec<&str> = ratios.iter().map(|ratio| ratio.figure.as_str()).collect();
    names.dedup();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    let note = "Left of the line is less. The bar goes from the least to the greatest ratio of a round, the dot is the median.";
    document.section(&format!("What {} is to the others", first.of), note, "one", |section| {
        figure(section, "Ratios", "", None, |figure| {
            for name in names {
                let of = ratios.iter().filter(|ratio| ratio.figure == name);
                let range = |ratio: &&Ratio| {
                    let arm = looks.iter().find(|look| look.name == ratio.to)?;
                    Some(Range { arm, values: vec![ratio.low, ratio.median, ratio.high], said: number(ratio.median) })
                };
                let ranges: Vec<Range> = of.filter_map(range).collect();
                ranges::draw(figure, &name.replace('_', " "), &scale, &ranges, Some(1.0));
            }
            ranges::axis(figure, &scale, "ratio");
        });
    });
}

fn costs(document: &mut Document, pickers: &[Shown]) {
    let kinds: [(&str, &[&str], &str); 4] = [
        ("CPU time a request", &["process", "cpu_us_per_request"], "µs"),
        ("Memory, resident", &["process", "resident_mb"], "MB"),
        ("Memory, at its peak", &["process", "peak_mb"], "MB"),
        ("Answers a second", &["answers_per_second"], ""),
    ];
    let said = |unit: &'static str| move |value: f64| format!("{} {unit}", number(value)).trim_end().to_owned();
    let kinds = kinds.map(|(title, path, unit)| (title, unit, measurements(pickers, path, 1.0, said(unit))));
    if kinds.iter().all(|(_, _, ranges)| ranges.is_empty()) {
        return;
    }
    document.section(
        "CPU, memory and rate",
        "A dot is a round; the number is the median of the rounds.",
        "two",
        |section| {
            for (title, unit, ranges) in kinds.iter().filter(|(_, _, ranges)| !ranges.is_empty()) {
                let most = ranges.iter().flat_map(|range| &range.values).copied().fold(0.0, f64::max);
                let scale = Scale::rounded(0.0, most, 4, tick);
                figure(section, title, "", None, |figure| {
                    ranges::draw(figure, "", &scale, ranges, None);
                    ranges::axis(figure, &scale, unit);
                });
            }
        },
    );
}

/// Picks of all rounds by endpoint, in the order of the endpoints' names.
fn picks(document: &mut Document, pickers: &[Shown]) {
    let picks = |picker: &Picker| {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for round in picker.rounds.iter().filter_map(|round| round.get("picks_per_endpoint")?.as_object()) {
            for (endpoint, n) in round {
                *all.entry(endpoint.clone()).or_default() += n.as_u64().unwrap_or(0);
            }
        }
        all
    };
    let pickers: Vec<(&Arm, BTreeMap<String, u64>)> =
        pickers.iter().map(|(look, picker)| (*look, picks(picker))).filter(|(_, all)| all.len() > 1).collect();
    if pickers.is_empty() {
        return;
    }
    let note = "How often each endpoint was picked in all rounds, in the order of their addresses. The line is an equal share.";
    document.section("Picks by endpoint", note, "two", |section| {
        for (look, picks) in &pickers {
            let values: Vec<f64> = picks.values().map(|n| *n as f64).collect();
            let equal = values.iter().sum::<f64>() / values.len() as f64;
            let (x, y) = (
                Scale::counted(values.len()),
                Scale::rounded(0.0, values.iter().copied().fold(0.0, f64::max), 3, tick),
            );
            let about = format!("{}: picks of {} endpoints", look.name, values.len());
            let plot = Plot { about: &about, x: &x, y: &y, x_title: "endpoint", height: "low" };
            let row = |(endpoint, n): (&String, &u64)| {
                (Head::Text(endpoint.clone()), vec![Cell::new(*n as f64, |n| grouped(n as u64))])
            };
            let numbers = Table {
                about: format!("picks of {}", look.name),
                corner: "endpoint",
                columns: vec![Column::plain("picks")],
                rows: picks.iter().map(row).collect(),
            };
            figure(section, &look.name, "", Some(&numbers), |figure| {
                columns::draw(figure, &plot, &look.classes().to_string(), &values, Some(equal));
            });
        }
    });
}

/// Everything that was measured in every round, under the names of the report.
fn rounds(document: &mut Document, pickers: &[Shown]) {
    let flat: Vec<(String, Vec<(String, Cell)>)> = pickers
        .iter()
        .flat_map(|(_, picker)| {
            (1..).zip(&picker.rounds).map(|(number, round)| {
                let mut cells = Vec::new();
                flatten(round, "", &mut cells);
                (format!("{}, round {number}", picker.name), cells)
            })
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    names.extend(
        flat.iter().flat_map(|(_, cells)| cells).map(|(name, _)| name.as_str()).filter(|name| seen.insert(*name)),
    );
    if names.is_empty() {
        return;
    }
    let find = |cells: &[(String, Cell)], name: &str| {
        cells.iter().find(|(of, _)| of == name).map_or_else(Cell::default, |(_, cell)| cell.clone())
    };
    let row = |(head, cells): &(String, Vec<(String, Cell)>)| {
        (Head::Text(head.clone()), names.iter().map(|name| find(cells, name)).collect())
    };
    let column = |name: &&str| match name.split_once('.') {
        Some((group, head)) => Column::new(group.replace('_', " "), head.replace('_', " "), Better::Neither),
        None => Column::plain(name.replace('_', " ")),
    };
    let table = Table {
        about: "every round".into(),
        corner: "round",
        columns: names.iter().map(column).collect(),
        rows: flat.iter().map(row).collect(),
    };
    document.section("Every round", "", "one", |section| {
        section.nested("div", &[("class", &"panel")], |panel| table.draw(panel));
    });
}

/// Numbers by their path of names; picks are shown elsewhere.
fn flatten(value: &Value, path: &str, into: &mut Vec<(String, Cell)>) {
    for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| *name != "picks_per_endpoint") {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Number(n) => {
                let said = n.as_u64().map_or_else(|| number(n.as_f64().unwrap_or(f64::NAN)), grouped);
                into.push((path, Cell { value: n.as_f64(), text: said }));
            }
            Value::String(text) => into.push((path, Cell::text(text))),
            Value::Object(_) => flatten(value, &path, into),
            Value::Null | Value::Bool(_) | Value::Array(_) => {}
        }
    }
}
