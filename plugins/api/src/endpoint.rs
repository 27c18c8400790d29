//! Which endpoint: its identity, its place in one snapshot, and what the endpoints file says of it.

use std::collections::BTreeMap;
use std::fmt;

/// Identifies an endpoint for as long as it is known, across snapshots.
///
/// `slot` is dense and is given to another endpoint once this one has left, so it is what arrays are indexed by;
/// `serial` is never given twice, so an array entry that holds another serial belongs to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId {
    slot: u32,
    serial: u32,
}

impl EndpointId {
    /// Makes an identity; only whoever hands out slots should.
    pub fn new(slot: u32, serial: u32) -> Self {
        Self { slot, serial }
    }

    /// The dense, reused part.
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// The part that is never given twice.
    pub fn serial(self) -> u32 {
        self.serial
    }
}

/// A row of one snapshot. Never store it: the next snapshot may give the row to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointIdx(pub u32);

impl EndpointIdx {
    /// The row as an index into a slice.
    pub fn row(self) -> usize {
        self.0 as usize
    }
}

/// Namespace and name of an endpoint; its key in the endpoints file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for EndpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The stages that an endpoint serves, from its label `llm-d.ai/role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    pub decode: bool,
    pub prefill: bool,
    pub encode: bool,
}

impl Role {
    /// The label that names the role of an endpoint.
    pub const LABEL: &'static str = "llm-d.ai/role";

    /// Reads the label's value; an absent label means decode, an unknown value means no stage at all.
    pub fn from_label(value: Option<&str>) -> Self {
        let (decode, prefill, encode) = match value {
            None | Some("decode") => (true, false, false),
            Some("prefill") => (false, true, false),
            Some("encode") => (false, false, true),
            Some("prefill-decode" | "both") => (true, true, false),
            Some("encode-prefill") => (false, true, true),
            Some("encode-prefill-decode") => (true, true, true),
            Some(_) => (false, false, false),
        };
        Self { decode, prefill, encode }
    }
}

/// What the endpoints file says of an endpoint. Equal values mean that nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointMeta {
    pub name: EndpointName,
    /// The host as Envoy is told it: an address, without brackets.
    pub host: String,
    pub port: u16,
    /// `host:port`, with brackets round an IPv6 address: the value of the destination header.
    pub host_port: String,
    pub labels: BTreeMap<String, String>,
    pub role: Role,
    /// Data-parallel rank inside its engine; 0 where the file does not say.
    pub rank: u32,
    /// Where its metrics are, if that is not where it serves.
    pub metrics_at: Option<(String, u16)>,
}

impl EndpointMeta {
    /// Puts an entry together; derives `host_port` and the role.
    pub fn new(name: EndpointName, host: String, port: u16, labels: BTreeMap<String, String>, rank: u32) -> Self {
        let host_port = host_port(&host, port);
        let role = Role::from_label(labels.get(Role::LABEL).map(String::as_str));
        Self { name, host, port, host_port, labels, role, rank, metrics_at: None }
    }

    /// The value of a label, if the endpoint has it.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

/// `host:port`, with brackets round an IPv6 address.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
