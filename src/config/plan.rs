//! A checked config: what the generation is built from. Nothing in it is text any more.

use epp_plugin_api::{Instance, Node, Place, PluginType};

/// A config that can run. Places in lists are indices into `plugins`.
#[derive(Debug)]
pub struct Plan {
    /// Every instance: in the order of the file, then the ones that defaults and data dependencies added.
    pub plugins: Vec<Planned>,
    pub profiles: Vec<ProfilePlan>,
    pub handler: usize,
    /// Every data producer, each after those whose data it reads; otherwise in the order of `plugins`.
    pub producers: Vec<usize>,
    pub parsers: Vec<usize>,
    pub saturation: usize,
    /// `None`: the config names no discovery.
    pub discovery: Option<usize>,
    pub sources: Vec<SourcePlan>,
    /// Deprecations and warnings, in the order of the file.
    pub notices: Vec<Notice>,
    /// The config as it runs, with every default and every plugin that was added, as YAML.
    pub effective: String,
}

/// One instance and where it came from.
#[derive(Debug)]
pub struct Planned {
    pub name: String,
    pub kind: &'static PluginType,
    pub parameters: Option<Node>,
    pub origin: Origin,
    pub instance: Instance,
}

/// Why an instance is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file lists it, here.
    File(Place),
    /// A default that every config gets unless it says otherwise.
    Default,
    /// Another instance reads data that nobody else produces.
    Created,
}

/// A scheduling profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfilePlan {
    pub name: String,
    pub filters: Vec<usize>,
    /// With their weights.
    pub scorers: Vec<(usize, f64)>,
    pub picker: usize,
}

/// A data source and what reads its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlan {
    pub source: usize,
    pub extractors: Vec<usize>,
}

/// Something that a person should know though the config runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A warning; otherwise a mere deprecation.
    pub warning: bool,
    pub place: Option<Place>,
    pub message: String,
}
