//! Checks the scheduling profiles and the handler that says which of them run.

use epp_plugin_api::Kind;

use super::document::Document;
use super::entry::ProfileEntry;
use super::instances::Instances;
use super::mistake::Sink;
use super::plan::ProfilePlan;

/// Finds what every profile lists. A plugin is taken in every role that it plays; one that plays none has no effect.
pub fn resolve(document: &Document, instances: &Instances<'_>, sink: &Sink) -> Vec<ProfilePlan> {
    document.profiles.iter().filter_map(|profile| resolve_one(profile, instances, sink)).collect()
}

fn resolve_one(profile: &ProfileEntry, instances: &Instances<'_>, sink: &Sink) -> Option<ProfilePlan> {
    let mut plan = ProfilePlan { name: profile.name.clone(), filters: Vec::new(), scorers: Vec::new(), picker: 0 };
    let mut picker = None;
    let mut whole = true;
    for item in &profile.plugins {
        let Some(at) = instances.named(&item.plugin) else {
            whole = false;
            continue;
        };
        let slot = instances.at(at);
        if slot.is(Kind::Filter) {
            plan.filters.push(at);
        }
        if slot.is(Kind::Scorer) {
            plan.scorers.push((at, item.weight.unwrap_or(1.0)));
        }
        if slot.is(Kind::Picker)
            && let Some(first) = picker.replace(at)
        {
            let message = format!(
                "profile {:?} has two pickers, {:?} and {:?}, expected one",
                profile.name,
                instances.at(first).name,
                slot.name
            );
            sink.add(item.plugin.place.or(slot.place()), &item.plugin.path, message);
        }
    }
    match picker {
        Some(at) => plan.picker = at,
        None if whole && !instances.any_unknown() => {
            sink.add(profile.place, &profile.path, format!("profile {:?} has no picker, expected one", profile.name));
        }
        None => {}
    }
    picker.filter(|_| whole).map(|_| plan)
}

/// Finds the one profile handler and asks it whether it can work with the profiles.
pub fn handler(document: &Document, instances: &Instances<'_>, sink: &Sink) -> Option<usize> {
    let mut handlers = (0..instances.all().len()).filter(|at| instances.at(*at).is(Kind::ProfileHandler));
    // Names given twice are a mistake of their own.
    let mut names: Vec<&str> = Vec::new();
    for profile in &document.profiles {
        if !names.contains(&profile.name.as_str()) {
            names.push(&profile.name);
        }
    }
    let Some(handler) = handlers.next() else {
        if !instances.any_unknown() && names.len() > 1 {
            let message = format!("expected a profile handler for {} profiles, found none", names.len());
            sink.add(document.profiles_place, "schedulingProfiles", message);
        }
        return None;
    };
    for other in handlers {
        let (first, other) = (instances.at(handler), instances.at(other));
        let message = format!("expected one profile handler, found {:?} and {:?}", first.name, other.name);
        sink.add(other.place(), &other.path, message);
    }
    let built = instances.at(handler).instance().and_then(|instance| instance.handler.as_ref());
    if let Some(Err(message)) = built.map(|built| built.check(&names)) {
        let message = format!("profile handler {:?}: {message}", instances.at(handler).name);
        sink.add(document.profiles_place, "schedulingProfiles", message);
    }
    Some(handler)
}
