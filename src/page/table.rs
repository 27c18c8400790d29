//! Tables of numbers, with the best of each column marked.

use std::fmt::Display;

use super::arms::Arm;
use super::markup::Markup;

/// Which values of a column are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Less,
    More,
    Neither,
}

/// A column; those in a row with the same group have a head in common.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub group: String,
    pub head: String,
    pub better: Better,
}

/// What stands in a cell; the value is what it was before it was written for people.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub value: Option<f64>,
    pub text: String,
}

/// What a row is about.
#[derive(Clone, Debug)]
pub(super) enum Head<'a> {
    Arm(&'a Arm),
    Text(String),
}

#[derive(Clone, Debug)]
pub(super) struct Table<'a> {
    /// What the table is called by those who hear it.
    pub about: String,
    /// The head of the first column.
    pub corner: &'static str,
    pub columns: Vec<Column>,
    pub rows: Vec<(Head<'a>, Vec<Cell>)>,
}

impl Column {
    pub fn new(group: impl Display, head: impl Display, better: Better) -> Self {
        Self { group: group.to_string(), head: head.to_string(), better }
    }

    /// A column that has no group and no best.
    pub fn plain(head: impl Display) -> Self {
        Self::new("", head, Better::Neither)
    }
}

impl Cell {
    pub fn new(value: f64, said: impl Fn(f64) -> String) -> Self {
        Self { value: Some(value).filter(|value| value.is_finite()), text: said(value) }
    }

    pub fn text(text: impl Display) -> Self {
        Self { value: None, text: text.to_string() }
    }
}

impl Table<'_> {
    /// In a box of its own, which scrolls if it is narrow.
    pub fn draw(&self, into: &mut Markup) {
        let best: Vec<Option<f64>> = (0..self.columns.len()).map(|at| self.best(at)).collect();
        let attributes: &[(&str, &dyn Display)] =
            &[("class", &"wide"), ("role", &"region"), ("aria-label", &self.about), ("tabindex", &"0")];
        into.nested("div", attributes, |wide| {
            wide.nested("table", &[], |table| {
                table.nested("thead", &[], |head| self.head(head));
                table.nested("tbody", &[], |body| {
                    for (head, cells) in &self.rows {
                        row(body, head, cells, &best);
                    }
                });
            });
        });
    }

    /// The same, to be opened by who wants it.
    pub fn draw_behind(&self, into: &mut Markup) {
        into.nested("details", &[], |details| {
            details.nested("summary", &[], |summary| {
                summary.text("Numbers");
                summary.element("span", &[("class", &"heard")], format_args!(": {}", self.about));
            });
            self.draw(details);
        });
    }

    fn head(&self, head: &mut Markup) {
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            head.nested("tr", &[("class", &"groups")], |row| {
                row.element("td", &[], "");
                for alike in self.columns.chunk_by(|a, b| !a.group.is_empty() && a.group == b.group) {
                    row.element("th", &[("colspan", &alike.len()), ("scope", &"colgroup")], &alike[0].group);
                }
            });
        }
        head.nested("tr", &[], |row| {
            row.element("th", &[("scope", &"col")], self.corner);
            for column in &self.columns {
                row.element("th", &[("scope", &"col")], &column.head);
            }
        });
    }

    /// The best value of a column, unless all are the same.
    fn best(&self, at: usize) -> Option<f64> {
        let values = || self.rows.iter().filter_map(|(_, cells)| cells.get(at)?.value);
        let (least, most) = (values().min_by(f64::total_cmp)?, values().max_by(f64::total_cmp)?);
        match self.columns[at].better {
            Better::Less if least < most => Some(least),
            Better::More if least < most => Some(most),
            Better::Less | Better::More | Better::Neither => None,
        }
    }
}

fn row(body: &mut Markup, head: &Head, cells: &[Cell], best: &[Option<f64>]) {
    let fill = |row: &mut Markup| {
        row.nested("th", &[("scope", &"row")], |th| match head {
            Head::Arm(arm) => arm.label(th),
            Head::Text(text) => th.text(text),
        });
        for (cell, best) in cells.iter().zip(best) {
            let Some(value) = cell.value else {
                row.element("td", &[], &cell.text);
                continue;
            };
            let is_best = best.is_some_and(|best| value == best);
            let class = if is_best { "best" } else { "number" };
            row.nested("td", &[("class", &class)], |td| {
                td.element("data", &[("value", &value)], &cell.text);
                if is_best {
                    td.element("span", &[("class", &"heard")], " (best)");
                }
            });
        }
    };
    match head {
        Head::Arm(arm) => body.nested("tr", &[("class", &arm.classes())], fill),
        Head::Text(_) => body.nested("tr", &[], fill),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(better: Better, values: &[f64]) -> String {
        let row = |value: &f64| (Head::Text("r".into()), vec![Cell::new(*value, |v| format!("{v}"))]);
        let columns = vec![Column::new("", "c", better)];
        let table = Table { about: "t".into(), corner: "", columns, rows: values.iter().map(row).collect() };
        let mut markup = Markup::default();
        table.draw(&mut markup);
        markup.into_string()
    }

    #[test]
    fn the_best_of_a_column_is_marked() {
        assert!(drawn(Better::Less, &[2.0, 1.0, 3.0]).contains("<td class=\"best\"><data value=\"1\">1</data>"));
        assert!(drawn(Better::More, &[2.0, 1.0, 3.0]).contains("<td class=\"best\"><data value=\"3\">3</data>"));
        assert_eq!(drawn(Better::Less, &[1.0, 1.0, 3.0]).matches("\"best\"").count(), 2);
    }

    #[test]
    fn nothing_is_best_where_all_are_alike_or_none_is_better() {
        for (better, values) in [
            (Better::Less, &[1.0, 1.0][..]),
            (Better::Neither, &[1.0, 2.0]),
            (Better::More, &[]),
            (Better::More, &[1.0]),
        ] {
            assert!(!drawn(better, values).contains("\"best\""), "{better:?} {values:?}");
        }
    }
}
