//! The entries of a config's lists, as written.

use epp_plugin_api::{Node, Place};

use super::section::{Found, Reference};

/// An entry of `plugins`.
#[derive(Debug)]
pub struct PluginEntry {
    pub place: Place,
    pub path: String,
    /// The type if none is given.
    pub name: String,
    /// `None`: missing, which is reported.
    pub kind: Option<Found<String>>,
    pub parameters: Option<Node>,
}

/// An entry of `schedulingProfiles`.
#[derive(Debug)]
pub struct ProfileEntry {
    pub place: Option<Place>,
    pub path: String,
    pub name: String,
    pub plugins: Vec<ProfileItem>,
}

/// What a profile lists.
#[derive(Debug)]
pub struct ProfileItem {
    pub plugin: Reference,
    pub weight: Option<f64>,
}

/// An entry of `dataLayer.sources`.
#[derive(Debug)]
pub struct SourceEntry {
    pub plugin: Reference,
    pub extractors: Vec<Reference>,
}
