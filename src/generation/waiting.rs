//! How requests wait, out of a checked plan: every band that there is, with its policies.

use std::sync::Arc;
use std::time::Duration;

use epp_plugin_api::Instance;

use crate::config::plan::{BandPlan, FlowPlan, Plan};
use crate::flow::settings::{BandSettings, Settings};

/// The settings of the plan; `None`: requests do not wait.
///
/// # Panics
/// If the plan refers to a plugin that does not play the role.
pub fn settings(plan: &Plan) -> Option<Settings> {
    let flow = plan.flow.as_ref()?;
    let instance = |at: Option<usize>| -> &Instance {
        &plan.plugins[at.expect("the default policies are in the registry")].instance
    };
    let usage_limit = instance(flow.usage_limit).usage_limit.clone();
    let saturation = plan.plugins[plan.saturation].instance.saturation.clone();
    let band = |band: &BandPlan, priority: i32| BandSettings {
        priority,
        max_bytes: band.max_bytes,
        max_requests: band.max_requests,
        fairness: role(instance(band.fairness).fairness.as_ref(), "fairness policy"),
        ordering: role(instance(band.ordering).ordering.as_ref(), "ordering policy"),
    };
    let (default_band, negative_band) = (band(&flow.default_band, 0), band(&flow.negative_band, -1));
    let mut bands: Vec<BandSettings> = flow.bands.iter().map(|own| band(own, own.priority)).collect();
    for priority in provisioned(plan, flow) {
        let model = if priority < 0 { &negative_band } else { &default_band };
        bands.push(BandSettings { priority, ..model.clone() });
    }
    bands.sort_by_key(|band| std::cmp::Reverse(band.priority));
    Some(Settings {
        max_bytes: flow.max_bytes,
        max_requests: flow.max_requests,
        ttl: some_time(flow.ttl),
        no_endpoint_ttl: some_time(flow.no_endpoint_ttl),
        bands,
        default_band,
        negative_band,
        usage_limit: role(usage_limit.as_ref(), "usage limit policy"),
        saturation: role(saturation.as_ref(), "saturation detector"),
        eviction: flow.eviction,
    })
}

/// The priorities that a request can have but that have no band of their own in the config.
fn provisioned(plan: &Plan, flow: &FlowPlan) -> Vec<i32> {
    let mut priorities: Vec<i32> = plan.objectives.values().copied().chain([0]).collect();
    priorities.sort_unstable();
    priorities.dedup();
    priorities.retain(|priority| flow.bands.iter().all(|band| band.priority != *priority));
    priorities
}

/// Zero stands for ever.
fn some_time(time: Duration) -> Option<Duration> {
    (!time.is_zero()).then_some(time)
}

fn role<T: ?Sized>(role: Option<&Arc<T>>, what: &str) -> Arc<T> {
    role.unwrap_or_else(|| panic!("the plugin is checked to be a {what}")).clone()
}
