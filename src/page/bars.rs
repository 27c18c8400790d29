//! A bar an arm, with a line for what it is held against.

use super::arms::Arm;
use super::chart::{SIDE, svg, x_axis};
use super::markup::Markup;
use super::numbers::Px;
use super::scale::Scale;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar<'a> {
    pub arm: &'a Arm,
    pub value: f64,
    /// What stands behind it.
    pub said: String,
}

/// Draws bars in the order given, all on one scale, and the line across them.
pub(super) fn draw(into: &mut Markup, scale: &Scale, title: &str, bars: &[Bar], reference: Option<f64>) {
    into.nested("div", &[("class", &"bars")], |list| {
        for bar in bars {
            list.nested("div", &[("class", &format_args!("bar {}", bar.arm.classes()))], |row| {
                bar.arm.label(row);
                svg(row, &format!("{}: {}", bar.arm.name, bar.said), SIDE, 10.0, |svg| {
                    let width = Px(scale.place(bar.value) * SIDE);
                    svg.shape("rect", &[("class", &"track"), ("y", &"1"), ("width", &SIDE), ("height", &"8")]);
                    svg.shape("rect", &[("class", &"fill"), ("y", &"1"), ("width", &width), ("height", &"8")]);
                    if let Some(value) = reference {
                        let d = format!("M{} 0v10", Px(scale.place(value) * SIDE));
                        svg.shape("path", &[("class", &"reference"), ("d", &d)]);
                    }
                });
                row.element("span", &[("class", &"value")], &bar.said);
            });
        }
        list.nested("div", &[("class", &"bar-axis")], |axis| x_axis(axis, scale, title));
    });
}
