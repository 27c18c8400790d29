//! The config as it runs, with everything that was added, as a config that is read as the same plan.

use std::fmt::Write as _;

use epp_plugin_api::Value;

use super::document::{API_VERSION, Document, KIND};
use super::duration::write_duration;
use super::plan::{BandPlan, FlowPlan, Origin, Plan, Planned};
use crate::yaml::write;

/// Writes the plan. A comment stands behind everything that was added.
pub fn write(plan: &Plan, document: &Document) -> String {
    let mut out = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n");
    let gates = plan.gates;
    let _ = writeln!(
        out,
        "featureGates:\n- flowControl={}\n- haPopulateNonLeaderDatastore={}",
        gates.flow_control, gates.ha_populate_non_leader_datastore
    );
    write_plugins(&mut out, plan);
    write_profiles(&mut out, plan, document);
    write_data(&mut out, plan, document);
    let detector = document.saturation.as_ref().is_none_or(|reference| reference.place.is_none());
    let _ = writeln!(
        out,
        "flowControl:\n  saturationDetector:\n    pluginRef: {}{}",
        name(plan, plan.saturation),
        default_if(detector)
    );
    if let Some(flow) = &plan.flow {
        write_flow(&mut out, plan, flow);
    }
    out.push_str("requestHandler:\n  parsers:\n");
    for (at, reference) in plan.parsers.iter().zip(&document.parsers) {
        let _ = writeln!(out, "  - pluginRef: {}{}", name(plan, *at), default_if(reference.place.is_none()));
    }
    if !plan.objectives.is_empty() {
        out.push_str("objectives:\n");
        for (objective, priority) in &plan.objectives {
            let _ = writeln!(out, "  {}: {priority}", write::string(objective));
        }
    }
    out
}

fn name(plan: &Plan, at: usize) -> String {
    write::string(&plan.plugins[at].name)
}

fn default_if(added: bool) -> &'static str {
    if added { " # default" } else { "" }
}

fn write_plugins(out: &mut String, plan: &Plan) {
    out.push_str("plugins:\n");
    for Planned { name, kind, parameters, origin, .. } in &plan.plugins {
        let comment = match origin {
            Origin::File(_) => String::new(),
            Origin::Default => " # default".to_owned(),
            Origin::Created { reader } => format!(" # created: read by {}", plan.plugins[*reader].name.escape_debug()),
        };
        let _ = writeln!(out, "- type: {}{comment}", write::string(kind.name));
        if name != kind.name {
            let _ = writeln!(out, "  name: {}", write::string(name));
        }
        if let Some(parameters) = parameters.as_ref().filter(|p| p.value != Value::Null) {
            out.push_str("  parameters:");
            write::after_key(out, &parameters.value, 4);
        }
    }
}

fn write_profiles(out: &mut String, plan: &Plan, document: &Document) {
    out.push_str("schedulingProfiles:\n");
    for profile in &document.profiles {
        let added = default_if(document.profiles_place.is_none());
        let _ = writeln!(out, "- name: {}{added}\n  plugins:", write::string(&profile.name));
        for item in &profile.plugins {
            let plugin = &item.plugin;
            let _ =
                writeln!(out, "  - pluginRef: {}{}", write::string(&plugin.value), default_if(plugin.place.is_none()));
            let scores =
                plan.plugins.iter().find(|p| p.name == plugin.value).is_some_and(|p| p.instance.scorer.is_some());
            if scores {
                let weight = item.weight.unwrap_or(1.0);
                let _ = writeln!(out, "    weight: {weight}{}", default_if(item.weight.is_none()));
            }
        }
    }
}

fn write_data(out: &mut String, plan: &Plan, document: &Document) {
    let _ = writeln!(out, "dataLayer:\n  injectDefaults: {}\n  sources:", document.inject_defaults);
    for (source, written) in plan.sources.iter().zip(&document.sources) {
        let added = default_if(written.plugin.place.is_none());
        let _ = writeln!(out, "  - pluginRef: {}{added}", name(plan, source.source));
        if !source.extractors.is_empty() {
            out.push_str("    extractors:\n");
        }
        for extractor in &source.extractors {
            let _ = writeln!(out, "    - pluginRef: {}{added}", name(plan, *extractor));
        }
    }
    if let Some(discovery) = plan.discovery {
        let _ = writeln!(out, "  discovery:\n    pluginRef: {}", name(plan, discovery));
    }
}

fn write_flow(out: &mut String, plan: &Plan, flow: &FlowPlan) {
    for (key, limit) in [("maxBytes", flow.max_bytes), ("maxRequests", flow.max_requests)] {
        if let Some(limit) = limit {
            let _ = writeln!(out, "  {key}: {limit}");
        }
    }
    for (key, time) in [("defaultRequestTTL", flow.ttl), ("noEndpointRequestTTL", flow.no_endpoint_ttl)] {
        let _ = writeln!(out, "  {key}: {}", write_duration(time));
    }
    let band = |out: &mut String, band: &BandPlan, indent: &str| {
        let _ = writeln!(out, "{indent}maxBytes: {}\n{indent}maxRequests: {}", band.max_bytes, band.max_requests);
        for (key, policy) in [("fairnessPolicyRef", band.fairness), ("orderingPolicyRef", band.ordering)] {
            if let Some(policy) = policy {
                let _ = writeln!(out, "{indent}{key}: {}", name(plan, policy));
            }
        }
    };
    out.push_str("  defaultPriorityBand:\n");
    band(out, &flow.default_band, "    ");
    out.push_str("  defaultNegativePriorityBand:\n");
    band(out, &flow.negative_band, "    ");
    if !flow.bands.is_empty() {
        out.push_str("  priorityBands:\n");
    }
    for one in &flow.bands {
        let _ = writeln!(out, "  - priority: {}", one.priority);
        band(out, one, "    ");
    }
    if let Some(policy) = flow.usage_limit {
        let _ = writeln!(out, "  usageLimitPolicyPluginRef: {}", name(plan, policy));
    }
    let _ = writeln!(out, "  enableEviction: {}", flow.eviction);
}
