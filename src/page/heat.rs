//! Maps of load: a row an endpoint, a column a stretch of time, the stronger the colour the more.

use std::fmt::Write as _;

use super::chart::svg;
use super::markup::Markup;
use super::numbers::{Px, number};

/// How many shades there are.
pub(super) const SHADES: usize = 9;

/// Draws rows of values, all of the same length in time; `columns` is how many would fill the width.
pub(super) fn draw(into: &mut Markup, about: &str, rows: &[Vec<f64>], columns: f64, most: f64) {
    svg(into, about, columns.max(1e-9), rows.len().max(1) as f64, |svg| {
        for (shade, path) in paths(rows, most).iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            svg.nested("path", &[("class", &format_args!("heat shade-{}", shade + 1)), ("d", path)], |path| {
                path.element("title", &[], said(shade, most));
            });
        }
    });
}

/// Says what the shades mean.
pub(super) fn key(into: &mut Markup, most: f64) {
    into.nested("div", &[("class", &"shades")], |key| {
        key.element("span", &[], "0");
        svg(key, "from none to the most, in equal steps", SHADES as f64, 1.0, |svg| {
            for shade in 0..SHADES {
                let class = format_args!("heat shade-{}", shade + 1).to_string();
                svg.nested("path", &[("class", &class), ("d", &format_args!("M{shade} 0h1v1h-1z"))], |path| {
                    path.element("title", &[], said(shade, most));
                });
            }
        });
        key.element("span", &[], number(most));
    });
}

fn said(shade: usize, most: f64) -> String {
    let bound = |shade: usize| number(most * shade as f64 / SHADES as f64);
    format!("{} to {} in flight", bound(shade), bound(shade + 1))
}

/// All cells of each shade as one path, neighbours in a row as one piece; nothing in flight is no shade.
fn paths(rows: &[Vec<f64>], most: f64) -> [String; SHADES] {
    let mut paths: [String; SHADES] = Default::default();
    for (y, row) in rows.iter().enumerate() {
        let mut x = 0;
        for alike in row.chunk_by(|a, b| shade(*a, most) == shade(*b, most)) {
            let n = alike.len();
            if let Some(shade) = shade(alike[0], most) {
                let _ = write!(paths[shade], "M{x} {y}h{n}v1h-{n}z");
            }
            x += n;
        }
    }
    paths
}

fn shade(value: f64, most: f64) -> Option<usize> {
    let part = value / most;
    (part.is_finite() && part > 0.0).then(|| ((part * SHADES as f64).ceil() as usize).clamp(1, SHADES) - 1)
}

/// Where the middle of a row is, from the top, for its label.
pub(super) fn middle(row: usize, n_rows: usize) -> Px {
    Px((row as f64 + 0.5) / n_rows.max(1) as f64 * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_shade_are_one_piece() {
        let paths = paths(&[vec![9.0, 8.5, 0.0, 1.0]], 9.0);
        assert_eq!((paths[8].as_str(), paths[0].as_str()), ("M0 0h2v1h-2z", "M3 0h1v1h-1z"));
        assert!(paths[1..8].iter().all(String::is_empty));
    }

    #[test]
    fn nothing_has_no_shade() {
        for (value, most) in [(0.0, 5.0), (-1.0, 5.0), (f64::NAN, 5.0), (0.0, 0.0), (1.0, 0.0)] {
            assert_eq!(shade(value, most), None, "{value} of {most}");
        }
        assert_eq!([shade(5.0, 5.0), shade(7.0, 5.0), shade(1e-9, 5.0)], [Some(8), Some(8), Some(0)]);
    }
}
