//! A pipeline of two filters, six scorers, a picker and the producers that they need, with a board of endpoints and a
//! chat of 200 tokens. The first endpoint is the least loaded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use epp::app::registry;
use epp::config::{Environment, load};
use epp::ext_proc::reading::{RequestHead, read};
use epp::ext_proc::wire::{HeaderMap, HeaderValue, HttpHeaders};
use epp::generation::Generation;
use epp::sched::calls::NoCalls;
use epp::sched::cycle::{Inputs, Outcome};
use epp::sched::metrics::SchedMetrics;
use epp::sched::record::Decisions;
use epp_plugin_api::{
    EndpointId, EndpointMeta, EndpointName, InferenceRequest, Ledger, MetricHub, Observed, Slots, Snapshot, SnapshotRow,
};
use futures_util::FutureExt;
use tokio::time::Instant;

const CONFIG: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: decode-filter
- type: label-selector-filter
  parameters: {matchLabels: {tier: gold}}
- type: queue-scorer
- type: running-requests-size-scorer
- type: kv-cache-utilization-scorer
- type: load-aware-scorer
- type: active-request-scorer
- type: prefix-cache-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: decode-filter
  - pluginRef: label-selector-filter
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: running-requests-size-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: load-aware-scorer, weight: 1}
  - {pluginRef: active-request-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - pluginRef: max-score-picker
";

/// All that a cycle needs.
pub struct Stand {
    generation: Generation,
    snapshot: Snapshot,
    request: InferenceRequest,
    ledger: Ledger,
    decisions: Decisions,
}

impl Stand {
    /// Makes a stand with so many endpoints.
    pub fn new(endpoints: u32) -> Self {
        let (hub, slots) = (MetricHub::default(), Slots::default());
        let env = Environment {
            registry: registry(),
            slots: &slots,
            metrics: &hub,
            staleness: Duration::from_secs(2),
            allow_experimental: false,
            previous: None,
        };
        let plan = load(CONFIG, &env).expect("the config is right");
        let generation = Generation::new(1, plan, &Arc::new(SchedMetrics::new(&hub)), &hub);
        let (other, request) = (request(&generation, "hi"), request(&generation, "hello"));
        let mut stand = Self {
            generation,
            snapshot: board(endpoints),
            request: other,
            ledger: Ledger::default(),
            decisions: Decisions::default(),
        };
        // A prefix index gives back the memory of an endpoint's last chat, so there is another one.
        drop(stand.run());
        stand.request = request;
        stand
    }

    /// Runs one cycle.
    pub fn run(&self) -> Outcome {
        let inputs = Inputs {
            snapshot: &self.snapshot,
            request: &self.request,
            subset: None,
            ledger: &self.ledger,
            now: self.request.received,
            with_scores: false,
            generation: 1,
            decisions: &self.decisions,
        };
        let run = self.generation.pipeline.run(inputs, &NoCalls);
        match run.now_or_never().expect("no plugin of this config asks anybody") {
            Ok((outcome, _)) => outcome,
            Err(refusal) => panic!("expected a pick, found {refusal:?}"),
        }
    }
}

fn request(generation: &Generation, word: &str) -> InferenceRequest {
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#, word.repeat(160));
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

fn board(endpoints: u32) -> Snapshot {
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
        let labels = BTreeMap::from([("tier".to_owned(), "gold".to_owned())]);
        let meta = EndpointMeta::new(name, format!("10.0.{}.{}", i / 256, i % 256), 8000, labels, 0);
        SnapshotRow { id: EndpointId::new(i, 1), meta: Arc::new(meta), observed }
    });
    Snapshot::new(1, rows, now, Duration::from_secs(2))
}
