//! What endpoints had to do over time, and how many requests each got.

use super::Shown;
use crate::page::chart::{Plot, figure, key, x_axis};
use crate::page::columns;
use crate::page::document::Document;
use crate::page::heat;
use crate::page::lines::{self, Line};
use crate::page::markup::Markup;
use crate::page::numbers::{grouped, number, percent, tick};
use crate::page::scale::{Scale, Unit};
use crate::page::table::{Better, Cell, Column, Head, Table};
use crate::simulate::report::{ArmReport, Series};

/// At so many moments the numbers behind a line are told.
const TOLD: usize = 8;
/// More endpoints than this are not told of one by one.
const MOST_NAMED: usize = 64;

pub(super) fn draw(document: &mut Document, arms: &[Shown]) {
    let end = arms.iter().map(|(_, arm)| arm.makespan_seconds).fold(0.0, f64::max);
    let (x, unit) = Scale::elapsed(end);
    let time = Time { x, unit };
    per_endpoint(document, arms, &time);
    over_time(document, arms, &time);
    picks(document, arms);
}

/// The time that all arms are drawn over.
struct Time {
    x: Scale,
    unit: Unit,
}

impl Time {
    fn title(&self) -> String {
        format!("{} since the first request", self.unit.name())
    }

    fn seconds(&self) -> f64 {
        self.x.ends().1
    }
}

fn per_endpoint(document: &mut Document, arms: &[Shown], time: &Time) {
    let cells = |(_, arm): &Shown| arm.series.in_flight_per_endpoint.iter().flatten().copied().fold(0.0, f64::max);
    let most = arms.iter().map(cells).fold(0.0, f64::max);
    let told_one_by_one = arms.iter().all(|(_, arm)| !arm.series.in_flight_per_endpoint.is_empty());
    if told_one_by_one && most > 0.0 {
        let note = "A row is an endpoint, a column a stretch of time; the stronger the colour, the more \
                    requests were in flight there. Equal rows are even load. The scale is the same for all arms.";
        document.section("Load of each endpoint over time", "", "one", |section| {
            figure(section, "Requests in flight", note, Some(&loads(arms)), |figure| {
                heat::key(figure, most);
                multiples(
                    figure,
                    arms,
                    |(_, arm)| format!("max / mean {}", number(arm.inflight_max_over_mean)),
                    |one, arm| {
                        map(one, arm, time, most);
                    },
                );
            });
        });
        return;
    }
    let most = arms.iter().flat_map(|(_, arm)| &arm.series.in_flight_max).copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return;
    }
    let y = Scale::rounded(0.0, most, 3, tick);
    let note = "The thick line is the mean of all endpoints, the thin one the endpoint with most; the narrower the band \
                between them, the more even the load.";
    document.section("Load of endpoints over time", "", "one", |section| {
        figure(section, "Requests in flight of an endpoint", note, Some(&loads(arms)), |figure| {
            multiples(
                figure,
                arms,
                |(_, arm)| format!("max / mean {}", number(arm.inflight_max_over_mean)),
                |one, arm| {
                    let about = format!("{}: mean and largest number of requests in flight of an endpoint", arm.0.name);
                    let plot = Plot { about: &about, x: &time.x, y: &y, x_title: time.unit.name(), height: "low" };
                    let series = &arm.1.series;
                    let both = series.in_flight_mean.iter().zip(&series.in_flight_max);
                    let points: Vec<_> =
                        both.enumerate().map(|(i, (mean, max))| (middle(series, i), *mean, *max)).collect();
                    lines::band(one, &plot, arm.0, &points);
                },
            );
        });
    });
}

/// A small drawing an arm, with its name above.
fn multiples(into: &mut Markup, arms: &[Shown], said: impl Fn(&Shown) -> String, draw: impl Fn(&mut Markup, &Shown)) {
    into.nested("div", &[("class", &"multiples")], |list| {
        for arm in arms {
            list.nested("div", &[("class", &format_args!("multiple {}", arm.0.classes()))], |one| {
                one.nested("h4", &[], |head| {
                    arm.0.label(head);
                    head.element("span", &[("class", &"value")], said(arm));
                });
                draw(one, arm);
            });
        }
    });
}

fn map(one: &mut Markup, (look, arm): &Shown, time: &Time, most: f64) {
    let rows = &arm.series.in_flight_per_endpoint;
    let about = format!("{}: requests in flight of {} endpoints over time", look.name, rows.len());
    let columns = time.seconds() / arm.series.seconds_each.max(1e-9);
    rowed(one, rows.len(), &time.x, time.unit.name(), |svg| heat::draw(svg, &about, rows, columns, most));
}

/// Rows of endpoints, with the number of the first and the last one, over time.
pub(super) fn rowed(into: &mut Markup, n_rows: usize, x: &Scale, title: &str, draw: impl FnOnce(&mut Markup)) {
    let room = n_rows.to_string().len();
    // Few rows are high enough to be seen, many are not higher than a picture.
    let high = (n_rows as f64 * 0.8).clamp(3.2, 14.0);
    let style = format!("--room:{room}ch;--high:{high}rem");
    into.nested("div", &[("class", &"plot rows"), ("style", &style)], |plot| {
        plot.nested("div", &[("class", &"y"), ("aria-hidden", &"true")], |axis| {
            let mut told: Vec<usize> = vec![0, n_rows.saturating_sub(1)];
            told.dedup();
            for row in told.into_iter().filter(|row| *row < n_rows) {
                axis.element("span", &[("style", &format_args!("top:{}%", heat::middle(row, n_rows)))], row);
            }
        });
        draw(plot);
        x_axis(plot, x, title);
    });
}

/// The mean number of requests in flight of each endpoint, or of all.
fn loads<'a>(arms: &[Shown<'a>]) -> Table<'a> {
    let n = arms.iter().map(|(_, arm)| arm.series.in_flight_per_endpoint.len()).max().unwrap_or(0);
    let mut columns = vec![
        Column::new("", "max / mean", Better::Less),
        Column::new("all endpoints", "mean", Better::Neither),
        Column::new("all endpoints", "largest", Better::Neither),
    ];
    columns.extend((0..n).map(|endpoint| Column::new("mean of endpoint", endpoint, Better::Neither)));
    let row = |(look, arm): &Shown<'a>| {
        let series = &arm.series;
        let mut cells = vec![
            Cell::new(arm.inflight_max_over_mean, number),
            Cell::new(mean(&series.in_flight_mean), number),
            Cell::new(most(&series.in_flight_max), number),
        ];
        cells.extend(series.in_flight_per_endpoint.iter().map(|values| Cell::new(mean(values), number)));
        (Head::Arm(look), cells)
    };
    Table {
        about: "requests in flight by endpoint".into(),
        corner: "arm",
        columns,
        rows: arms.iter().map(row).collect(),
    }
}

/// One chart of lines over time.
struct Kind {
    title: &'static str,
    note: &'static str,
    values: fn(&Series) -> Vec<Option<f64>>,
    said: fn(f64) -> String,
    /// What stands at the ticks.
    label: fn(f64) -> String,
    from: f64,
}

fn over_time(document: &mut Document, arms: &[Shown], time: &Time) {
    let kinds = [
        Kind {
            title: "Requests waiting in engines",
            note: "All endpoints together.",
            values: |series| series.waiting.iter().map(|value| Some(*value)).collect(),
            said: number,
            label: tick,
            from: 0.0,
        },
        Kind {
            title: "KV cache in use",
            note: "Mean of all endpoints.",
            values: |series| series.kv_usage.iter().map(|value| Some(*value)).collect(),
            said: percent,
            label: |part| format!("{} %", tick(part * 100.0)),
            from: 0.0,
        },
        Kind {
            title: "Imbalance of requests in flight",
            note: "The busiest endpoint by the mean; 1 is even.",
            values: imbalance,
            said: number,
            label: tick,
            from: 1.0,
        },
    ];
    let any =
        |kind: &Kind| arms.iter().any(|(_, arm)| (kind.values)(&arm.series).iter().flatten().any(|v| *v > kind.from));
    let kinds: Vec<Kind> = kinds.into_iter().filter(any).collect();
    if kinds.is_empty() {
        return;
    }
    let note = "Beside each arm is its mean over time. The imbalance is left out where little is in flight.";
    document.section("Over time", note, "two", |section| {
        for kind in &kinds {
            kind.draw(section, arms, time);
        }
    });
}

impl Kind {
    fn draw(&self, section: &mut Markup, arms: &[Shown], time: &Time) {
        let series: Vec<Vec<Option<f64>>> = arms.iter().map(|(_, arm)| (self.values)(&arm.series)).collect();
        let most = series.iter().flatten().flatten().copied().fold(self.from, f64::max);
        let y = Scale::rounded(self.from, most, 4, self.label);
        let about = format!("{} over time, of {} arms", self.title, arms.len());
        let plot = Plot { about: &about, x: &time.x, y: &y, x_title: &time.title(), height: "tall" };
        let points = |arm: &ArmReport, values: &[Option<f64>]| {
            values.iter().enumerate().map(|(i, value)| Some((middle(&arm.series, i), (*value)?))).collect()
        };
        let both = || arms.iter().zip(&series);
        let lines: Vec<Line> =
            both().map(|((look, arm), values)| Line { arm: look, points: points(arm, values) }).collect();
        let numbers = self.numbers(arms, &series, time);
        figure(section, self.title, self.note, Some(&numbers), |figure| {
            lines::draw(figure, &plot, &lines);
            let mean = |values: &[Option<f64>]| mean(&values.iter().flatten().copied().collect::<Vec<_>>());
            let entries: Vec<_> =
                both().map(|((look, _), values)| (*look, Cell::new(mean(values), self.said))).collect();
            key(figure, &entries);
        });
    }

    /// Mean and largest value, and the value at some moments.
    fn numbers<'a>(&self, arms: &[Shown<'a>], series: &[Vec<Option<f64>>], time: &Time) -> Table<'a> {
        let moments: Vec<f64> = (0..TOLD).map(|i| (i as f64 + 0.5) / TOLD as f64).collect();
        let mut columns = vec![Column::new("", "mean", Better::Less), Column::new("", "largest", Better::Less)];
        let group = format!("after so many {}", time.unit.name());
        let told = |part: &f64| number(part * time.seconds() / time.unit.in_seconds());
        columns.extend(moments.iter().map(|part| Column::new(&group, told(part), Better::Neither)));
        let row = |((look, arm), values): (&Shown<'a>, &Vec<Option<f64>>)| {
            let known: Vec<f64> = values.iter().flatten().copied().collect();
            let mut cells = vec![Cell::new(mean(&known), self.said), Cell::new(most(&known), self.said)];
            let at = |part: &f64| (part * time.seconds() / arm.series.seconds_each.max(1e-9)) as usize;
            let value = |part: &f64| values.get(at(part)).copied().flatten();
            cells
                .extend(moments.iter().map(|part| value(part).map_or_else(Cell::default, |v| Cell::new(v, self.said))));
            (Head::Arm(look), cells)
        };
        let rows = arms.iter().zip(series).map(row).collect();
        Table { about: self.title.to_lowercase(), corner: "arm", columns, rows }
    }
}

/// When the middle of a stretch of time is.
fn middle(series: &Series, i: usize) -> f64 {
    (i as f64 + 0.5) * series.seconds_each
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Where less than a request an endpoint is in flight, and a tenth as many as ever, one more or less says nothing.
fn imbalance(series: &Series) -> Vec<Option<f64>> {
    let enough = (most(&series.in_flight_mean) / 10.0).min(1.0);
    let both = series.in_flight_max.iter().zip(&series.in_flight_mean);
    both.map(|(max, mean)| (*mean > 0.0 && *mean >= enough).then(|| max / mean)).collect()
}

fn picks(document: &mut Document, arms: &[Shown]) {
    let n = arms.iter().map(|(_, arm)| arm.picks_per_endpoint.len()).max().unwrap_or(0);
    let largest = arms.iter().flat_map(|(_, arm)| &arm.picks_per_endpoint).copied().max().unwrap_or(0);
    if largest == 0 {
        return;
    }
    let y = Scale::rounded(0.0, largest as f64, 3, tick);
    let x = Scale::counted(n);
    let values = |arm: &ArmReport| {
        let mut values: Vec<f64> = arm.picks_per_endpoint.iter().map(|n| *n as f64).collect();
        // So many cannot be told apart; in this order they are a curve.
        if n > MOST_NAMED {
            values.sort_by(|a, b| b.total_cmp(a));
        }
        values
    };
    let said = |(_, arm): &Shown| {
        let values = values(arm);
        format!("max / mean {}", number(most(&values) / mean(&values).max(f64::MIN_POSITIVE)))
    };
    let (order, title) = if n > MOST_NAMED { (", most first", "endpoints, by picks") } else { ("", "endpoint") };
    let note = format!("How many requests each endpoint was given{order}. The line is an equal share.");
    document.section("Requests by endpoint", "", "one", |section| {
        figure(section, "Picks", &note, Some(&picked(arms, n)), |figure| {
            multiples(figure, arms, said, |one, (look, arm)| {
                let about = format!("{}: requests that each of {n} endpoints was given", look.name);
                let plot = Plot { about: &about, x: &x, y: &y, x_title: title, height: "low" };
                let values = values(arm);
                columns::draw(one, &plot, &look.classes().to_string(), &values, Some(mean(&values)));
            });
        });
    });
}

/// Least and most requests of an endpoint, and those of each, if there are not too many.
fn picked<'a>(arms: &[Shown<'a>], n_endpoints: usize) -> Table<'a> {
    let told = if n_endpoints > MOST_NAMED { 0 } else { n_endpoints };
    let mut columns = vec![Column::plain("least"), Column::plain("most")];
    columns.extend((0..told).map(|endpoint| Column::new("endpoint", endpoint, Better::Neither)));
    let cell = |n: &u64| Cell::new(*n as f64, |n| grouped(n as u64));
    let row = |(look, arm): &Shown<'a>| {
        let all = &arm.picks_per_endpoint;
        let ends = [all.iter().min(), all.iter().max()];
        (Head::Arm(look), ends.into_iter().flatten().chain(all.iter().take(told)).map(cell).collect())
    };
    Table { about: "requests by endpoint".into(), corner: "arm", columns, rows: arms.iter().map(row).collect() }
}
