//! Dots on a scale, one a measurement, with a bar from the least to the greatest.

use super::arms::Arm;
use super::chart::{SIDE, svg, x_axis};
use super::markup::Markup;
use super::numbers::Px;
use super::scale::Scale;

/// What was measured of one picker, again and again.
#[derive(Clone, Debug)]
pub(super) struct Range<'a> {
    pub arm: &'a Arm,
    pub values: Vec<f64>,
    /// What stands behind it.
    pub said: String,
}

/// Draws a row for each, under the name that they have in common.
pub(super) fn draw(into: &mut Markup, title: &str, scale: &Scale, ranges: &[Range], reference: Option<f64>) {
    into.nested("div", &[("class", &"bars ranges")], |list| {
        if !title.is_empty() {
            list.element("h4", &[], title);
        }
        for range in ranges {
            list.nested("div", &[("class", &format_args!("bar {}", range.arm.classes()))], |row| {
                range.arm.label(row);
                let about = format!("{title} of {}: {}", range.arm.name, range.said);
                svg(row, &about, SIDE, 10.0, |svg| {
                    let grid: String = scale.ticks.iter().map(|tick| format!("M{} 0v10", Px(tick.at * SIDE))).collect();
                    svg.shape("path", &[("class", &"grid"), ("d", &grid)]);
                    if let Some(value) = reference {
                        let d = format!("M{} 0v10", Px(scale.place(value) * SIDE));
                        svg.shape("path", &[("class", &"reference"), ("d", &d)]);
                    }
                    dots(svg, scale, &range.values);
                });
                row.element("span", &[("class", &"value")], &range.said);
            });
        }
    });
}

/// The scale below several of these.
pub(super) fn axis(into: &mut Markup, scale: &Scale, title: &str) {
    into.nested("div", &[("class", &"bar-axis")], |axis| x_axis(axis, scale, title));
}

fn dots(svg: &mut Markup, scale: &Scale, values: &[f64]) {
    let place = |value: f64| Px(scale.place(value) * SIDE);
    let ends = values.iter().copied().min_by(f64::total_cmp).zip(values.iter().copied().max_by(f64::total_cmp));
    if let Some((least, most)) = ends {
        svg.shape("path", &[("class", &"whisker"), ("d", &format_args!("M{} 5H{}", place(least), place(most)))]);
    }
    // A line of no length with round ends is a dot, which stays round when the drawing stretches.
    let dots: String = values.iter().map(|value| format!("M{} 5h0", place(*value))).collect();
    svg.shape("path", &[("class", &"dots"), ("d", &dots)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::numbers::tick;

    #[test]
    fn every_measurement_is_a_dot() {
        let mut markup = Markup::default();
        dots(&mut markup, &Scale::rounded(0.0, 10.0, 2, tick), &[5.0, 2.5]);
        let drawn = markup.into_string();
        assert!(drawn.contains("d=\"M250 5H500\"") && drawn.contains("d=\"M500 5h0M250 5h0\""), "{drawn}");
    }

    #[test]
    fn nothing_measured_is_nothing_drawn() {
        let mut markup = Markup::default();
        dots(&mut markup, &Scale::rounded(0.0, 10.0, 2, tick), &[]);
        assert_eq!(markup.into_string(), "<path class=\"dots\" d=\"\"/>");
    }
}
