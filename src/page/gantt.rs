//! Until when each endpoint was busy in each step of rollouts.

use super::chart::svg;
use super::markup::Markup;
use super::numbers::{Px, time};
use super::scale::Scale;

/// Units of a row; a bar takes this part of it.
const ROW: f64 = 10.0;
const BAR: f64 = 7.0;

/// One step. Times are in seconds since everything began.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub began: f64,
    pub ended: f64,
    /// When nine in ten trajectories were over.
    pub tail_began: f64,
    /// By endpoint.
    pub done: Vec<f64>,
}

/// Draws a row an endpoint with a bar a step; the tail of each step is shaded behind them.
pub(super) fn draw(into: &mut Markup, about: &str, scale: &Scale, steps: &[Step]) {
    let n_rows = steps.iter().map(|step| step.done.len()).max().unwrap_or(0).max(1);
    let (width, height) = (1000.0, n_rows as f64 * ROW);
    let x = |seconds: f64| scale.place(seconds) * width;
    svg(into, about, width, height, |svg| {
        for (number, step) in (1..).zip(steps) {
            let (from, to) = (x(step.tail_began), x(step.ended));
            let tail: &[(&str, &dyn std::fmt::Display)] =
                &[("class", &"tail"), ("x", &Px(from)), ("width", &Px(to - from)), ("height", &Px(height))];
            svg.nested("rect", tail, |rect| {
                rect.element(
                    "title",
                    &[],
                    format_args!("tail of step {number}: {}", time(step.ended - step.tail_began)),
                );
            });
            for (row, done) in step.done.iter().enumerate() {
                let (from, to) = (x(step.began), x(*done));
                let y = row as f64 * ROW + (ROW - BAR) / 2.0;
                let bar: &[(&str, &dyn std::fmt::Display)] = &[
                    ("class", &"fill"),
                    ("x", &Px(from)),
                    ("y", &Px(y)),
                    ("width", &Px((to - from).max(0.0))),
                    ("height", &Px(BAR)),
                ];
                svg.nested("rect", bar, |rect| {
                    let done = time(done - step.began);
                    rect.element("title", &[], format_args!("step {number}, endpoint {row}: done after {done}"));
                });
            }
            svg.shape(
                "path",
                &[("class", &"reference"), ("d", &format_args!("M{} 0v{}", Px(x(step.ended)), Px(height)))],
            );
        }
    });
}
