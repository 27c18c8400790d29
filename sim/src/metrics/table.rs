//! Tables of metric families, and how one becomes text.

use super::View;
use super::histogram::Histogram;
use super::page::{Label, Page, with};

/// One row of a table: a family and where its values come from.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) scope: Scope,
    pub(super) shape: Shape,
}

/// Whose numbers a family holds; says which labels every series has.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    Engine,
    Server,
}

/// Where a value comes from.
pub(super) type Source = fn(&View) -> f64;

/// What a family is.
pub(super) enum Shape {
    Counter(Series),
    Gauge(Series),
    Histogram(fn(&View) -> &Histogram),
}

/// The series of a family.
pub(super) enum Series {
    One(Source),
    /// A series a value of one more label.
    By(&'static str, &'static [(&'static str, Source)]),
}

/// The labels of every series, by scope, each list sorted.
pub(super) struct ScopeLabels<'a> {
    pub(super) engine: &'a [Label<'a>],
    pub(super) server: &'a [Label<'a>],
}

/// Says whether counters and histograms are followed by a family that says when they were made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Created {
    Told,
    Untold,
}

impl Page {
    /// Writes the families of a table in its order.
    pub(super) fn table(&mut self, families: &[Family], view: &View, labels: &ScopeLabels<'_>, created: Created) {
        for family in families {
            let labels = match family.scope {
                Scope::Engine => labels.engine,
                Scope::Server => labels.server,
            };
            let Family { name, help, shape, .. } = family;
            match shape {
                Shape::Counter(series) => {
                    self.family(name, help, "counter");
                    self.series(name, labels, series, |value| value(view));
                    if created == Created::Told {
                        let name = format!("{}_created", name.strip_suffix("_total").unwrap_or(name));
                        self.family(&name, help, "gauge");
                        self.series(&name, labels, series, |_| view.started_unix);
                    }
                }
                Shape::Gauge(series) => {
                    self.family(name, help, "gauge");
                    self.series(name, labels, series, |value| value(view));
                }
                Shape::Histogram(histogram) => {
                    self.family(name, help, "histogram");
                    self.histogram(name, labels, histogram(view));
                    if created == Created::Told {
                        let name = format!("{name}_created");
                        self.family(&name, help, "gauge");
                        self.sample(&name, labels, view.started_unix);
                    }
                }
            }
        }
    }

    fn series(&mut self, name: &str, labels: &[Label<'_>], series: &Series, value: impl Fn(Source) -> f64) {
        match series {
            Series::One(of) => self.sample(name, labels, value(*of)),
            Series::By(label, rows) => {
                for (text, of) in *rows {
                    self.sample(name, &with(labels, (label, text)), value(*of));
                }
            }
        }
    }
}
