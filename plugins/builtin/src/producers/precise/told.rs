//! What one endpoint has told of its cache so far, beside the blocks themselves.

use std::collections::HashMap;

use epp_prefix_index::Owner;

use super::mismatch::Mismatches;

/// More cache groups than any engine has; what is told of others is left out.
const MOST_GROUPS: usize = 1024;
/// So many models are listed.
const MOST_MODELS: usize = 16;
/// Longer names are cut in lists.
const LONGEST_NAME: usize = 128;

/// One endpoint's own account.
#[derive(Debug, Default)]
pub struct Told {
    places: Vec<Known>,
    /// The owners of `places`.
    owners: Vec<Owner>,
    groups: HashMap<u32, GroupKind>,
    models: Vec<String>,
    pub counts: Counts,
    /// Why the last discarded message was discarded.
    pub last_discarded: Option<String>,
    pub mismatches: Mismatches,
}

/// A place under the name that the engine gives it.
#[derive(Clone, Debug)]
pub struct Known {
    /// In lower case.
    pub tier: String,
    pub group: Option<u32>,
    pub owner: Owner,
}

/// What came of an endpoint, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub messages: u64,
    pub discarded: u64,
    pub stored: u64,
    pub removed: u64,
    pub cleared: u64,
    /// Times that what was known of it was given up.
    pub lost: u64,
    pub unknown_parents: u64,
    pub with_extras: u64,
}

impl Told {
    /// The place of this tier, in lower case or not, and group.
    pub fn place(&self, tier: &str, group: Option<u32>) -> Option<Owner> {
        let tier = tier_or_gpu(tier);
        let known = |place: &&Known| place.group == group && same_tier(&place.tier, tier);
        self.places.iter().find(known).map(|place| place.owner)
    }

    /// Notes a place.
    pub fn add_place(&mut self, tier: &str, group: Option<u32>, owner: Owner) {
        self.places.push(Known { tier: tier_or_gpu(tier).to_lowercase(), group, owner });
        self.owners.push(owner);
    }

    /// Every place.
    pub fn places(&self) -> &[Known] {
        &self.places
    }

    /// The owners of all places.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Remembers what kind of cache a group is, if it is said, and gives what is known of it.
    pub fn group(&mut self, group: u32, kind: &str) -> Option<GroupKind> {
        if kind.is_empty() {
            return self.groups.get(&group).copied();
        }
        let kind = GroupKind::of(kind);
        if self.groups.len() < MOST_GROUPS || self.groups.contains_key(&group) {
            self.groups.insert(group, kind);
        }
        Some(kind)
    }

    /// Notes that it told of this model.
    pub fn add_model(&mut self, model: &str) {
        let name = &model[..model.floor_char_boundary(LONGEST_NAME)];
        if self.models.len() < MOST_MODELS && !self.models.iter().any(|known| known == name) {
            self.models.push(name.to_owned());
        }
    }

    /// The models that it told of, the first ones first.
    pub fn models(&self) -> &[String] {
        &self.models
    }
}

/// A tier as it counts where none is named.
pub fn tier_or_gpu(tier: &str) -> &str {
    if tier.is_empty() { "gpu" } else { tier }
}

/// Whether a tier in any case is this one in lower case.
pub fn same_tier(lower: &str, tier: &str) -> bool {
    lower.eq_ignore_ascii_case(tier) || (!tier.is_ascii() && lower == tier.to_lowercase())
}

/// What kind of cache a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKind(&'static str);

/// The kinds that engines have; the first ones keep whole prefixes.
const KINDS: [&str; 9] = [
    "full_attention",
    "mla_attention",
    "sink_full_attention",
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "encoder_only_attention",
    "cross_attention",
];
const KEEP_PREFIXES: usize = 3;

impl GroupKind {
    /// What a kind is called that is not said.
    pub const UNKNOWN: &'static str = "unknown";

    fn of(kind: &str) -> Self {
        Self(KINDS.iter().find(|known| **known == kind).copied().unwrap_or("other"))
    }

    /// Whether a block of such a group is of use only together with all before it, and stays with them.
    pub fn keeps_prefixes(self) -> bool {
        KINDS[..KEEP_PREFIXES].contains(&self.0)
    }

    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_counts_in_any_case_and_none_is_gpu() {
        let mut told = Told::default();
        let owner = Owner { slot: 1, serial: 2 };
        told.add_place("", None, owner);
        for tier in ["", "gpu", "GPU", "Gpu"] {
            assert_eq!(told.place(tier, None), Some(owner), "{tier}");
        }
        assert_eq!((told.place("cpu", None), told.place("", Some(0))), (None, None));
        told.add_place("ÄRGER", Some(3), owner);
        assert_eq!(told.place("ärger", Some(3)), Some(owner));
        assert_eq!(told.places()[1].tier, "ärger");
    }

    #[test]
    fn the_kind_of_a_group_is_remembered() {
        let mut told = Told::default();
        assert_eq!(told.group(1, ""), None);
        for (kind, keeps) in [
            ("full_attention", true),
            ("mla_attention", true),
            ("sink_full_attention", true),
            ("sliding_window", false),
            ("mamba", false),
            ("unknown", false),
        ] {
            assert_eq!(told.group(1, kind).map(GroupKind::keeps_prefixes), Some(keeps), "{kind}");
            assert_eq!(told.group(1, "").map(GroupKind::keeps_prefixes), Some(keeps), "{kind}");
        }
        for group in 0..5000 {
            told.group(group, "mamba");
        }
        assert_eq!(told.groups.len(), MOST_GROUPS);
    }

    #[test]
    fn lists_of_names_are_short() {
        let mut told = Told::default();
        (0..100).for_each(|n| told.add_model(&format!("m{n}")));
        assert_eq!(told.models().len(), MOST_MODELS);
        let mut told = Told::default();
        told.add_model(&"ä".repeat(1000));
        assert!(told.models()[0].len() <= LONGEST_NAME);
    }
}
