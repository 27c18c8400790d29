//! Steps of rollouts: until when each endpoint was busy, and what the last trajectories cost.

use super::Shown;
use super::load::rowed;
use crate::page::chart::figure;
use crate::page::document::Document;
use crate::page::gantt::{self, Step};
use crate::page::markup::Markup;
use crate::page::numbers::{number, percent, time};
use crate::page::scale::Scale;
use crate::page::table::{Better, Cell, Column, Head, Table};
use crate::simulate::report::{RolloutReport, StepReport};

pub(super) fn draw(document: &mut Document, arms: &[Shown]) {
    let arms: Vec<(&Shown, &RolloutReport)> = arms
        .iter()
        .filter_map(|arm| Some((arm, arm.1.rollouts.as_ref()?)))
        .filter(|(_, of)| !of.steps.is_empty())
        .collect();
    if arms.is_empty() {
        return;
    }
    let end = |step: &StepReport| step.began_seconds + step.makespan_seconds;
    let last = arms.iter().flat_map(|(_, of)| &of.steps).map(end).fold(0.0, f64::max);
    let (x, unit) = Scale::elapsed(last);
    let n_rows =
        arms.iter().flat_map(|(_, of)| &of.steps).map(|step| step.endpoint_done_seconds.len()).max().unwrap_or(0);
    let note = match n_rows {
        0 => "There are too many endpoints to tell of each one; the shade is the tail of a step, the line its end.",
        _ => "A row is an endpoint; its bar ends when it had nothing to do any more in that step.",
    };
    document.section("Steps of the rollouts", "", "one", |section| {
        figure(section, "Until when endpoints were busy", note, Some(&numbers(&arms)), |figure| {
            legend(figure);
            figure.nested("div", &[("class", &"multiples")], |list| {
                for ((look, _), of) in &arms {
                    list.nested("div", &[("class", &format_args!("multiple {}", look.classes()))], |one| {
                        one.nested("h4", &[], |head| {
                            look.label(head);
                            let straggler = format!("last / median {}", number(of.straggler_ratio));
                            head.element("span", &[("class", &"value")], straggler);
                        });
                        let about = format!("{}: until when {n_rows} endpoints were busy in each step", look.name);
                        let steps: Vec<Step> = of.steps.iter().map(step).collect();
                        rowed(one, n_rows, &x, unit.name(), |svg| gantt::draw(svg, &about, &x, &steps));
                    });
                }
            });
        });
    });
}

fn step(of: &StepReport) -> Step {
    let began = of.began_seconds;
    Step {
        began,
        ended: began + of.makespan_seconds,
        tail_began: began + of.trajectory_seconds.p90,
        done: of.endpoint_done_seconds.iter().map(|done| began + done).collect(),
    }
}

fn legend(figure: &mut Markup) {
    let entries: [(&str, &str); 2] =
        [("tail", "tail: nine in ten trajectories are over"), ("reference", "the last one is over: end of the step")];
    figure.nested("div", &[("class", &"legend")], |legend| {
        for (class, said) in entries {
            legend.nested("span", &[], |entry| {
                entry.nested("svg", &[("viewBox", &"0 0 20 10"), ("aria-hidden", &"true")], |svg| match class {
                    "tail" => svg.shape("rect", &[("class", &class), ("width", &"20"), ("height", &"10")]),
                    _ => svg.shape("path", &[("class", &class), ("d", &"M10 0v10")]),
                });
                entry.text(said);
            });
        }
    });
}

fn numbers<'a>(arms: &[(&Shown<'a>, &RolloutReport)]) -> Table<'a> {
    let n_steps = arms.iter().map(|(_, of)| of.steps.len()).max().unwrap_or(0);
    let mut columns = vec![
        Column::new("all steps", "together", Better::More),
        Column::new("all steps", "last / median", Better::Less),
        Column::new("all steps", "tail", Better::Less),
        Column::new("all steps", "idle", Better::Less),
    ];
    for number in 1..=n_steps {
        let group = format!("step {number}");
        let heads = ["makespan", "median", "p90", "first done"];
        columns.extend(heads.map(|head| Column::new(&group, head, Better::Neither)));
    }
    let row = |(shown, of): &(&Shown<'a>, &RolloutReport)| {
        let mut cells = vec![
            Cell::new(of.colocated_groups, percent),
            Cell::new(of.straggler_ratio, number),
            Cell::new(of.tail_share, percent),
            Cell::new(of.idle_share, percent),
        ];
        for step in &of.steps {
            let spread = &step.trajectory_seconds;
            cells.extend([step.makespan_seconds, spread.p50, spread.p90].map(|seconds| Cell::new(seconds, time)));
            let first = step.endpoint_done_seconds.iter().copied().min_by(f64::total_cmp);
            cells.push(first.map_or_else(Cell::default, |seconds| Cell::new(seconds, time)));
        }
        (Head::Arm(shown.0), cells)
    };
    Table { about: "steps of the rollouts".into(), corner: "arm", columns, rows: arms.iter().map(row).collect() }
}
