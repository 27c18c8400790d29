//! A piece of a config with the places where it stands: what parameters are read from.
//!
//! Reading is strict where a mistake would otherwise pass silently (unknown keys, wrong types) and lenient where upstream
//! configs rely on it: the keys of parameters match in any case, `null` leaves the default, and `10.0` is a whole number.

use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Line and column of a file, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)
    }
}

/// A value of a config and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

/// What a node holds. Map entries are in the order of the file; the key's place is beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    Map(Vec<(String, Place, Node)>),
}

/// A mistake in a config: where, in which part, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// `None`: where the part as a whole stands.
    pub place: Option<Place>,
    /// The part, as `conditions[0].maxValue`; empty for the whole.
    pub path: String,
    pub message: String,
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

impl std::error::Error for NodeError {}

impl Node {
    /// Whether the node is `null`.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The value of a map's key, in exactly this case.
    pub fn find(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, ..)| k == key).map(|(.., v)| v),
            _ => None,
        }
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a number",
            Value::String(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// Reads the node into `T`.
    ///
    /// # Errors
    /// At the first unknown key or value of the wrong type, with its place and path.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, NodeError> {
        T::deserialize(Reader { node: self }).map_err(|e| NodeError {
            place: Some(e.place.unwrap_or(self.place)),
            path: e.path,
            message: e.message,
        })
    }
}

#[derive(Debug)]
struct Error {
    place: Option<Place>,
    path: String,
    message: String,
}

impl Error {
    fn inside(mut self, place: Place, step: &str) -> Self {
        self.place.get_or_insert(place);
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, step);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { place: None, path: String::new(), message: message.to_string() }
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            de::Unexpected::Bool(_) => "a boolean",
            de::Unexpected::Unsigned(_) | de::Unexpected::Signed(_) => "an integer",
            de::Unexpected::Float(_) => "a number",
            de::Unexpected::Str(_) => "a string",
            de::Unexpected::Unit => "null",
            de::Unexpected::Seq => "a list",
            de::Unexpected::Map => "a map",
            _ => "something else",
        };
        let expected = match expected.to_string().as_str() {
            "i8" | "i16" | "i32" | "i64" | "isize" => "an integer".to_owned(),
            "u8" | "u16" | "u32" | "u64" | "usize" => "an integer of 0 or more".to_owned(),
            "f32" | "f64" => "a number".to_owned(),
            other => other.to_owned(),
        };
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        if expected.is_empty() {
            Self::custom(format_args!("unknown key {field:?}; there are none here"))
        } else {
            Self::custom(format_args!("unknown key {field:?}, expected one of {}", expected.join(", ")))
        }
    }
}

struct Reader<'a> {
    node: &'a Node,
}

impl Reader<'_> {
    fn whole(&self) -> Option<i64> {
        match self.node.value {
            Value::Float(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some(v as i64),
            _ => None,
        }
    }

    fn items<'de, V: Visitor<'de>>(items: &[Node], visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Items { items, at: 0 })
    }

    /// `fields`: the known keys of a struct, matched in any case and with nulls left out.
    fn entries<'de, V: Visitor<'de>>(
        entries: &[(String, Place, Node)],
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Entries { entries, fields, value: None })
    }
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.whole() {
                Some(v) => visitor.visit_i64(v),
                None => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(v) => visitor.visit_bool(*v),
            Value::Int(v) => visitor.visit_i64(*v),
            Value::Float(v) => visitor.visit_f64(*v),
            Value::String(v) => visitor.visit_str(v),
            Value::List(items) => Self::items(items, visitor),
            Value::Map(entries) => Self::entries(entries, None, visitor),
        };
        result.map_err(|mut e| {
            e.place.get_or_insert(self.node.place);
            e
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Map(entries) => Self::entries(entries, Some(fields), visitor),
            _ => Err(de::Error::custom(format_args!("expected a map, found {}", self.node.kind()))),
        }
        .map_err(|mut e: Error| {
            e.place.get_or_insert(self.node.place);
            e
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::String(v) => visitor.visit_enum(StringDeserializer::<Error>::new(v.clone())),
            _ => Err(de::Error::custom(format_args!(
                "expected one of {} for {name}, found {}",
                variants.join(", "),
                self.node.kind()
            ))),
        }
        .map_err(|mut e: Error| {
            e.place.get_or_insert(self.node.place);
            e
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16
    deserialize_u32 deserialize_u64 }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map identifier
        ignored_any
    }
}

struct Items<'a> {
    items: &'a [Node],
    at: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.items.get(self.at) else { return Ok(None) };
        let step = format!("[{}]", self.at);
        self.at += 1;
        seed.deserialize(Reader { node }).map(Some).map_err(|e| e.inside(node.place, &step))
    }
}

struct Entries<'a> {
    entries: &'a [(String, Place, Node)],
    fields: Option<&'static [&'static str]>,
    value: Option<&'a (String, Place, Node)>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        loop {
            let Some((entry, rest)) = self.entries.split_first() else { return Ok(None) };
            self.entries = rest;
            let (key, place, node) = entry;
            let known = self.fields.and_then(|fields| fields.iter().find(|f| f.eq_ignore_ascii_case(key)));
            if known.is_some() && node.is_null() {
                continue;
            }
            self.value = Some(entry);
            let key = known.copied().unwrap_or(key);
            let key: StringDeserializer<Error> = key.to_owned().into_deserializer();
            return seed.deserialize(key).map(Some).map_err(|mut e: Error| {
                e.place.get_or_insert(*place);
                e
            });
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let (key, _, node) = self.value.take().expect("a value follows its key");
        seed.deserialize(Reader { node }).map_err(|e| e.inside(node.place, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    struct Config {
        max_value: i64,
        ratio: f64,
        names: Vec<String>,
        inner: Option<Inner>,
    }

    impl Default for Config {
        fn default() -> Self {
            Self { max_value: 7, ratio: 0.5, names: Vec::new(), inner: None }
        }
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
    struct Inner {
        mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Mode {
        Fast,
        Slow,
    }

    fn node(line: u32, value: Value) -> Node {
        Node { place: Place { line, column: 1 }, value }
    }

    fn map(entries: Vec<(&str, Node)>) -> Node {
        node(1, Value::Map(entries.into_iter().map(|(k, v)| (k.to_owned(), v.place, v)).collect()))
    }

    #[test]
    fn keys_match_in_any_case_and_null_leaves_the_default() {
        let got: Config =
            map(vec![("MAXVALUE", node(2, Value::Float(10.0))), ("ratio", node(3, Value::Null))]).decode().unwrap();
        assert_eq!(got, Config { max_value: 10, ..Config::default() });
    }

    #[test]
    fn an_integer_is_a_number() {
        let got: Config = map(vec![("ratio", node(2, Value::Int(2)))]).decode().unwrap();
        assert_eq!(got.ratio, 2.0);
    }

    fn refused(node: Node) -> (u32, String) {
        let e = node.decode::<Config>().unwrap_err();
        (e.place.unwrap().line, e.to_string())
    }

    #[test]
    fn a_mistake_is_told_with_its_place_and_path() {
        assert_eq!(
            refused(map(vec![("maxValue", node(5, Value::Float(1.5)))])),
            (5, "maxValue: expected an integer, found a number".into())
        );
        let (line, text) = refused(map(vec![("wibble", node(6, Value::Int(1)))]));
        assert_eq!((line, text.as_str()), (6, "unknown key \"wibble\", expected one of maxValue, ratio, names, inner"));
        let names = node(7, Value::List(vec![node(8, Value::String("a".into())), node(9, Value::Int(1))]));
        assert_eq!(refused(map(vec![("names", names)])), (9, "names[1]: expected a string, found an integer".into()));
        let inner = map(vec![("mode", node(4, Value::String("medium".into())))]);
        assert_eq!(refused(map(vec![("inner", inner)])).0, 4);
    }
}
