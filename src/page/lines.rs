//! Lines over time, and cumulative curves.

use std::fmt::Write as _;

use super::arms::Arm;
use super::chart::Plot;
use super::markup::Markup;

/// The line of an arm; where there is no value there is a gap.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    pub arm: &'a Arm,
    pub points: Vec<Option<(f64, f64)>>,
}

/// Draws lines; those of interest come last, so that they lie on top.
pub(super) fn draw(into: &mut Markup, plot: &Plot, lines: &[Line]) {
    plot.draw(into, |svg| {
        let mut lines: Vec<&Line> = lines.iter().collect();
        lines.sort_by_key(|line| line.arm.is_of_interest());
        for line in lines {
            let class = format!("line {}", line.arm.classes());
            svg.nested("path", &[("class", &class), ("d", &path(plot, &line.points))], |path| {
                path.element("title", &[], &line.arm.name);
            });
        }
    });
}

/// Draws what lies between a lower and an upper line, and both of them.
pub(super) fn band(into: &mut Markup, plot: &Plot, arm: &Arm, points: &[(f64, f64, f64)]) {
    let lower: Vec<_> = points.iter().map(|(x, low, _)| Some((*x, *low))).collect();
    let upper: Vec<_> = points.iter().map(|(x, _, high)| Some((*x, *high))).collect();
    plot.draw(into, |svg| {
        svg.nested("g", &[("class", &arm.classes())], |svg| {
            let mut area = path(plot, &upper);
            let back: Vec<_> = lower.iter().rev().copied().collect();
            area.push_str(&path(plot, &back).replacen('M', "L", 1));
            svg.shape("path", &[("class", &"area"), ("d", &area)]);
            svg.nested("path", &[("class", &"line thin"), ("d", &path(plot, &upper))], |path| {
                path.element("title", &[], "largest");
            });
            svg.nested("path", &[("class", &"line"), ("d", &path(plot, &lower))], |path| {
                path.element("title", &[], "mean");
            });
        });
    });
}

/// The points as SVG has them. A point between two gaps is a dot, drawn as a line of no length with round ends.
fn path(plot: &Plot, points: &[Option<(f64, f64)>]) -> String {
    let mut path = String::new();
    for run in points.split(Option::is_none) {
        for (i, (x, y)) in run.iter().flatten().enumerate() {
            let (x, y) = plot.place(*x, *y);
            let _ = write!(path, "{}{x} {y}", if i == 0 { 'M' } else { 'L' });
        }
        if run.len() == 1 {
            path.push_str("h0");
        }
    }
    path
}

/// The cumulative curve of a histogram: bounds, and the part of all values that is at most so much. It begins where
/// anything is counted and ends where everything is; nothing of nothing.
pub(super) fn cumulative(bounds: &[f64], counts: &[u64]) -> Vec<(f64, f64)> {
    let n = bounds.len().min(counts.len());
    let (bounds, counts) = (&bounds[..n], &counts[..n]);
    let total: f64 = counts.iter().map(|n| *n as f64).sum();
    let first = counts.iter().position(|n| *n > 0);
    let (Some(first), true) = (first, total > 0.0) else {
        return Vec::new();
    };
    let mut points = Vec::new();
    let ratio = bounds.get(1).zip(bounds.first()).map_or(2.0, |(second, first)| second / first);
    let before = first.checked_sub(1).map_or(bounds.first().map_or(0.0, |b| b / ratio), |at| bounds[at]);
    points.push((before, 0.0));
    let mut sum = 0.0;
    for (bound, n) in bounds.iter().zip(counts).skip(first) {
        sum += *n as f64;
        points.push((*bound, sum / total));
        if sum >= total {
            break;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::numbers::tick;
    use crate::page::scale::Scale;

    fn drawn(points: &[Option<(f64, f64)>]) -> String {
        let (x, y) = (Scale::rounded(0.0, 10.0, 2, tick), Scale::rounded(0.0, 10.0, 2, tick));
        let plot = Plot { about: "", x: &x, y: &y, x_title: "", height: "tall" };
        path(&plot, points)
    }

    #[test]
    fn a_line_stops_where_there_is_no_value() {
        let points = [Some((0.0, 0.0)), Some((5.0, 10.0)), None, Some((10.0, 5.0))];
        assert_eq!(drawn(&points), "M0 1000L500 0M1000 500h0");
    }

    #[test]
    fn an_empty_line_and_one_of_one_point_can_be_drawn() {
        assert_eq!(drawn(&[]), "");
        assert_eq!(drawn(&[None, None]), "");
        assert_eq!(drawn(&[Some((f64::NAN, f64::INFINITY))]), "M0 0h0");
    }

    #[test]
    fn a_cumulative_curve_goes_from_nothing_to_everything() {
        assert_eq!(cumulative(&[1.0, 2.0, 4.0, 8.0], &[0, 1, 3, 0]), [(1.0, 0.0), (2.0, 0.25), (4.0, 1.0)]);
        assert_eq!(cumulative(&[1.0, 2.0], &[4, 0]), [(0.5, 0.0), (1.0, 1.0)]);
        assert_eq!(cumulative(&[], &[]), []);
        assert_eq!(cumulative(&[1.0], &[0]), []);
        assert_eq!(cumulative(&[1.0], &[0, 5]), []);
    }
}
