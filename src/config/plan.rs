//! A checked config: what the generation is built from. Nothing in it is text any more.

use std::collections::BTreeMap;
use std::time::Duration;

use epp_plugin_api::recorded::RecordedValue;
use epp_plugin_api::{DataKey, Instance, KvSubscription, Node, Place, PluginType};

use super::mistake::Mistake;

/// The source of endpoints that come and go. Its extractors hear what each endpoint publishes of its KV cache.
pub const NOTIFICATION_SOURCE: &str = "endpoint-notification-source";

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
    pub gates: Gates,
    /// `None`: the gate is off, and requests do not wait.
    pub flow: Option<FlowPlan>,
    /// The priority of each objective that a request may name.
    pub objectives: BTreeMap<String, i32>,
    /// `None`: the config names no discovery.
    pub discovery: Option<usize>,
    pub sources: Vec<SourcePlan>,
    /// Deprecations and warnings, in the order of the file.
    pub notices: Vec<Notice>,
    /// The values that producers fill and that recordings of decisions keep.
    pub recorded: Vec<RecordedValue>,
    /// The config as it runs, with every default and every plugin that was added, as YAML.
    pub effective: String,
}

impl Plan {
    /// Whether the instance at this place is told of endpoints that come and go: it is an extractor of the source of these.
    pub fn hears_of_endpoints(&self, at: usize) -> bool {
        let tells = |source: &SourcePlan| self.plugins[source.source].kind.name == NOTIFICATION_SOURCE;
        self.sources.iter().any(|source| tells(source) && source.extractors.contains(&at))
    }

    /// The headers of requests that filters and scorers look at, each once.
    pub fn headers(&self) -> Vec<String> {
        let mut headers: Vec<String> = self.plugins.iter().flat_map(|p| p.keys.headers.iter().cloned()).collect();
        headers.sort_unstable();
        headers.dedup();
        headers
    }

    /// What plugins want to hear of KV caches, with their names. They connect to endpoints only if the config tells them of
    /// endpoints.
    pub fn kv_subscriptions(&self) -> impl Iterator<Item = (&str, KvSubscription)> {
        self.plugins.iter().enumerate().filter_map(|(at, plugin)| {
            let mut subscription = plugin.instance.kv.clone()?;
            subscription.connect = subscription.connect.filter(|_| self.hears_of_endpoints(at));
            let any = subscription.connect.is_some() || subscription.bind.is_some();
            any.then_some((plugin.name.as_str(), subscription))
        })
    }

    /// The place of the discovery plugin.
    ///
    /// # Errors
    /// If the config names none: nothing but that says where the engines are.
    pub fn required_discovery(&self) -> Result<usize, Mistake> {
        self.discovery.ok_or_else(|| Mistake {
            place: None,
            path: "dataLayer.discovery.pluginRef".to_owned(),
            message: "expected a discovery plugin such as file-discovery, found none".to_owned(),
        })
    }
}

/// One instance and where it came from.
#[derive(Debug)]
pub struct Planned {
    pub name: String,
    pub kind: &'static PluginType,
    pub parameters: Option<Node>,
    pub origin: Origin,
    pub instance: Instance,
    pub keys: Keys,
    /// The instance is that of the plan before.
    pub taken_over: bool,
}

/// The data that an instance said it deals in when it was built.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    pub reads: Vec<DataKey>,
    /// Read if somebody writes it.
    pub optional_reads: Vec<DataKey>,
    pub writes: Vec<DataKey>,
    /// The names of the other instances that it was built with.
    pub refers_to: Vec<String>,
    /// The headers of requests that its filter or scorer looks at.
    pub headers: Vec<String>,
}

/// Why an instance is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file lists it, here.
    File(Place),
    /// A default that every config gets unless it says otherwise.
    Default,
    /// The instance at the place `reader` reads data that nobody else produces.
    Created { reader: usize },
}

/// What the feature gates say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    pub flow_control: bool,
    /// Has no effect here.
    pub ha_populate_non_leader_datastore: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self { flow_control: false, ha_populate_non_leader_datastore: true }
    }
}

/// How requests wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowPlan {
    /// Over all bands; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Over all bands; `None`: no limit.
    pub max_requests: Option<u64>,
    /// How long a request may wait; zero: for ever.
    pub ttl: Duration,
    /// How long a request may wait while there is no endpoint; zero: for ever.
    pub no_endpoint_ttl: Duration,
    /// The model for bands that are not listed; its priority means nothing.
    pub default_band: BandPlan,
    /// The same for priorities below zero.
    pub negative_band: BandPlan,
    pub bands: Vec<BandPlan>,
    /// `None`: the default policy, which the registry does not have.
    pub usage_limit: Option<usize>,
    pub eviction: bool,
}

/// A band of one priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandPlan {
    pub priority: i32,
    pub max_bytes: u64,
    pub max_requests: u64,
    /// `None`: the default policy, which the registry does not have.
    pub fairness: Option<usize>,
    /// `None`: the default policy, which the registry does not have.
    pub ordering: Option<usize>,
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
