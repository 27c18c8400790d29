//! Columns side by side: how often something came, in the order of time, of size, or of endpoints.

use std::fmt::Write as _;

use super::chart::{Plot, SIDE};
use super::markup::Markup;
use super::numbers::Px;

/// Between columns, as a part of their width, while there are so few that it can be seen.
const GAP: f64 = 0.15;
const MOST_WITH_GAPS: usize = 80;

/// Draws columns of equal width from one end of the drawing to the other, and a line at a value to compare with.
pub(super) fn draw(into: &mut Markup, plot: &Plot, class: &str, values: &[f64], reference: Option<f64>) {
    plot.draw(into, |svg| {
        svg.shape("path", &[("class", &format_args!("columns {class}")), ("d", &path(plot, values))]);
        if let Some(value) = reference {
            let (_, y) = plot.place(0.0, value);
            svg.shape("path", &[("class", &"reference"), ("d", &format_args!("M0 {y}h{SIDE}"))]);
        }
    });
}

fn path(plot: &Plot, values: &[f64]) -> String {
    let width = SIDE / values.len().max(1) as f64;
    let gap = if values.len() > MOST_WITH_GAPS { 0.0 } else { GAP * width };
    let mut path = String::new();
    for (i, value) in values.iter().enumerate().filter(|(_, value)| **value > 0.0) {
        let (_, y) = plot.place(0.0, *value);
        let (x, wide) = (Px(i as f64 * width + gap / 2.0), Px(width - gap));
        let _ = write!(path, "M{x} {SIDE}V{y}h{wide}V{SIDE}z");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::numbers::tick;
    use crate::page::scale::Scale;

    #[test]
    fn columns_stand_on_the_ground_and_none_is_drawn_for_nothing() {
        let (x, y) = (Scale::rounded(0.0, 1.0, 1, tick), Scale::rounded(0.0, 10.0, 2, tick));
        let plot = Plot { about: "", x: &x, y: &y, x_title: "", height: "low" };
        assert_eq!(path(&plot, &[5.0, 0.0]), "M37.5 1000V500h425V1000z");
        assert_eq!(path(&plot, &[]), "");
        assert_eq!(path(&plot, &[f64::NAN]), "");
    }
}
