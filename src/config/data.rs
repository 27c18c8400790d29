//! Matches readers of data with producers: makes the missing ones and finds the order in which they run.

use std::collections::HashSet;

use epp_plugin_api::{DataKey, Kind};

use super::instances::Instances;
use super::mistake::Sink;
use super::plan::{Notice, Origin};

/// Makes the default producer of everything that is read and that nobody writes, and of what those read in turn.
pub fn create_missing(instances: &mut Instances<'_>, sink: &Sink, notices: &mut Vec<Notice>) {
    // What could not be built may be what writes the data that seems to be missing.
    let whole = instances.all().iter().all(|slot| slot.keys().is_some());
    let mut reader = 0;
    while reader < instances.all().len() {
        let reads = instances.at(reader).keys().map_or_else(Vec::new, |keys| keys.reads.clone());
        for key in reads {
            if is_written(&key, instances) {
                continue;
            }
            if let Err(why) = create(&key, reader, instances)
                && whole
            {
                let slot = instances.at(reader);
                let message = format!("{why}missing data key {key}, consumed by {}", slot.label());
                sink.add(slot.place(), &slot.path, message);
            }
        }
        reader += 1;
    }
    // What was added by itself does without optional data as a matter of course.
    for slot in instances.all().iter().filter(|slot| slot.place().is_some()) {
        let keys = slot.keys().map_or(&[][..], |keys| &keys.optional_reads);
        for key in keys.iter().filter(|key| !is_written(key, instances)) {
            let message = format!("{}: optional data key {key} has no producer", slot.label());
            notices.push(Notice { warning: true, place: slot.place(), message });
        }
    }
}

fn matches(a: &DataKey, b: &DataKey) -> bool {
    a.data == b.data && a.producer == b.producer
}

fn is_written(key: &DataKey, instances: &Instances<'_>) -> bool {
    let mut written = instances.all().iter().filter_map(|slot| slot.keys()).flat_map(|keys| &keys.writes);
    written.any(|written| matches(written, key))
}

/// Makes the default producer of the key; the error says why not, as the beginning of a message.
fn create(key: &DataKey, reader: usize, instances: &mut Instances<'_>) -> Result<(), String> {
    if let Some(taken) = instances.find(&key.producer) {
        return Err(format!("{} does not produce it: ", instances.at(taken).label()));
    }
    let default = key.default_producer.filter(|default| *default == key.producer);
    let kind = default.and_then(|name| instances.plugin_type(name));
    let kind = kind.ok_or("no default producer found for ")?;
    let at = instances.add(kind, Origin::Created { reader });
    let keys = instances.at(at).keys();
    if keys.is_some_and(|keys| !keys.writes.iter().any(|written| matches(written, key))) {
        return Err(format!("{} was made but does not produce it: ", instances.at(at).label()));
    }
    Ok(())
}

/// The producers, each after those whose data it reads, otherwise in the order of the config.
pub fn order(instances: &Instances<'_>, sink: &Sink) -> Vec<usize> {
    let mut waiting: Vec<usize> =
        (0..instances.all().len()).filter(|at| instances.at(*at).is(Kind::Producer)).collect();
    let mut order = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let written: HashSet<(&str, &str)> = waiting.iter().flat_map(|at| writes(*at, instances)).collect();
        let ready = |at: &usize| {
            let own: HashSet<(&str, &str)> = writes(*at, instances).collect();
            let keys = instances.at(*at).keys();
            let mut reads = keys.into_iter().flat_map(|keys| keys.reads.iter().chain(&keys.optional_reads));
            reads.all(|key| {
                let key = (key.data, key.producer.as_str());
                own.contains(&key) || !written.contains(&key)
            })
        };
        match waiting.iter().position(ready) {
            Some(next) => order.push(waiting.remove(next)),
            None => {
                let names: Vec<String> = waiting.iter().map(|at| format!("{:?}", instances.at(*at).name)).collect();
                let message = format!("data producers read each other's data in a cycle: {}", names.join(", "));
                let first = instances.at(waiting[0]);
                sink.add(first.place(), &first.path, message);
                break;
            }
        }
    }
    order
}

fn writes<'a>(at: usize, instances: &'a Instances<'_>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let keys = instances.at(at).keys();
    keys.into_iter().flat_map(|keys| keys.writes.iter().map(|key| (key.data, key.producer.as_str())))
}
