//! Reads one map of the outer document: strict about keys and types, and never stops at the first mistake.

use std::time::Duration;

use epp_plugin_api::{Node, Place, Value};

use super::duration::parse_duration;
use super::mistake::Sink;
use super::quantity::parse_quantity;

/// A map of the document, with its path for messages. Null counts as an empty map, and a null value as absent.
pub struct Section<'a> {
    entries: &'a [(String, Place, Node)],
    pub place: Place,
    pub path: String,
    sink: &'a Sink,
}

/// A value, where it stands, and its path.
#[derive(Clone, Debug)]
pub struct Found<T> {
    pub value: T,
    /// `None`: a default, which stands nowhere.
    pub place: Option<Place>,
    pub path: String,
}

/// A reference to a plugin by its name.
pub type Reference = Found<String>;

impl<'a> Section<'a> {
    /// Opens a map and reports every key that is not known; `None` if it is no map, which is reported, too.
    pub fn open(node: &'a Node, path: String, known: &[&str], sink: &'a Sink) -> Option<Self> {
        let entries = match &node.value {
            Value::Null => &[],
            Value::Map(entries) => entries.as_slice(),
            _ => {
                sink.add(node.place, path, format!("expected a map, found {}", node.kind()));
                return None;
            }
        };
        let section = Self { entries, place: node.place, path, sink };
        for (key, place, _) in entries.iter().filter(|(key, ..)| !known.contains(&key.as_str())) {
            let message = match known.iter().find(|k| k.eq_ignore_ascii_case(key)) {
                Some(meant) => format!("unknown key {key:?}, expected {meant} in exactly this case"),
                None => format!("unknown key {key:?}, expected one of {}", known.join(", ")),
            };
            sink.add(*place, section.step(key), message);
        }
        Some(section)
    }

    /// The path of a key.
    pub fn step(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The value of a key unless it is absent or null.
    pub fn find(&self, key: &str) -> Option<Found<&'a Node>> {
        let (_, _, node) = self.entries.iter().find(|(k, ..)| k == key)?;
        let found = Found { value: node, place: Some(node.place), path: self.step(key) };
        (!node.is_null()).then_some(found)
    }

    /// Where a key stands, whatever its value.
    pub fn place_of(&self, key: &str) -> Option<Place> {
        self.entries.iter().find(|(k, ..)| k == key).map(|(_, place, _)| *place)
    }

    fn read<T>(&self, key: &str, expected: &str, take: impl Fn(&Value) -> Option<T>) -> Option<Found<T>> {
        let found = self.find(key)?;
        match take(&found.value.value) {
            Some(value) => Some(Found { value, place: found.place, path: found.path }),
            None => {
                let message = format!("expected {expected}, found {}", found.value.kind());
                self.sink.add(found.place, found.path, message);
                None
            }
        }
    }

    /// A string.
    pub fn string(&self, key: &str) -> Option<Found<String>> {
        self.read(key, "a string", |v| match v {
            Value::String(v) => Some(v.clone()),
            _ => None,
        })
    }

    /// A boolean.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.read(key, "true or false", |v| match v {
            Value::Bool(v) => Some(*v),
            _ => None,
        })
        .map(|found| found.value)
    }

    /// A whole number that fits.
    pub fn integer(&self, key: &str) -> Option<Found<i32>> {
        self.read(key, "an integer of at most 32 bits", integer)
    }

    /// A number that is neither infinite nor none at all.
    pub fn number(&self, key: &str) -> Option<f64> {
        let found = self.read(key, "a number", |v| match v {
            Value::Int(v) => Some(*v as f64),
            Value::Float(v) => Some(*v),
            _ => None,
        })?;
        if found.value.is_finite() {
            return Some(found.value);
        }
        self.sink.add(found.place, found.path, format!("expected a finite number, found {}", found.value));
        None
    }

    /// A duration.
    pub fn duration(&self, key: &str) -> Option<Found<Duration>> {
        let found = self.read(key, "a duration such as 1m30s", |v| match v {
            Value::String(v) => Some(v.clone()),
            _ => None,
        })?;
        match parse_duration(&found.value) {
            Ok(value) => Some(Found { value, place: found.place, path: found.path }),
            Err(e) => {
                self.sink.add(found.place, found.path, format!("{e}, found {:?}", found.value));
                None
            }
        }
    }

    /// A quantity, of either sign.
    pub fn quantity(&self, key: &str) -> Option<Found<i64>> {
        let found = self.read(key, "a quantity such as 10Gi", |v| match v {
            Value::String(v) => Some(v.clone()),
            Value::Int(v) => Some(v.to_string()),
            Value::Float(v) => Some(v.to_string()),
            _ => None,
        })?;
        match parse_quantity(&found.value) {
            Ok(value) => Some(Found { value, place: found.place, path: found.path }),
            Err(e) => {
                self.sink.add(found.place, found.path, format!("{e}, found {:?}", found.value));
                None
            }
        }
    }

    /// The items of a list, each with its path; none if it is absent.
    pub fn list(&self, key: &str) -> Vec<Found<&'a Node>> {
        let Some(found) = self.find(key) else { return Vec::new() };
        let Value::List(items) = &found.value.value else {
            let message = format!("expected a list, found {}", found.value.kind());
            self.sink.add(found.place, found.path, message);
            return Vec::new();
        };
        let item = |(i, node): (usize, &'a Node)| Found {
            value: node,
            place: Some(node.place),
            path: format!("{}[{i}]", found.path),
        };
        items.iter().enumerate().map(item).collect()
    }

    /// The sections of a list of maps.
    pub fn sections(&self, key: &str, known: &[&str]) -> Vec<Section<'a>> {
        let items = self.list(key).into_iter();
        items.filter_map(|item| Section::open(item.value, item.path, known, self.sink)).collect()
    }

    /// A section, unless it is absent.
    pub fn section(&self, key: &str, known: &[&str]) -> Option<Section<'a>> {
        let found = self.find(key)?;
        Section::open(found.value, found.path, known, self.sink)
    }

    /// A plugin's name; `None` if it is absent or blank.
    pub fn reference(&self, key: &str) -> Option<Reference> {
        self.string(key).filter(|found| !found.value.trim().is_empty())
    }

    /// A plugin's name that must be there.
    pub fn required_reference(&self) -> Option<Reference> {
        let reference = self.reference("pluginRef");
        let blank =
            self.find("pluginRef").is_none_or(|f| matches!(&f.value.value, Value::String(s) if s.trim().is_empty()));
        if reference.is_none() && blank {
            self.sink.add(self.place, self.step("pluginRef"), "expected the name of a plugin, found nothing");
        }
        reference
    }
}

/// A whole number that fits into 32 bits.
pub fn integer(value: &Value) -> Option<i32> {
    match value {
        Value::Int(v) => i32::try_from(*v).ok(),
        Value::Float(v) if v.fract() == 0.0 && v.abs() < f64::from(i32::MAX) => Some(*v as i32),
        _ => None,
    }
}
