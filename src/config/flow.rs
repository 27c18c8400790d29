//! The section `flowControl`: how requests wait. Its settings count only behind the feature gate of the same name.

use std::collections::HashMap;
use std::time::Duration;

use epp_plugin_api::{Kind, Place};

use super::instances::Instances;
use super::mistake::Sink;
use super::plan::{BandPlan, FlowPlan};
use super::section::{Found, Reference, Section};

/// The flow-control policies that are always there.
pub const ORDERING: &str = "fcfs-ordering-policy";
/// See [`ORDERING`].
pub const FAIRNESS: &str = "global-strict-fairness-policy";
/// See [`ORDERING`].
pub const USAGE_LIMIT: &str = "static-usage-limit-policy";

const BAND_KEYS: &[&str] = &["priority", "maxBytes", "maxRequests", "fairnessPolicyRef", "orderingPolicyRef"];
const KEYS: &[&str] = &[
    "maxBytes",
    "maxRequests",
    "defaultRequestTTL",
    "noEndpointRequestTTL",
    "defaultPriorityBand",
    "defaultNegativePriorityBand",
    "priorityBands",
    "usageLimitPolicyPluginRef",
    "saturationDetector",
    "enableEviction",
];
const SETTINGS: &[&str] = &[
    "maxBytes",
    "maxRequests",
    "defaultRequestTTL",
    "noEndpointRequestTTL",
    "defaultPriorityBand",
    "defaultNegativePriorityBand",
    "priorityBands",
    "usageLimitPolicyPluginRef",
];

/// The section as written.
#[derive(Debug, Default)]
pub struct FlowSection {
    pub max_bytes: Option<Found<i64>>,
    pub max_requests: Option<Found<i64>>,
    pub default_ttl: Option<Duration>,
    pub no_endpoint_ttl: Option<Duration>,
    pub default_band: Option<Band>,
    pub negative_band: Option<Band>,
    pub bands: Vec<Band>,
    pub usage_limit: Option<Reference>,
    pub saturation: Option<Reference>,
    /// Whether `saturationDetector` is there at all.
    pub has_saturation: bool,
    pub eviction: bool,
    /// Whether there is anything that the gate would switch on.
    pub has_settings: bool,
    /// Where the section stands.
    pub place: Option<Place>,
}

/// A band of one priority, or the model of one.
#[derive(Debug)]
pub struct Band {
    /// For messages, as `priority band 5`.
    pub label: String,
    pub priority: i32,
    pub max_bytes: Option<Found<i64>>,
    pub max_requests: Option<Found<i64>>,
    pub fairness: Option<Reference>,
    pub ordering: Option<Reference>,
    path: String,
    place: Place,
}

/// Reads the section of the document.
pub fn read(document: &Section<'_>) -> FlowSection {
    let Some(flow) = document.section("flowControl", KEYS) else { return FlowSection::default() };
    let band = |key: &str, label: &str| flow.section(key, BAND_KEYS).map(|s| read_band(&s, Some(label)));
    FlowSection {
        max_bytes: flow.quantity("maxBytes"),
        max_requests: flow.quantity("maxRequests"),
        default_ttl: flow.duration("defaultRequestTTL").map(|f| f.value),
        no_endpoint_ttl: flow.duration("noEndpointRequestTTL").map(|f| f.value),
        default_band: band("defaultPriorityBand", "default priority band"),
        negative_band: band("defaultNegativePriorityBand", "default negative priority band"),
        bands: flow.sections("priorityBands", BAND_KEYS).iter().map(|s| read_band(s, None)).collect(),
        usage_limit: flow.reference("usageLimitPolicyPluginRef"),
        saturation: flow.section("saturationDetector", &["pluginRef"]).and_then(|s| s.reference("pluginRef")),
        has_saturation: flow.find("saturationDetector").is_some(),
        eviction: flow.boolean("enableEviction").unwrap_or(false),
        has_settings: SETTINGS.iter().any(|key| flow.find(key).is_some()),
        place: document.place_of("flowControl"),
    }
}

fn read_band(section: &Section<'_>, label: Option<&str>) -> Band {
    let priority = section.integer("priority").map_or(0, |f| f.value);
    Band {
        label: label.map_or_else(|| format!("priority band {priority}"), str::to_owned),
        priority,
        max_bytes: section.quantity("maxBytes"),
        max_requests: section.quantity("maxRequests"),
        fairness: section.reference("fairnessPolicyRef"),
        ordering: section.reference("orderingPolicyRef"),
        path: section.path.clone(),
        place: section.place,
    }
}

impl FlowSection {
    /// Every band and model of one.
    pub fn all_bands(&self) -> impl Iterator<Item = &Band> {
        self.default_band.iter().chain(&self.negative_band).chain(&self.bands)
    }

    /// Reports what counts as a mistake only when the gate is on, other than references.
    pub fn check(&self, sink: &Sink) {
        let limits = |label: &str, limits: [&Option<Found<i64>>; 2]| {
            for limit in limits.into_iter().flatten().filter(|l| l.value < 0) {
                let message = format!("{label}: expected a limit that is not negative, found {}", limit.value);
                sink.add(limit.place, &limit.path, message);
            }
        };
        limits("all bands together", [&self.max_bytes, &self.max_requests]);
        for band in self.all_bands() {
            limits(&band.label, [&band.max_bytes, &band.max_requests]);
        }
        let mut seen = HashMap::new();
        for band in &self.bands {
            if let Some(first) = seen.insert(band.priority, &band.path) {
                let message = format!("duplicate priority level {}, also that of {first}", band.priority);
                sink.add(band.place, format!("{}.priority", band.path), message);
            }
        }
    }

    /// The section with its references resolved and its defaults filled in; `None` if a reference leads nowhere.
    pub fn resolve(&self, instances: &Instances<'_>) -> Option<FlowPlan> {
        let usage_limit = policy(self.usage_limit.as_ref(), USAGE_LIMIT, Kind::UsageLimitPolicy, instances);
        let default_band =
            self.default_band.as_ref().map_or_else(|| Some(default_band(instances)), |band| band.resolve(instances));
        let negative_band = self.negative_band.as_ref().map(|band| band.resolve(instances));
        let bands: Vec<Option<BandPlan>> = self.bands.iter().map(|band| band.resolve(instances)).collect();
        let default_band = default_band?;
        let ttl = self.default_ttl.unwrap_or(DEFAULT_TTL);
        Some(FlowPlan {
            max_bytes: limit(self.max_bytes.as_ref()),
            max_requests: limit(self.max_requests.as_ref()),
            ttl,
            no_endpoint_ttl: self.no_endpoint_ttl.unwrap_or(ttl),
            negative_band: negative_band.unwrap_or_else(|| Some(default_band.clone()))?,
            default_band,
            bands: bands.into_iter().collect::<Option<_>>()?,
            usage_limit: usage_limit?,
            eviction: self.eviction,
        })
    }
}

const DEFAULT_TTL: Duration = Duration::from_secs(60);
const DEFAULT_BAND_BYTES: u64 = 1_000_000_000;
const DEFAULT_BAND_REQUESTS: u64 = 5000;

impl Band {
    fn resolve(&self, instances: &Instances<'_>) -> Option<BandPlan> {
        let fairness = policy(self.fairness.as_ref(), FAIRNESS, Kind::FairnessPolicy, instances);
        let ordering = policy(self.ordering.as_ref(), ORDERING, Kind::OrderingPolicy, instances);
        Some(BandPlan {
            priority: self.priority,
            max_bytes: limit(self.max_bytes.as_ref()).unwrap_or(DEFAULT_BAND_BYTES),
            max_requests: limit(self.max_requests.as_ref()).unwrap_or(DEFAULT_BAND_REQUESTS),
            fairness: fairness?,
            ordering: ordering?,
        })
    }
}

fn default_band(instances: &Instances<'_>) -> BandPlan {
    BandPlan {
        priority: 0,
        max_bytes: DEFAULT_BAND_BYTES,
        max_requests: DEFAULT_BAND_REQUESTS,
        fairness: instances.find(FAIRNESS),
        ordering: instances.find(ORDERING),
    }
}

/// Zero says nothing.
fn limit(written: Option<&Found<i64>>) -> Option<u64> {
    u64::try_from(written?.value).ok().filter(|limit| *limit > 0)
}

/// The outer `None`: the reference leads nowhere, which is reported.
fn policy(
    reference: Option<&Reference>,
    default: &str,
    role: Kind,
    instances: &Instances<'_>,
) -> Option<Option<usize>> {
    match reference {
        Some(reference) => instances.of_role(reference, &[role]).map(Some),
        None => Some(instances.find(default)),
    }
}
