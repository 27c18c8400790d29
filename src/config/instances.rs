//! Builds the plugin instances of a config and finds them by name.

mod building;

use std::collections::HashMap;

use epp_plugin_api::{Instance, Kind, Node, Place, PluginType, Value};

use super::Environment;
use super::entry::PluginEntry;
use super::mistake::Sink;
use super::near::hint;
use super::plan::{Keys, Notice, Origin, Planned};
use super::section::Reference;

/// Every instance so far, the ones that could not be built included, so that what refers to them is no further mistake.
pub struct Instances<'a> {
    env: &'a Environment<'a>,
    sink: &'a Sink,
    slots: Vec<Slot>,
    names: HashMap<String, usize>,
}

/// An instance, or what is known of one that could not be built.
pub struct Slot {
    pub name: String,
    /// `None`: its type is unknown.
    pub kind: Option<&'static PluginType>,
    pub origin: Origin,
    /// Where it stands in the file; empty for what was added.
    pub path: String,
    parameters: Option<Node>,
    state: State,
}

/// How far an instance has come.
enum State {
    /// It has not been built yet.
    Pending,
    Built(Box<Built>),
    /// It cannot be built, and why has been reported.
    Failed,
}

struct Built {
    instance: Instance,
    keys: Keys,
    /// It is an instance of the plan before, with its state.
    taken_over: bool,
}

impl Slot {
    /// Whether it plays the role; one of unknown type plays any.
    pub fn plays(&self, role: Kind) -> bool {
        self.kind.is_none_or(|kind| kind.kinds.contains(&role))
    }

    /// Whether it certainly plays the role.
    pub fn is(&self, role: Kind) -> bool {
        self.kind.is_some_and(|kind| kind.kinds.contains(&role))
    }

    /// Where it stands in the file.
    pub fn place(&self) -> Option<Place> {
        match self.origin {
            Origin::File(place) => Some(place),
            Origin::Default | Origin::Created { .. } => None,
        }
    }

    fn built(&self) -> Option<&Built> {
        match &self.state {
            State::Built(built) => Some(built),
            State::Pending | State::Failed => None,
        }
    }

    /// The built instance, unless it could not be built.
    pub fn instance(&self) -> Option<&Instance> {
        self.built().map(|built| &built.instance)
    }

    /// The data that it deals in; `None` if it could not be built.
    pub fn keys(&self) -> Option<&Keys> {
        self.built().map(|built| &built.keys)
    }

    /// Its name and, if that differs, its type, for messages.
    pub fn label(&self) -> String {
        match self.kind {
            Some(kind) if kind.name != self.name => format!("plugin {:?} of type {}", self.name, kind.name),
            _ => format!("plugin {:?}", self.name),
        }
    }

    /// Its roles with an article, for messages.
    fn roles(&self) -> String {
        let kinds = self.kind.map_or(&[][..], |kind| kind.kinds);
        let names: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        with_article(&names.join(" and "))
    }
}

impl<'a> Instances<'a> {
    /// Builds the instances that the file lists.
    pub fn build(entries: &[PluginEntry], env: &'a Environment<'a>, sink: &'a Sink, notices: &mut Vec<Notice>) -> Self {
        let mut instances = Self { env, sink, slots: Vec::new(), names: HashMap::new() };
        for entry in entries {
            let kind = entry.kind.as_ref().and_then(|written| {
                let kind = instances.plugin_type(&written.value);
                if kind.is_none() {
                    let types = env.registry.iter().map(|kind| kind.name);
                    let message = format!("unknown plugin type {:?}{}", written.value, hint(&written.value, types));
                    sink.add(written.place, &written.path, message);
                }
                kind
            });
            if let Some(new) = kind.and_then(|kind| kind.replaced_by) {
                let message =
                    format!("{}.type: plugin type {} is deprecated, use {new}", entry.path, entry.name_of_type());
                notices.push(Notice { warning: false, place: Some(entry.place), message });
            }
            if instances.names.contains_key(&entry.name) && !entry.name.is_empty() {
                sink.add(
                    entry.place,
                    format!("{}.name", entry.path),
                    format!("duplicate plugin name {:?}", entry.name),
                );
            }
            let slot = Slot {
                name: entry.name.clone(),
                kind,
                origin: Origin::File(entry.place),
                path: entry.path.clone(),
                parameters: entry.parameters.clone(),
                state: State::Pending,
            };
            instances.push(slot);
        }
        instances.build_pending();
        instances
    }

    /// The type of this name.
    pub fn plugin_type(&self, name: &str) -> Option<&'static PluginType> {
        self.env.registry.iter().copied().find(|t| t.name == name)
    }

    /// Adds an instance that the file does not list; named after its type and without parameters.
    pub fn add(&mut self, kind: &'static PluginType, origin: Origin) -> usize {
        let at = self.push(Slot {
            name: kind.name.to_owned(),
            kind: Some(kind),
            origin,
            path: String::new(),
            parameters: None,
            state: State::Pending,
        });
        self.build_pending();
        at
    }

    fn push(&mut self, slot: Slot) -> usize {
        let at = self.slots.len();
        self.names.entry(slot.name.clone()).or_insert(at);
        self.slots.push(slot);
        at
    }

    /// Every instance.
    pub fn all(&self) -> &[Slot] {
        &self.slots
    }

    /// The instance at this place.
    pub fn at(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    /// The place of the instance of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// The first instance that certainly plays the role.
    pub fn first(&self, role: Kind) -> Option<usize> {
        self.slots.iter().position(|slot| slot.is(role))
    }

    /// Whether the type of an instance is unknown, so that what seems to be missing may be there.
    pub fn any_unknown(&self) -> bool {
        self.slots.iter().any(|slot| slot.kind.is_none())
    }

    /// The place of the instance that is referred to, whatever its role; reports if there is none.
    pub fn named(&self, reference: &Reference) -> Option<usize> {
        let found = self.find(&reference.value);
        if found.is_none() {
            let hint = hint(&reference.value, self.slots.iter().map(|slot| slot.name.as_str()));
            let message = format!("no plugin is named {:?}{hint}", reference.value);
            self.sink.add(reference.place, &reference.path, message);
        }
        found
    }

    /// The place of the instance that is referred to; reports if there is none, or none of the first of these roles.
    pub fn of_role(&self, reference: &Reference, roles: &[Kind]) -> Option<usize> {
        let at = self.named(reference)?;
        let slot = self.at(at);
        if roles.iter().any(|role| slot.plays(*role)) {
            return Some(at);
        }
        let expected = roles.first().map_or_else(String::new, |role| with_article(&role.to_string()));
        let message = format!("expected {expected}, found plugin {:?}, which is {}", slot.name, slot.roles());
        self.sink.add(reference.place, &reference.path, message);
        None
    }

    /// Hands over the instances; `None` if one could not be built.
    pub fn into_planned(self) -> Option<Vec<Planned>> {
        let planned = |slot: Slot| {
            let Slot { name, kind, origin, parameters, state, .. } = slot;
            let State::Built(built) = state else { return None };
            let Built { instance, keys, taken_over } = *built;
            Some(Planned { name, kind: kind?, parameters, origin, instance, keys, taken_over })
        };
        self.slots.into_iter().map(planned).collect()
    }
}

impl PluginEntry {
    fn name_of_type(&self) -> &str {
        self.kind.as_ref().map_or("", |kind| &kind.value)
    }
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {noun}")
}

/// Whether two nodes say the same, wherever they stand.
pub fn same(a: &Node, b: &Node) -> bool {
    match (&a.value, &b.value) {
        (Value::List(a), Value::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ka, _, a), (kb, _, b))| ka == kb && same(a, b))
        }
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b).is_eq(),
        (a, b) => a == b,
    }
}
