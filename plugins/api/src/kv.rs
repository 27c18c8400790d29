//! What engines publish about their KV caches: who wants to hear it, and where it is heard.

use std::sync::Arc;

use crate::{EndpointId, EndpointName};

/// Asks that the messages of engines be brought to a plugin. Two are equal if they listen alike for the same plugin.
#[derive(Clone)]
pub struct KvSubscription {
    /// Messages whose topic begins with this are wanted.
    pub topic: String,
    /// A ZeroMQ address to bind, such as `tcp://*:5557`, for engines that connect by themselves. The topic says which
    /// endpoint speaks: `kv@ADDRESS:PORT@MODEL`.
    pub bind: Option<String>,
    /// Where each endpoint publishes, if the picker is to connect.
    pub connect: Option<KvPorts>,
    pub sink: Arc<dyn KvSink>,
}

/// The ports of an engine's publisher. An endpoint's data-parallel rank is added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPorts {
    pub events: u16,
    /// Where messages that were missed can be asked for.
    pub replay: Option<u16>,
}

/// Takes in what engines publish.
///
/// Calls about one endpoint come one after the other and in order; those about different endpoints may come at once.
pub trait KvSink: Send + Sync {
    /// The endpoint is listened to from now on; comes before its first message.
    fn begins(&self, _from: EndpointId, _name: &EndpointName) {}

    /// The endpoint has published a message of this topic.
    fn message(&self, from: EndpointId, topic: &[u8], payload: &[u8]);

    /// What is known of the endpoint is not certain any more: it has started again, or messages are lost for good.
    fn lost(&self, from: EndpointId);
}

impl PartialEq for KvSubscription {
    fn eq(&self, other: &Self) -> bool {
        let alike = (&self.topic, &self.bind, self.connect) == (&other.topic, &other.bind, other.connect);
        alike && Arc::ptr_eq(&self.sink, &other.sink)
    }
}

impl std::fmt::Debug for KvSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvSubscription({:?}, bind {:?}, connect {:?})", self.topic, self.bind, self.connect)
    }
}
