//! Writes metric families as text, numbers and labels as the Python client of Prometheus does.

use std::fmt::Write;

use super::histogram::Histogram;

/// A label's name and value.
pub(super) type Label<'a> = (&'a str, &'a str);

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page(String);

impl Page {
    /// The text so far.
    pub(super) fn into_text(self) -> String {
        self.0
    }

    /// Opens a family.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        for piece in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"] {
            self.0.push_str(piece);
        }
    }

    /// Writes one sample; labels come in the order given.
    pub(super) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for c in text.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.0.push(' ');
        number(&mut self.0, value);
        self.0.push('\n');
    }

    /// Writes the samples of a histogram; `labels` are sorted.
    pub(super) fn histogram(&mut self, name: &str, labels: &[Label<'_>], histogram: &Histogram) {
        let series = format!("{name}_bucket");
        let mut bound_text = String::new();
        for (bound, count) in histogram.cumulative() {
            bound_text.clear();
            number(&mut bound_text, bound);
            self.sample(&series, &with(labels, ("le", &bound_text)), count as f64);
        }
        self.sample(&format!("{name}_count"), labels, histogram.count() as f64);
        self.sample(&format!("{name}_sum"), labels, histogram.sum());
    }
}

/// Puts a label where it belongs among sorted ones.
pub(super) fn with<'a>(labels: &[Label<'a>], extra: Label<'a>) -> Vec<Label<'a>> {
    let mut all = labels.to_vec();
    all.insert(labels.partition_point(|label| label.0 < extra.0), extra);
    all
}

/// Writes a number: always with a point, and from a million on as mantissa and exponent.
fn number(to: &mut String, value: f64) {
    if value.is_infinite() {
        to.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        return;
    }
    let from = to.len();
    write!(to, "{value:?}").expect("a string takes every write");
    let digits = &to[from..];
    if let Some(point) = digits.find('.').filter(|&point| value > 0.0 && point > 6) {
        let mantissa = format!("{}.{}{}", &digits[..1], &digits[1..point], &digits[point + 1..]);
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        let text = format!("{mantissa}e+{:02}", point - 1);
        to.truncate(from);
        to.push_str(&text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (94.0, "94.0"),
            (0.040529817493743514, "0.040529817493743514"),
            (180601.0, "180601.0"),
            (1_000_000.0, "1e+06"),
            (4_621_742_080.0, "4.62174208e+09"),
            (1_795_974_875.537_058_6, "1.7959748755370586e+09"),
            (12_345_678_901.0, "1.2345678901e+10"),
            (f64::INFINITY, "+Inf"),
        ];
        for (value, want) in cases {
            let mut text = String::new();
            number(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn labels_are_escaped_and_kept_sorted() {
        let mut page = Page::default();
        page.sample("a", &with(&[("engine", "0"), ("model_name", "q\"\\\n")], ("le", "1.0")), 1.0);
        page.sample("b", &[], 2.0);
        assert_eq!(page.into_text(), "a{engine=\"0\",le=\"1.0\",model_name=\"q\\\"\\\\\\n\"} 1.0\nb 2.0\n");
    }
}
