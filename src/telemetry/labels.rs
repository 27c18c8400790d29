//! Bounded sets of label values: what clients name may not grow the page for ever.

use std::collections::HashSet;
use std::sync::Arc;

use epp_plugin_api::{MetricFamilies, MetricHub, MetricRegistry};
use parking_lot::RwLock;

/// What stands for every value that came after the set was full, and for those that no label should hold.
pub const OTHER: &str = "other";

/// How many values a set admits.
const MOST_VALUES: usize = 1000;

/// The longest value that is admitted, in bytes.
const LONGEST_VALUE: usize = 512;

/// A set of label values that admits the first thousand and gives [`OTHER`] for the rest. Values are never forgotten:
/// one that was admitted keeps its series.
#[derive(Debug, Default)]
pub struct BoundedValues(RwLock<HashSet<Arc<str>, foldhash::fast::RandomState>>);

impl BoundedValues {
    /// The value as a label: itself if it is empty, known, or there is room for it; else [`OTHER`], and so for values that
    /// are too long or hold control characters.
    pub fn admit(&self, value: &str) -> Arc<str> {
        if value.is_empty() {
            return value.into();
        }
        {
            let known = self.0.read();
            if let Some(value) = known.get(value) {
                return value.clone();
            }
            if known.len() >= MOST_VALUES {
                return OTHER.into();
            }
        }
        if value == OTHER || value.len() > LONGEST_VALUE || value.contains(char::is_control) {
            return OTHER.into();
        }
        let mut known = self.0.write();
        if let Some(value) = known.get(value) {
            return value.clone();
        }
        if known.len() >= MOST_VALUES {
            return OTHER.into();
        }
        let value: Arc<str> = value.into();
        known.insert(value.clone());
        value
    }
}

/// The label values that clients choose, one set for the whole process: ask the hub for it.
#[derive(Debug, Default)]
pub struct LabelValues {
    /// Models as asked for and models as sent on.
    pub models: BoundedValues,
    pub fairness_ids: BoundedValues,
}

impl LabelValues {
    /// The one set that all families of the hub share.
    pub fn of(hub: &MetricHub) -> Arc<Self> {
        hub.families()
    }
}

impl MetricFamilies for LabelValues {
    /// Puts nothing on the page: it only bounds what others put there.
    fn register(&self, _registry: &mut MetricRegistry) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_a_thousand_values_and_calls_the_rest_other() {
        let values = BoundedValues::default();
        for i in 0..1000 {
            assert_eq!(&*values.admit(&format!("m{i}")), format!("m{i}"));
        }
        assert_eq!(&*values.admit("m1000"), "other");
        assert_eq!(&*values.admit("m0"), "m0");
        assert_eq!(&*values.admit("m999"), "m999");
    }

    #[test]
    fn an_empty_value_passes_and_takes_no_room() {
        let values = BoundedValues::default();
        for i in 0..999 {
            values.admit(&format!("m{i}"));
        }
        for _ in 0..2 {
            assert_eq!(&*values.admit(""), "");
            assert_eq!(&*values.admit("other"), "other");
        }
        assert_eq!(&*values.admit("last"), "last");
    }

    #[test]
    fn a_value_that_no_label_should_hold_is_other() {
        let values = BoundedValues::default();
        assert_eq!(&*values.admit("a\rb"), "other");
        assert_eq!(&*values.admit(&"m".repeat(513)), "other");
        assert_eq!(&*values.admit(&"m".repeat(512)), "m".repeat(512));
    }

    #[test]
    fn a_hub_has_one_set() {
        let hub = MetricHub::default();
        for i in 0..1000 {
            LabelValues::of(&hub).models.admit(&format!("m{i}"));
        }
        assert_eq!(&*LabelValues::of(&hub).models.admit("more"), "other");
        assert_eq!(&*LabelValues::of(&hub).fairness_ids.admit("more"), "more");
    }
}
