//! What benches have in common: generations of a config, chats, and boards of endpoints. The first endpoint of a board is the
//! least loaded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epp::app::registry;
use epp::config::{Environment, load};
use epp::ext_proc::reading::{RequestHead, read};
use epp::ext_proc::wire::{HeaderMap, HeaderValue, HttpHeaders};
use epp::generation::Generation;
use epp::sched::metrics::SchedMetrics;
use epp_plugin_api::{
    EndpointId, EndpointMeta, EndpointName, InferenceRequest, MetricHub, Observed, Role, Slots, Snapshot, SnapshotRow,
};
use tokio::time::Instant;

/// What generations share.
#[derive(Default)]
pub struct Shared {
    pub hub: MetricHub,
    pub slots: Slots,
}

impl Shared {
    /// Loads a config; takes over what is in force already.
    pub fn generation(&self, config: &str, in_force: Option<&Generation>) -> Generation {
        let env = Environment {
            registry: registry(),
            slots: &self.slots,
            metrics: &self.hub,
            staleness: Duration::from_secs(2),
            allow_experimental: false,
            previous: in_force.map(|generation| &generation.plan),
        };
        let plan = load(config, &env).expect("the config is right");
        Generation::new(1, plan, &Arc::new(SchedMetrics::new(&self.hub)), &self.hub)
    }
}

/// A chat with this text.
pub fn request(generation: &Generation, text: &str) -> InferenceRequest {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let path = HeaderValue {
        key: ":path".into(),
        value: Bytes::new(),
        raw_value: Bytes::from_static(b"/v1/chat/completions"),
    };
    let headers = Some(HeaderMap { headers: vec![path] });
    let mut head = RequestHead::new(HttpHeaders { headers, end_of_stream: false }, Instant::now());
    match read(&mut head, body.into(), generation) {
        Ok(read) => read.request,
        Err(unreadable) => panic!("expected a request, found {:?}", unreadable.refusal),
    }
}

/// A board of so many endpoints, which have the roles in turns.
pub fn board(endpoints: u32, roles: &[&str]) -> Snapshot {
    let now = Instant::now();
    let rows = (0..endpoints).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let load = |most: u32| f64::from(if i == 0 { 0 } else { 1 + i % most });
        let observed = Observed {
            waiting: Some(load(3)),
            running: Some(load(31)),
            kv_usage: Some(load(50) / 100.0),
            at: Some(now),
            ..Observed::default()
        };
        let role = roles[i as usize % roles.len()];
        let labels = [("tier", "gold"), (Role::LABEL, role)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let labels = BTreeMap::from(labels);
        let meta = EndpointMeta::new(name, format!("10.0.{}.{}", i / 256, i % 256), 8000, labels, 0);
        SnapshotRow { id: EndpointId::new(i, 1), meta: Arc::new(meta), observed }
    });
    Snapshot::new(1, rows, now, Duration::from_secs(2))
}
