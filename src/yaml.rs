//! YAML text to nodes that know where they stand: what configs and endpoints files are read with.
//!
//! Only the first document counts; JSON is read, too. Anchors, aliases and merge keys work, within bounds.

mod scalar;
pub mod write;

use std::collections::HashMap;
use std::fmt;

use epp_plugin_api::{Node, Place, Value};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

/// Lists and maps may stand this deep in each other.
const MAX_DEPTH: usize = 100;

/// Bytes that aliases may add, so that a short text cannot grow without bound.
const MAX_ALIASED: usize = 16 << 20;

/// What a map's repeated key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// A mistake.
    Refuse,
    /// The value for good.
    LastWins,
}

/// A mistake in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub place: Place,
    pub message: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for YamlError {}

/// Reads the first document of the text. An empty one is null.
///
/// # Errors
/// With every mistake found, in the order of the text; after one of syntax nothing more is looked for.
pub fn parse(text: &str, duplicates: Duplicates) -> Result<Node, Vec<YamlError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(error) = control_character(text) {
        return Err(vec![error]);
    }
    let mut builder = Builder::new(duplicates);
    let mut events = Parser::new_from_str(text);
    while let Some(event) = events.next_event() {
        let step = match event {
            Ok((Event::DocumentEnd | Event::StreamEnd, _)) => break,
            Ok((event, span)) => builder.take(event, place(span.start)),
            Err(e) => Err(YamlError { place: place(*e.marker()), message: e.info().to_owned() }),
        };
        if let Err(fatal) = step {
            builder.errors.push(fatal);
            break;
        }
    }
    if builder.errors.is_empty() {
        Ok(builder.root.unwrap_or(Node { place: Place { line: 1, column: 1 }, value: Value::Null }))
    } else {
        builder.errors.sort_by_key(|e| e.place);
        Err(builder.errors)
    }
}

fn place(mark: Marker) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: number(mark.line()), column: number(mark.col().saturating_add(1)) }
}

fn control_character(text: &str) -> Option<YamlError> {
    let forbidden = |c: &char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let (at, c) = text.char_indices().find(|(_, c)| forbidden(c))?;
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    Some(YamlError {
        place: place(Marker::new(at, line, column)),
        message: format!("control character U+{:04X} is not allowed", u32::from(c)),
    })
}

/// A list or map that is not closed yet.
enum Open {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<(String, Place, Node)>,
    /// Key to its place in `entries`.
    index: HashMap<String, usize>,
    /// What merge keys bring, in the order of the text.
    merged: Vec<(String, Place, Node)>,
    key: Option<Key>,
}

enum Key {
    Plain(String, Place),
    Merge,
    /// A key that is no scalar; its value is read and dropped.
    Refused,
}

struct Frame {
    place: Place,
    anchor: usize,
    open: Open,
}

struct Builder {
    duplicates: Duplicates,
    frames: Vec<Frame>,
    anchors: HashMap<usize, Node>,
    aliased: usize,
    root: Option<Node>,
    errors: Vec<YamlError>,
}

impl Builder {
    fn new(duplicates: Duplicates) -> Self {
        Self { duplicates, frames: Vec::new(), anchors: HashMap::new(), aliased: 0, root: None, errors: Vec::new() }
    }

    fn take(&mut self, event: Event<'_>, place: Place) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), place),
            Event::SequenceStart(anchor, _) => self.open(Open::List(Vec::new()), anchor, place)?,
            Event::MappingStart(anchor, _) => self.open(Open::Map(OpenMap::default()), anchor, place)?,
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => self.alias(anchor, place)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, tag: Option<&Tag>, place: Place) {
        let plain = style == ScalarStyle::Plain;
        if let Some(map) = self.awaits_key() {
            // A key keeps its text: `on: 5` names "on".
            map.key = Some(if plain && text == "<<" { Key::Merge } else { Key::Plain(text.to_owned(), place) });
            if anchor != 0 {
                self.anchors.insert(anchor, Node { place, value: Value::String(text.to_owned()) });
            }
            return;
        }
        let value = match tag {
            Some(tag) => match tagged(text, tag) {
                Ok(value) => value,
                Err(message) => {
                    self.errors.push(YamlError { place, message });
                    Value::Null
                }
            },
            None if plain => scalar::resolve(text),
            None => Value::String(text.to_owned()),
        };
        self.finish(Node { place, value }, anchor);
    }

    fn open(&mut self, open: Open, anchor: usize, place: Place) -> Result<(), YamlError> {
        if self.frames.len() >= MAX_DEPTH {
            let message = format!("lists and maps stand more than {MAX_DEPTH} deep in each other");
            return Err(YamlError { place, message });
        }
        self.frames.push(Frame { place, anchor, open });
        Ok(())
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else { return };
        let value = match frame.open {
            Open::List(items) => Value::List(items),
            Open::Map(mut map) => {
                for entry in map.merged {
                    if !map.index.contains_key(&entry.0) {
                        map.index.insert(entry.0.clone(), map.entries.len());
                        map.entries.push(entry);
                    }
                }
                Value::Map(map.entries)
            }
        };
        self.finish(Node { place: frame.place, value }, frame.anchor);
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<(), YamlError> {
        let fatal = |message: String| YamlError { place, message };
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(fatal("the alias stands inside the value that it names".to_owned()));
        };
        let size = size(node);
        self.aliased = self.aliased.saturating_add(size.bytes);
        if self.aliased > MAX_ALIASED {
            return Err(fatal(format!("aliases add more than {} MiB to the text", MAX_ALIASED >> 20)));
        }
        if self.frames.len() + size.depth > MAX_DEPTH {
            return Err(fatal(format!("lists and maps stand more than {MAX_DEPTH} deep in each other")));
        }
        let value = node.value.clone();
        match (self.awaits_key(), value) {
            (Some(map), Value::String(text)) => map.key = Some(Key::Plain(text, place)),
            (_, value) => self.finish(Node { place, value }, 0),
        }
        Ok(())
    }

    /// The innermost map, when what comes next is its key.
    fn awaits_key(&mut self) -> Option<&mut OpenMap> {
        match self.frames.last_mut() {
            Some(Frame { open: Open::Map(map), .. }) if map.key.is_none() => Some(map),
            _ => None,
        }
    }

    /// Puts a whole value where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        match self.frames.last_mut().map(|frame| &mut frame.open) {
            None => self.root = Some(node),
            Some(Open::List(items)) => items.push(node),
            Some(Open::Map(map)) => {
                if let Err(error) = map.take(node, self.duplicates) {
                    self.errors.push(error);
                }
            }
        }
    }
}

impl OpenMap {
    fn take(&mut self, node: Node, duplicates: Duplicates) -> Result<(), YamlError> {
        let (key, place) = match self.key.take() {
            Some(Key::Plain(key, place)) => (key, place),
            Some(Key::Merge) => return self.merge(node),
            Some(Key::Refused) => return Ok(()),
            None => {
                self.key = Some(Key::Refused);
                let message = format!("expected a key, found {}", node.kind());
                return Err(YamlError { place: node.place, message });
            }
        };
        let Some(&at) = self.index.get(&key) else {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, place, node));
            return Ok(());
        };
        let (_, first, _) = &self.entries[at];
        let message = format!("duplicate key {key:?}, first at line {}", first.line);
        match duplicates {
            Duplicates::Refuse => Err(YamlError { place, message }),
            Duplicates::LastWins => {
                self.entries[at] = (key, place, node);
                Ok(())
            }
        }
    }

    fn merge(&mut self, node: Node) -> Result<(), YamlError> {
        match node.value {
            Value::Map(entries) => self.merged.extend(entries),
            Value::List(maps) if maps.iter().all(|m| matches!(m.value, Value::Map(_))) => {
                for map in maps {
                    self.merge(map)?;
                }
            }
            _ => {
                let message = format!("expected a map or a list of maps to merge, found {}", node.kind());
                return Err(YamlError { place: node.place, message });
            }
        }
        Ok(())
    }
}

struct Size {
    bytes: usize,
    depth: usize,
}

/// A node's own size and that of all below it. Never deep: what is stored has passed the depth limit.
fn size(node: &Node) -> Size {
    let own = size_of::<Node>();
    match &node.value {
        Value::String(text) => Size { bytes: own + text.len(), depth: 0 },
        Value::List(items) => above(own, items.iter().map(size)),
        Value::Map(entries) => above(
            own,
            entries.iter().map(|(key, _, value)| {
                let value = size(value);
                Size { bytes: value.bytes + key.len() + size_of::<(String, Place)>(), ..value }
            }),
        ),
        _ => Size { bytes: own, depth: 0 },
    }
}

fn above(own: usize, parts: impl Iterator<Item = Size>) -> Size {
    parts.fold(Size { bytes: own, depth: 1 }, |sum, part| Size {
        bytes: sum.bytes.saturating_add(part.bytes),
        depth: sum.depth.max(part.depth + 1),
    })
}

/// Reads a scalar with a tag. Tags that are not YAML's own say nothing here.
fn tagged(text: &str, tag: &Tag) -> Result<Value, String> {
    if !tag.is_yaml_core_schema() {
        return Ok(Value::String(text.to_owned()));
    }
    let value = scalar::resolve(text);
    match (tag.suffix.as_str(), value) {
        ("null", Value::Null) => Ok(Value::Null),
        ("bool", Value::Bool(v)) => Ok(Value::Bool(v)),
        ("int", Value::Int(v)) => Ok(Value::Int(v)),
        ("float", Value::Float(v)) => Ok(Value::Float(v)),
        ("float", Value::Int(v)) => Ok(Value::Float(v as f64)),
        (kind @ ("null" | "bool" | "int" | "float"), _) => Err(format!("expected a value of !!{kind}")),
        _ => Ok(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
mod tests;
