//! Board, reading engines: makes one number of the samples of one family.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::board::exposition::sample::{Labels, Sample};

/// More requests than any engine holds; what is above is no count.
const MOST: f64 = 1e15;

/// The samples that one wanted value was found in, in the order of the page.
#[derive(Debug, Default)]
pub struct Series<'p>(Vec<Sample<'p>>);

impl<'p> Series<'p> {
    /// Takes in one more sample.
    pub fn push(&mut self, sample: Sample<'p>) {
        self.0.push(sample);
    }

    /// Requests, summed over series; each is a whole number, rounded down. What is no count is left out.
    pub fn count(self) -> Option<f64> {
        let counts = self.distinct().filter(|v| (0.0..=MOST).contains(v)).map(f64::trunc);
        counts.fold(None, |sum, v| Some(sum.unwrap_or(0.0) + v))
    }

    /// A share of 0 to 1, averaged over series. What is above 1 counts as 1; what is no share is left out.
    pub fn ratio(self) -> Option<f64> {
        let shares = self.distinct().filter(|v| v.is_finite() && *v >= 0.0).map(|v| v.min(1.0));
        let (sum, n) = shares.fold((0.0, 0u32), |(sum, n), v| (sum + v, n + 1));
        (n > 0).then(|| sum / f64::from(n))
    }

    /// The value of the newest sample that is a number; of equally new ones the first.
    pub fn number(self) -> Option<f64> {
        self.0
            .into_iter()
            .filter(|s| s.value.is_finite())
            .reduce(|a, b| if b.at > a.at { b } else { a })
            .map(|s| s.value)
    }

    /// The labels of the newest sample; of equally new ones the first.
    pub fn newest(self) -> Option<Labels<'p>> {
        self.0.into_iter().reduce(|a, b| if b.at > a.at { b } else { a }).map(|s| s.labels)
    }

    /// The labels of the sample with the largest value; of equal ones the first.
    pub fn largest(self) -> Option<Labels<'p>> {
        let numbers = self.0.into_iter().filter(|s| s.value.is_finite());
        numbers.reduce(|a, b| if b.value > a.value { b } else { a }).map(|s| s.labels)
    }

    /// The newest value of each series; of equally new ones the first.
    fn distinct(self) -> impl Iterator<Item = f64> {
        let identity = |s: Sample<'p>| (if self.0.len() > 1 { identity(s.labels) } else { 0 }, s);
        let mut samples: Vec<(u64, Sample<'p>)> = self.0.iter().copied().map(identity).collect();
        // The sort is stable, so text order decides between equal timestamps.
        samples.sort_by(|(a, x), (b, y)| a.cmp(b).then(y.at.total_cmp(&x.at)));
        samples.dedup_by_key(|(identity, _)| *identity);
        samples.into_iter().map(|(_, s)| s.value)
    }
}

/// What tells one series from another: its labels in whatever order. Ranks within one model, such as tensor-parallel
/// ones, all show the number of the whole, so they do not count; the data-parallel rank does.
fn identity(labels: Labels<'_>) -> u64 {
    let ranked = labels.value("tp_rank").is_some() || labels.value("pp_rank").is_some();
    let hashes = FixedState::with_seed(0);
    labels
        .into_iter()
        .filter(|l| !(ranked && l.name.ends_with(b"_rank") && l.name != b"dp_rank"))
        .fold(0, |sum, l| sum.wrapping_add(hashes.hash_one((l.name, l.value.raw()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(lines: &'static [&'static str]) -> Series<'static> {
        Series(lines.iter().map(|l| Sample::read(l.as_bytes()).expect("a sample")).collect())
    }

    #[test]
    fn counts_are_summed_over_series() {
        for (lines, expected) in [
            (&[][..], None),
            (&[" 7.9"], Some(7.0)),
            (&["{e=\"0\"} 2.6", "{e=\"1\"} 9.6"], Some(11.0)),
            (&["{e=\"0\"} 2", "{e=\"1\"} NaN", "{e=\"2\"} -1"], Some(2.0)),
            (&[" NaN"], None),
            (&[" +Inf"], None),
            (&[" -5"], None),
            (&[" 1e16"], None),
            (&[" -0"], Some(0.0)),
        ] {
            assert_eq!(series(lines).count(), expected, "{lines:?}");
        }
    }

    #[test]
    fn shares_are_averaged_over_series() {
        for (lines, expected) in [
            (&["{e=\"0\"} 0.25", "{e=\"1\"} 0.75"][..], Some(0.5)),
            (&["{e=\"0\"} 0.5", "{e=\"1\"} 1.5"], Some(0.75)),
            (&["{e=\"0\"} 0.5", "{e=\"1\"} NaN"], Some(0.5)),
            (&[" -0.1"], None),
            (&[" Inf"], None),
        ] {
            assert_eq!(series(lines).ratio(), expected, "{lines:?}");
        }
    }

    #[test]
    fn the_newest_sample_of_one_series_counts() {
        for (lines, expected) in [
            (&[" 5 3000", " 6 1000"][..], 5.0),
            (&[" 6 1000", " 5 3000"], 5.0),
            (&[" 5", " 6"], 5.0),
            (&["{a=\"1\",b=\"2\"} 5", "{b=\"2\",a=\"1\"} 6"], 5.0),
            (&["{a=\"1\",b=\"2\"} 5", "{a=\"2\",b=\"1\"} 6"], 11.0),
        ] {
            assert_eq!(series(lines).count(), Some(expected), "{lines:?}");
        }
    }

    #[test]
    fn ranks_within_one_model_are_one_series() {
        for (lines, expected) in [
            (&["{tp_rank=\"0\"} 3", "{tp_rank=\"1\"} 3"][..], 3.0),
            (&["{tp_rank=\"0\",moe_ep_rank=\"0\"} 3", "{tp_rank=\"1\",moe_ep_rank=\"1\"} 3"], 3.0),
            (&["{pp_rank=\"0\",dp_rank=\"0\"} 3", "{pp_rank=\"0\",dp_rank=\"1\"} 4"], 7.0),
            (
                &[
                    "{dp_rank=\"0\",tp_rank=\"0\"} 3",
                    "{dp_rank=\"0\",tp_rank=\"1\"} 3",
                    "{dp_rank=\"1\",tp_rank=\"2\"} 1",
                ],
                4.0,
            ),
            (&["{moe_ep_rank=\"0\"} 3", "{moe_ep_rank=\"1\"} 3"], 6.0),
        ] {
            assert_eq!(series(lines).count(), Some(expected), "{lines:?}");
        }
    }

    #[test]
    fn one_of_several_is_chosen_by_age_or_by_value() {
        assert_eq!(series(&["{a=\"x\"} 1", "{a=\"y\"} 2 5", "{a=\"z\"} NaN 9"]).number(), Some(2.0));
        let name = |labels: Option<Labels<'_>>| labels.and_then(|l| l.value("a")).map(|v| v.text().into_owned());
        assert_eq!(name(series(&["{a=\"x\"} 1", "{a=\"y\"} 1", "{a=\"z\"} NaN"]).largest()).as_deref(), Some("x"));
        assert_eq!(name(series(&["{a=\"x\"} 1", "{a=\"y\"} 1 2"]).newest()).as_deref(), Some("y"));
    }
}
