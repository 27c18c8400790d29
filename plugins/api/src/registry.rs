//! How a plugin type is declared and how an instance of it is built from its parameters.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use schemars::{Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use crate::{
    Admitter, Attribute, ColumnKey, DataKey, Decider, DiscoverySpec, Extraction, FairnessPolicy, Filter, Gather, Hooks,
    KvSubscription, MetricHub, Node, NodeError, OrderingPolicy, Parser, Picker, Producer, ProfileHandler, Remote,
    RequestKey, Saturation, Scorer, Screener, Slots, SourceSpec, UsageLimitPolicy,
};

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Filter,
    Scorer,
    Picker,
    ProfileHandler,
    Producer,
    Parser,
    Discovery,
    Source,
    Extractor,
    Screener,
    Admitter,
    Decider,
    /// Is told of a request's life and changes headers or metadata.
    Hooks,
    SaturationDetector,
    FairnessPolicy,
    OrderingPolicy,
    UsageLimitPolicy,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filter => "filter",
            Self::Scorer => "scorer",
            Self::Picker => "picker",
            Self::ProfileHandler => "profile handler",
            Self::Producer => "data producer",
            Self::Parser => "parser",
            Self::Discovery => "endpoint discovery",
            Self::Source => "data source",
            Self::Extractor => "extractor",
            Self::Screener => "screener",
            Self::Admitter => "admitter",
            Self::Decider => "decider",
            Self::Hooks => "request hook",
            Self::SaturationDetector => "saturation detector",
            Self::FairnessPolicy => "fairness policy",
            Self::OrderingPolicy => "ordering policy",
            Self::UsageLimitPolicy => "usage limit policy",
        })
    }
}

/// How settled a plugin type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Needs `--allow-experimental-plugins`.
    Alpha,
    Beta,
}

/// Makes the JSON Schema of a plugin's parameters.
pub type SchemaFn = fn(&mut SchemaGenerator) -> Schema;

/// Everything about one plugin type; a line of the registry table.
pub struct PluginType {
    /// The `type` of the config.
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub stability: Stability,
    /// The type that replaces it, if it is deprecated.
    pub replaced_by: Option<&'static str>,
    /// The type that metrics name; differs from `name` for a few.
    pub reported: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// The shape of its parameters, from the type that they are read into; `None` if it takes none, or any.
    pub schema: Option<SchemaFn>,
    pub build: fn(&mut BuildContext<'_>) -> Result<Instance, BuildError>,
}

impl fmt::Debug for PluginType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PluginType({})", self.name)
    }
}

/// Why an instance cannot be built. Every mistake of its parameters at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError(pub Vec<NodeError>);

impl BuildError {
    /// A mistake that has no place of its own: it belongs to the parameters as a whole.
    pub fn new(message: impl Into<String>) -> Self {
        Self(vec![NodeError { place: None, path: String::new(), message: message.into() }])
    }

    /// A mistake in the parameter of this name.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self(vec![NodeError { place: None, path: path.into(), message: message.into() }])
    }
}

/// Finds an instance that is built already by its name.
type FindInstance<'a> = dyn Fn(&str) -> Option<Instance> + 'a;
/// What is put behind the message that a name is not known: what was probably meant.
type Hint<'a> = dyn Fn(&str) -> String + 'a;

/// What an instance gets to be built from.
pub struct BuildContext<'a> {
    /// The instance's name in the config.
    pub name: &'a str,
    /// Its parameters; `None` if the config gives none.
    pub parameters: Option<&'a Node>,
    pub slots: &'a Slots,
    /// Where the instance's metric families are.
    pub metrics: &'a MetricHub,
    /// How long what an engine said counts.
    pub staleness: Duration,
    reads: Vec<DataKey>,
    optional_reads: Vec<DataKey>,
    writes: Vec<DataKey>,
    others: Option<&'a FindInstance<'a>>,
    hint: Option<&'a Hint<'a>>,
    listed: &'a [(&'a str, &'a str)],
    waits_for: Vec<String>,
    refers_to: Vec<String>,
    headers: Vec<String>,
}

impl<'a> BuildContext<'a> {
    /// Makes the context for one instance.
    pub fn new(
        name: &'a str,
        parameters: Option<&'a Node>,
        slots: &'a Slots,
        metrics: &'a MetricHub,
        staleness: Duration,
    ) -> Self {
        Self {
            name,
            parameters,
            slots,
            metrics,
            staleness,
            reads: Vec::new(),
            optional_reads: Vec::new(),
            writes: Vec::new(),
            others: None,
            hint: None,
            listed: &[],
            waits_for: Vec::new(),
            refers_to: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// Reads the parameters into `C`; absent ones leave the defaults.
    ///
    /// # Errors
    /// If a parameter is unknown or of the wrong type.
    pub fn config<C: DeserializeOwned + Default>(&self) -> Result<C, BuildError> {
        match self.parameters {
            None => Ok(C::default()),
            Some(node) if node.is_null() => Ok(C::default()),
            Some(node) => node.decode().map_err(|e| BuildError(vec![e])),
        }
    }

    /// Declares that the instance reads the column of `T` of the named producer, or of the default one if `producer` is
    /// empty. The config is refused if nobody writes it.
    pub fn reads<T: Attribute>(&mut self, producer: &str) -> ColumnKey<T> {
        let key = data_key::<T>(producer);
        let column = self.slots.column(&key.producer);
        self.reads.push(key);
        column
    }

    /// As [`Self::reads`], but does without if nobody writes it.
    pub fn reads_if_there<T: Attribute>(&mut self, producer: &str) -> ColumnKey<T> {
        let key = data_key::<T>(producer);
        let column = self.slots.column(&key.producer);
        self.optional_reads.push(key);
        column
    }

    /// As [`Self::reads`], for a value of the request.
    pub fn reads_request<T: Attribute>(&mut self, producer: &str) -> RequestKey<T> {
        let key = data_key::<T>(producer);
        let value = self.slots.request(&key.producer);
        self.reads.push(key);
        value
    }

    /// As [`Self::reads_if_there`], for a value of the request.
    pub fn reads_request_if_there<T: Attribute>(&mut self, producer: &str) -> RequestKey<T> {
        let key = data_key::<T>(producer);
        let value = self.slots.request(&key.producer);
        self.optional_reads.push(key);
        value
    }

    /// Declares that the instance reads a scraped value, so that the config must have an extractor for it.
    pub fn reads_metric(&mut self, data: &'static str) {
        self.reads.push(DataKey { data, producer: "core-metrics-extractor".into(), default_producer: None });
    }

    /// As [`Self::reads_metric`], for a value of another extractor.
    pub fn reads_metric_of(&mut self, data: &'static str, producer: &str) {
        self.reads.push(DataKey { data, producer: producer.into(), default_producer: None });
    }

    /// Declares that a filter or scorer looks at this header of requests, so that recordings of decisions keep it.
    pub fn reads_header(&mut self, name: &str) {
        self.headers.push(name.to_ascii_lowercase());
    }

    /// The headers that were declared.
    pub fn headers(&self) -> &[String] {
        &self.headers
    }

    /// Declares that the instance fills a column of `T` under its own name.
    pub fn writes<T: Attribute>(&mut self) -> ColumnKey<T> {
        self.writes.push(data_key::<T>(self.name));
        self.slots.column(self.name)
    }

    /// Declares that the instance fills a value of `T`, one a request, under its own name.
    pub fn writes_request<T: Attribute>(&mut self) -> RequestKey<T> {
        self.writes.push(data_key::<T>(self.name));
        self.slots.request(self.name)
    }

    /// Declares a scraped value that the instance provides.
    pub fn writes_metric(&mut self, data: &'static str) {
        self.writes.push(DataKey { data, producer: "core-metrics-extractor".into(), default_producer: None });
    }

    /// As [`Self::writes_metric`], for an extractor of another name.
    pub fn writes_metric_of(&mut self, data: &'static str, producer: &str) {
        self.writes.push(DataKey { data, producer: producer.into(), default_producer: None });
    }

    /// Lends the instances that are built already, by name.
    pub fn with_others(mut self, others: &'a FindInstance<'a>) -> Self {
        self.others = Some(others);
        self
    }

    /// Lends what knows the names that are near to one that nobody has.
    pub fn with_hint(mut self, hint: &'a Hint<'a>) -> Self {
        self.hint = Some(hint);
        self
    }

    /// Lends the types and names of all instances that the config lists.
    pub fn with_listed(mut self, listed: &'a [(&'a str, &'a str)]) -> Self {
        self.listed = listed;
        self
    }

    /// The names of the instances of a type that the config lists, whether they are built yet or not.
    pub fn listed_of(&self, kind: &str) -> Vec<String> {
        self.listed.iter().filter(|(k, _)| *k == kind).map(|(_, name)| (*name).to_owned()).collect()
    }

    /// Another instance that this one refers to in the parameter `path`. The order in the file does not matter: whoever
    /// refers to an instance that is not built yet is built again after it.
    ///
    /// # Errors
    /// If there is no such instance, or not yet; return the error as it is.
    pub fn plugin(&mut self, path: &str, name: &str) -> Result<Instance, BuildError> {
        if let Some(found) = self.others.and_then(|others| others(name)) {
            self.refers_to.push(name.to_owned());
            return Ok(found);
        }
        self.waits_for.push(name.to_owned());
        let hint = self.hint.map(|hint| hint(name)).unwrap_or_default();
        Err(BuildError::at(path, format!("no plugin is named {name:?}{hint}")))
    }

    /// The instances that were asked for in vain.
    pub fn waits_for(&self) -> &[String] {
        &self.waits_for
    }

    /// The instances that were asked for and found.
    pub fn refers_to(&self) -> &[String] {
        &self.refers_to
    }

    /// Hands over what was declared.
    pub fn into_keys(self) -> (Vec<DataKey>, Vec<DataKey>, Vec<DataKey>) {
        (self.reads, self.optional_reads, self.writes)
    }
}

fn data_key<T: Attribute>(producer: &str) -> DataKey {
    let producer = if producer.trim().is_empty() { T::DEFAULT_PRODUCER.unwrap_or_default() } else { producer };
    DataKey { data: T::NAME, producer: producer.to_owned(), default_producer: T::DEFAULT_PRODUCER }
}

/// One built plugin: the roles that it plays.
#[derive(Clone, Default)]
pub struct Instance {
    pub filter: Option<Arc<dyn Filter>>,
    pub scorer: Option<Arc<dyn Scorer>>,
    pub picker: Option<Arc<dyn Picker>>,
    pub handler: Option<Arc<dyn ProfileHandler>>,
    pub producer: Option<Arc<dyn Producer>>,
    pub parser: Option<Arc<dyn Parser>>,
    pub saturation: Option<Arc<dyn Saturation>>,
    pub remote: Option<Arc<dyn Remote>>,
    pub gather: Option<Arc<dyn Gather>>,
    pub screener: Option<Arc<dyn Screener>>,
    pub admitter: Option<Arc<dyn Admitter>>,
    pub decider: Option<Arc<dyn Decider>>,
    pub hooks: Option<Arc<dyn Hooks>>,
    pub fairness: Option<Arc<dyn FairnessPolicy>>,
    pub ordering: Option<Arc<dyn OrderingPolicy>>,
    pub usage_limit: Option<Arc<dyn UsageLimitPolicy>>,
    pub discovery: Option<DiscoverySpec>,
    pub source: Option<SourceSpec>,
    pub extractor: Option<Extraction>,
    /// What it wants to hear of the engines' KV caches.
    pub kv: Option<KvSubscription>,
    /// Its filter or scorer goes by more than what it is handed: by what it remembers, or by chance of its own. What it would
    /// say cannot be told from a recording. So it is of whatever is a producer or hook, too.
    pub remembers: bool,
    /// What the instance tells of its state as JSON, for the debug page.
    pub state: Option<Arc<dyn Fn() -> String + Send + Sync>>,
}

impl Instance {
    /// Whether its filter or scorer goes by nothing but what it is handed.
    pub fn goes_by_inputs(&self) -> bool {
        let learns = self.producer.is_some() || self.remote.is_some() || self.gather.is_some() || self.hooks.is_some();
        !self.remembers && !learns && self.kv.is_none()
    }

    /// What it can be used as, for messages.
    pub fn roles(&self) -> impl Iterator<Item = Kind> {
        let roles = [
            (self.filter.is_some(), Kind::Filter),
            (self.scorer.is_some(), Kind::Scorer),
            (self.picker.is_some(), Kind::Picker),
            (self.handler.is_some(), Kind::ProfileHandler),
            (self.producer.is_some() || self.remote.is_some() || self.gather.is_some(), Kind::Producer),
            (self.parser.is_some(), Kind::Parser),
            (self.saturation.is_some(), Kind::SaturationDetector),
            (self.screener.is_some(), Kind::Screener),
            (self.admitter.is_some(), Kind::Admitter),
            (self.decider.is_some(), Kind::Decider),
            (self.hooks.is_some(), Kind::Hooks),
            (self.fairness.is_some(), Kind::FairnessPolicy),
            (self.ordering.is_some(), Kind::OrderingPolicy),
            (self.usage_limit.is_some(), Kind::UsageLimitPolicy),
            (self.discovery.is_some(), Kind::Discovery),
            (self.source.is_some(), Kind::Source),
            (self.extractor.is_some(), Kind::Extractor),
        ];
        roles.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind)
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.roles().map(|kind| kind.to_string())).finish()
    }
}
