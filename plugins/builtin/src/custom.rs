//! Numbers that engines show under names of their own: which one a plugin means, and where it stands in a snapshot.

use epp_plugin_api::{Candidates, Observed, Snapshot};

/// The producer of a number that names none.
const CORE: &str = "core-metrics-extractor";

/// The key under which a number is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomKey(String);

impl CustomKey {
    /// The number `attribute` of the instance `producer`.
    pub fn of(attribute: &str, producer: &str) -> Self {
        Self(if producer == CORE { attribute.to_owned() } else { format!("{attribute}/{producer}") })
    }

    /// As [`Self::of`], as a config says it: without a producer it is one of the core metrics extractor.
    ///
    /// # Errors
    /// If the attribute is empty, or seems to hold its producer.
    pub fn configured(attribute: &str, producer: Option<&str>) -> Result<Self, String> {
        match (attribute, producer) {
            ("", _) => Err("expected the key of an attribute, found nothing".into()),
            (_, Some(producer)) => Ok(Self::of(attribute, producer)),
            (_, None) => match attribute.rsplit_once('/') {
                None => Ok(Self::of(attribute, CORE)),
                Some((key, producer)) => Err(format!(
                    "expected a key without a slash or the producer beside it, found {attribute:?}; \
                     perhaps key {key:?} of producer {producer:?} is meant"
                )),
            },
        }
    }

    /// The number as it was last seen; `None` if it never was.
    pub fn find(&self, observed: &Observed) -> Option<f64> {
        observed.custom.iter().find(|(key, _)| *key == self.0).map(|(_, value)| *value).filter(|v| !v.is_nan())
    }

    /// Scores each of `among` by its number; who has none scores 0. `score` gets a number and the least and the most of
    /// all. Looks each number up once.
    pub fn score(
        &self,
        snapshot: &Snapshot,
        among: &Candidates,
        scores: &mut [f64],
        score: impl Fn(f64, f64, f64) -> f64,
    ) {
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for idx in among.iter() {
            let value = self.find(snapshot.observed(idx));
            (least, most) = value.map_or((least, most), |v| (v.min(least), v.max(most)));
            scores[idx.row()] = value.unwrap_or(f64::NAN);
        }
        for idx in among.iter() {
            let value = scores[idx.row()];
            scores[idx.row()] = if value.is_nan() { 0.0 } else { score(value, least, most) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_attribute_unless_another_producer_is_meant() {
        for (attribute, producer, expected) in [
            ("heat", None, "heat"),
            ("heat", Some("core-metrics-extractor"), "heat"),
            ("gpu/heat", Some("core-metrics-extractor"), "gpu/heat"),
            ("GPUUtilization", Some("dcgm-extractor"), "GPUUtilization/dcgm-extractor"),
            ("heat", Some(""), "heat/"),
        ] {
            assert_eq!(CustomKey::configured(attribute, producer), Ok(CustomKey(expected.into())));
        }
    }

    #[test]
    fn a_key_with_a_slash_is_taken_apart_at_the_last_one() {
        let why = CustomKey::configured("a/GPUUtilization/dcgm-extractor", None).unwrap_err();
        assert!(why.contains(r#"key "a/GPUUtilization" of producer "dcgm-extractor""#), "{why}");
        assert!(CustomKey::configured("", Some("x")).is_err());
    }

    #[test]
    fn what_is_no_number_is_missing() {
        let observed = Observed { custom: [("a".into(), f64::NAN), ("b".into(), 2.0)].into(), ..Observed::default() };
        let found = ["a", "b", "c"].map(|key| CustomKey::of(key, CORE).find(&observed));
        assert_eq!(found, [None, Some(2.0), None]);
    }
}
