//! Board, discovery: reads the endpoints file. A mistake in an entry costs that entry, one of syntax the whole file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use epp_plugin_api::{EndpointName, Node, Place, Value};

use crate::yaml::{self, Duplicates};

mod host;

/// The namespace of an entry that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Where an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    Address(IpAddr),
    /// To be resolved.
    Name(String),
}

/// One good entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: EndpointName,
    pub host: Host,
    pub port: u16,
    pub labels: BTreeMap<String, String>,
    pub rank: u32,
    pub line: u32,
}

/// One entry that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadEntry {
    /// `None`: the name itself cannot be read.
    pub name: Option<EndpointName>,
    pub line: u32,
    pub reason: String,
}

/// What the file says. Names are there once, in the order of the file; of two entries of one name the later counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointsFile {
    pub entries: Vec<Entry>,
    pub bad: Vec<BadEntry>,
    /// Names that more than one entry has.
    pub repeated: Vec<EndpointName>,
    /// Keys that mean nothing here, each once.
    pub unknown: Vec<String>,
}

/// Why the file as a whole cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    pub place: Option<Place>,
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Reads the content of an endpoints file.
///
/// # Errors
/// If it is no YAML, or no map with a list of endpoints.
pub fn parse(content: &[u8], clusters: bool) -> Result<EndpointsFile, FileError> {
    let text = std::str::from_utf8(content).map_err(|e| FileError {
        place: None,
        message: format!("expected UTF-8 text, found something else at byte {}", e.valid_up_to()),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let top = yaml::parse(text, Duplicates::LastWins).map_err(|errors| {
        let first = errors.into_iter().next();
        FileError {
            place: first.as_ref().map(|e| e.place),
            message: first.map_or_else(|| "no YAML".to_owned(), |e| e.message),
        }
    })?;
    let wrong = |node: &Node, expected: &str| FileError {
        place: Some(node.place),
        message: format!("expected {expected}, found {}", node.kind()),
    };
    let mut file = Reading { clusters, lines: Lines::of(text), found: EndpointsFile::default(), at: HashMap::new() };
    let fields = match &top.value {
        Value::Null => return Ok(file.found),
        Value::Map(_) => file.fields(&top, &["endpoints"]),
        _ => return Err(wrong(&top, "a map with the key endpoints")),
    };
    match fields[0] {
        None => {}
        Some(Node { value: Value::Null, .. }) => {}
        Some(Node { value: Value::List(entries), .. }) => entries.iter().for_each(|entry| file.take(entry)),
        Some(node) => return Err(wrong(node, "a list of endpoints")),
    }
    Ok(file.finish())
}

/// Which entry a name has last had.
#[derive(Clone, Copy)]
enum At {
    Good(usize),
    Bad(usize),
}

struct Reading<'a> {
    /// Host names are passed on.
    clusters: bool,
    lines: Lines<'a>,
    found: EndpointsFile,
    /// With how many entries had the name so far.
    at: HashMap<EndpointName, (At, usize)>,
}

impl<'a> Reading<'a> {
    fn take(&mut self, node: &'a Node) {
        let line = node.place.line;
        let [name, namespace, address, port, labels, rank] = match &node.value {
            Value::Map(_) => {
                self.fields(node, &["name", "namespace", "address", "port", "labels", "rankIndex"]).try_into()
            }
            _ => {
                let reason = format!("expected a map, found {}", node.kind());
                return self.found.bad.push(BadEntry { name: None, line, reason });
            }
        }
        .unwrap_or([None; 6]);
        let name = match self.name(name, namespace) {
            Ok(name) => name,
            Err(reason) => return self.found.bad.push(BadEntry { name: None, line, reason }),
        };
        let place = self.place(address, port, labels);
        let at = match place {
            Ok((host, port, labels)) => {
                let rank = rank.and_then(whole).unwrap_or_default();
                self.found.entries.push(Entry { name: name.clone(), host, port, labels, rank, line });
                At::Good(self.found.entries.len() - 1)
            }
            Err(reason) => {
                self.found.bad.push(BadEntry { name: Some(name.clone()), line, reason });
                At::Bad(self.found.bad.len() - 1)
            }
        };
        let times = self.at.get(&name).map_or(0, |(_, times)| *times) + 1;
        self.at.insert(name.clone(), (at, times));
        if times == 2 {
            self.found.repeated.push(name);
        }
    }

    /// Leaves out the entries whose name a later entry has.
    fn finish(self) -> EndpointsFile {
        let Self { mut found, at, .. } = self;
        if !found.repeated.is_empty() {
            let mut i = 0;
            found.entries.retain(|e| {
                i += 1;
                matches!(at.get(&e.name), Some((At::Good(last), _)) if *last == i - 1)
            });
            i = 0;
            found.bad.retain(|e| {
                i += 1;
                let Some(name) = &e.name else { return true };
                matches!(at.get(name), Some((At::Bad(last), _)) if *last == i - 1)
            });
        }
        found
    }

    fn name(&self, name: Option<&Node>, namespace: Option<&Node>) -> Result<EndpointName, String> {
        let text = |key: &str, node: Option<&Node>| match node.map(|n| (self.lines.scalar(n), n)) {
            None => Ok(String::new()),
            Some((Some(text), _)) => Ok(text.into_owned()),
            Some((None, n)) => Err(format!("{key}: expected a string, found {}", n.kind())),
        };
        let (name, mut namespace) = (text("name", name)?, text("namespace", namespace)?);
        if namespace.is_empty() {
            DEFAULT_NAMESPACE.clone_into(&mut namespace);
        }
        Ok(EndpointName { namespace, name })
    }

    fn place(
        &self,
        address: Option<&Node>,
        port: Option<&Node>,
        labels: Option<&Node>,
    ) -> Result<(Host, u16, BTreeMap<String, String>), String> {
        let host = match address.map(|n| (&n.value, n)) {
            None | Some((Value::Null, _)) => Err("expected an address, found none".to_owned()),
            Some((Value::String(text), _)) => host::parse(text, self.clusters),
            Some((_, n)) => Err(format!("expected a string, found {}", n.kind())),
        };
        let host = host.map_err(|e| format!("address: {e}"))?;
        let number = match port.map(|n| (&n.value, n)) {
            None | Some((Value::Null, _)) => return Err("port: expected a port, found none".to_owned()),
            Some((Value::String(text), _)) => text.parse::<u16>().map_err(|_| format!("{text:?}")),
            Some((Value::Int(number), _)) => u16::try_from(*number).map_err(|_| number.to_string()),
            Some((_, n)) => Err(n.kind().to_owned()),
        };
        let port = match number {
            Ok(0) => Err("0".to_owned()),
            number => number,
        };
        let port = port.map_err(|found| format!("port: expected a whole number from 1 to 65535, found {found}"))?;
        Ok((host, port, self.labels(labels).map_err(|e| format!("labels: {e}"))?))
    }

    fn labels(&self, node: Option<&Node>) -> Result<BTreeMap<String, String>, String> {
        match node.map(|n| (&n.value, n)) {
            None | Some((Value::Null, _)) => Ok(BTreeMap::new()),
            Some((Value::Map(entries), _)) => entries
                .iter()
                .map(|(key, _, value)| match self.lines.scalar(value) {
                    Some(text) => Ok((key.clone(), text.into_owned())),
                    None => Err(format!("{key}: expected a string, found {}", value.kind())),
                })
                .collect(),
            Some((_, n)) => Err(format!("expected a map, found {}", n.kind())),
        }
    }

    /// The values of a map's keys, which match in any case; the last of several counts. Notes every other key.
    fn fields(&mut self, map: &'a Node, keys: &[&str]) -> Vec<Option<&'a Node>> {
        let mut values = vec![None; keys.len()];
        let Value::Map(entries) = &map.value else { return values };
        for (key, _, value) in entries {
            match keys.iter().position(|k| k.eq_ignore_ascii_case(key)) {
                Some(at) => values[at] = Some(value),
                None if self.found.unknown.len() < 20 && !self.found.unknown.contains(key) => {
                    self.found.unknown.push(key.clone());
                }
                None => {}
            }
        }
        values
    }
}

/// A number that is not negative, or text of one.
fn whole(node: &Node) -> Option<u32> {
    match &node.value {
        Value::Int(number) => u32::try_from(*number).ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// The lines of the text, each with whether it is all ASCII, to tell how a number or boolean was written.
struct Lines<'a>(Vec<(&'a str, bool)>);

impl<'a> Lines<'a> {
    /// Characters are not counted further than this; where all are ASCII nothing needs counting.
    const FAR: usize = 10_000;

    fn of(text: &'a str) -> Self {
        Self(text.lines().map(|line| (line, line.is_ascii())).collect())
    }

    /// The text of a scalar, as it is written: `1.10` and `on` stay what they are. Null is empty.
    fn scalar<'n>(&self, node: &'n Node) -> Option<Cow<'n, str>> {
        let plain = match &node.value {
            Value::Null => return Some(Cow::Borrowed("")),
            Value::String(text) => return Some(Cow::Borrowed(text)),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::List(_) | Value::Map(_) => return None,
        };
        Some(Cow::Owned(self.written(node).map_or(plain, str::to_owned)))
    }

    /// `None`: something else stands there, as an alias or a tag.
    fn written(&self, node: &Node) -> Option<&'a str> {
        let (line, is_ascii) = self.0.get(node.place.line.checked_sub(1)? as usize)?;
        let column = node.place.column.checked_sub(1)? as usize;
        let start = match is_ascii {
            true => column,
            false if column < Self::FAR => line.char_indices().nth(column)?.0,
            false => return None,
        };
        let rest = line.get(start..)?;
        let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c)).unwrap_or(rest.len());
        let same = |token: &&str| yaml::parse(token, Duplicates::LastWins).is_ok_and(|n| n.value == node.value);
        Some(&rest[..end]).filter(same)
    }
}

#[cfg(test)]
mod tests;
