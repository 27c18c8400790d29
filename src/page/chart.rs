//! What all charts have: a title, axes around a drawing that stretches, a key, and numbers for who cannot see it.

use std::fmt::Display;

use super::arms::Arm;
use super::markup::Markup;
use super::numbers::Px;
use super::scale::{Scale, Tick};
use super::table::{Cell, Table};

/// How wide and high a drawing is, in its own units, whatever room it gets.
pub(super) const SIDE: f64 = 1000.0;

/// How many characters of a label fit below the narrowest drawing, and how many stay free between two labels.
const NARROWEST: f64 = 34.0;
const BETWEEN: f64 = 1.0;

/// Adds a figure: its title, a sentence on how to read it, the chart, and the numbers behind it.
pub(super) fn figure(
    into: &mut Markup,
    title: &str,
    note: &str,
    numbers: Option<&Table>,
    chart: impl FnOnce(&mut Markup),
) {
    into.nested("figure", &[("class", &"chart")], |figure| {
        figure.nested("figcaption", &[], |caption| {
            caption.element("h3", &[], title);
            if !note.is_empty() {
                caption.element("p", &[("class", &"note")], note);
            }
        });
        chart(figure);
        if let Some(numbers) = numbers {
            numbers.draw_behind(figure);
        }
    });
}

/// A drawing with axes. Labels are text of the page, which stays as large as it is when the drawing stretches.
pub(super) struct Plot<'a> {
    /// What is to be seen, for who cannot.
    pub about: &'a str,
    pub x: &'a Scale,
    pub y: &'a Scale,
    pub x_title: &'a str,
    /// `tall` or `low`.
    pub height: &'static str,
}

impl Plot<'_> {
    /// Draws in units from 0 to [`SIDE`], downwards from the top left.
    pub fn draw(&self, into: &mut Markup, inside: impl FnOnce(&mut Markup)) {
        let room = self.y.ticks.iter().map(|tick| tick.label.chars().count()).max().unwrap_or(0);
        let style = format!("--room:{}ch", room.max(1));
        into.nested("div", &[("class", &format_args!("plot {}", self.height)), ("style", &style)], |plot| {
            plot.nested("div", &[("class", &"y"), ("aria-hidden", &"true")], |axis| {
                for tick in &self.y.ticks {
                    axis.element("span", &[("style", &format_args!("bottom:{}%", Px(tick.at * 100.0)))], &tick.label);
                }
            });
            svg(plot, self.about, SIDE, SIDE, |svg| {
                svg.shape("path", &[("class", &"grid"), ("d", &self.grid())]);
                inside(svg);
            });
            x_axis(plot, self.x, self.x_title);
        });
    }

    /// A place in the drawing.
    pub fn place(&self, x: f64, y: f64) -> (Px, Px) {
        (Px(self.x.place(x) * SIDE), Px((1.0 - self.y.place(y)) * SIDE))
    }

    fn grid(&self) -> String {
        let across = self.y.ticks.iter().map(|tick| format!("M0 {}h{SIDE}", Px((1.0 - tick.at) * SIDE)));
        let up = self.x.ticks.iter().map(|tick| format!("M{} 0v{SIDE}", Px(tick.at * SIDE)));
        across.chain(up).collect()
    }
}

/// A drawing of so many units that stretches in both directions.
pub(super) fn svg(into: &mut Markup, about: &str, width: f64, height: f64, inside: impl FnOnce(&mut Markup)) {
    let view = format!("0 0 {} {}", Px(width), Px(height));
    let attributes: &[(&str, &dyn Display)] =
        &[("viewBox", &view), ("preserveAspectRatio", &"none"), ("role", &"img"), ("aria-label", &about)];
    into.nested("svg", attributes, inside);
}

/// Labels below a drawing; those at the ends do not stand out.
pub(super) fn x_axis(into: &mut Markup, scale: &Scale, title: &str) {
    into.nested("div", &[("class", &"x"), ("aria-hidden", &"true")], |axis| {
        for tick in legible(&scale.ticks) {
            let class = match End::of(tick) {
                End::First => "first",
                End::Last => "last",
                End::Neither => "middle",
            };
            let style = format!("left:{}%", Px(tick.at * 100.0));
            axis.element("span", &[("class", &class), ("style", &style)], &tick.label);
        }
    });
    if !title.is_empty() {
        into.element("div", &[("class", &"x-title"), ("aria-hidden", &"true")], title);
    }
}

/// Which end of an axis a label is at; it does not stand out over that.
#[derive(Clone, Copy)]
enum End {
    First,
    Last,
    Neither,
}

impl End {
    fn of(tick: &Tick) -> Self {
        match tick.at {
            at if at < 0.03 => Self::First,
            at if at > 0.97 => Self::Last,
            _ => Self::Neither,
        }
    }
}

/// Those labels that do not lie on the one before where there is least room.
fn legible(ticks: &[Tick]) -> Vec<&Tick> {
    let mut taken = f64::NEG_INFINITY;
    let fits = |tick: &&Tick| {
        let wide = tick.label.chars().count() as f64 / NARROWEST;
        let from = match End::of(tick) {
            End::First => tick.at,
            End::Last => tick.at - wide,
            End::Neither => tick.at - wide / 2.0,
        };
        let fits = from > taken;
        if fits {
            taken = from + wide + BETWEEN / NARROWEST;
        }
        fits
    };
    ticks.iter().filter(fits).collect()
}

/// Says which line is whose, each with the number that says most, in the order of these numbers.
pub(super) fn key(into: &mut Markup, entries: &[(&Arm, Cell)]) {
    let mut entries: Vec<&(&Arm, Cell)> = entries.iter().collect();
    entries.sort_by(|a, b| {
        let value = |entry: &(&Arm, Cell)| entry.1.value.unwrap_or(f64::INFINITY);
        value(a).total_cmp(&value(b))
    });
    into.nested("ul", &[("class", &"key")], |key| {
        for (arm, cell) in entries {
            key.nested("li", &[("class", &arm.classes())], |item| {
                arm.label(item);
                item.element("span", &[("class", &"value")], &cell.text);
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(ticks: &[(f64, &str)]) -> Vec<String> {
        let ticks: Vec<Tick> = ticks.iter().map(|(at, label)| Tick { at: *at, label: (*label).into() }).collect();
        legible(&ticks).into_iter().map(|tick| tick.label.clone()).collect()
    }

    #[test]
    fn a_label_that_would_lie_on_another_is_left_out() {
        assert_eq!(kept(&[(0.0, "0"), (0.5, "1"), (1.0, "2")]), ["0", "1", "2"]);
        assert_eq!(kept(&[(0.2, "100 ms"), (0.3, "200 ms"), (0.45, "500 ms")]), ["100 ms", "500 ms"]);
        assert_eq!(kept(&[(0.85, "16.4k"), (1.0, "32.8k")]), ["16.4k"]);
        assert_eq!(kept(&[]), [""; 0]);
    }
}
