//! What the plugins are called with: a board of a thousand endpoints, a request with every header that a plugin reads, and
//! columns that are filled.

use std::collections::BTreeMap;
use std::sync::Arc;

use epp_plugin_api::testing::{Rig, Row, cycle, request, snapshot};
use epp_plugin_api::{
    Adapters, Attribute, Candidates, Columns, Cycle, EndpointIdx, Held, InferenceRequest, Names, Parser, Picked,
    Producer, ProfileRun, Runs, Snapshot,
};
use epp_plugins::attributes::{
    EncoderMatch, InFlight, LatencyPrediction, PrefixMatch, RecentLoad, SessionId, Topology, UncachedTokens,
};
use epp_plugins::parsers::openai::OpenAi;
use epp_plugins::registry::find;
use serde_json::json;

pub const ENDPOINTS: u32 = 1000;

/// The headers that filters, scorers and admitters go by. The session token names the last endpoint.
const HEADERS: [(&str, &str); 7] = [
    ("x-session-id", "s-7"),
    ("x-session-token", "ZGVmYXVsdC9lOTk5"),
    ("x-slice", "s3"),
    ("x-revision", "v1"),
    ("x-llm-d-slo-ttft-ms", "200"),
    ("x-llm-d-slo-tpot-ms", "20"),
    ("test-epp-endpoint-selection", "127.0.0.1:8007,127.0.0.1:8999"),
];

/// All that a call needs.
pub struct Stand {
    pub rig: Rig,
    pub columns: Columns,
    pub all: Candidates,
    board: Snapshot,
    request: InferenceRequest,
}

impl Stand {
    pub fn new() -> Self {
        let (rig, all) = (Rig::default(), Candidates::all(ENDPOINTS as usize));
        let mut columns = Columns::default();
        columns.reset(ENDPOINTS as usize);
        let mut stand = Self { rig, columns, all, board: board(), request: chat() };
        stand.fill();
        stand
    }

    /// A cycle beside the first endpoint.
    pub fn cycle(&self) -> Cycle<'_> {
        Cycle { peer: Some(EndpointIdx(0)), ..cycle(&self.board, &self.request) }
    }

    /// Sends a request to every endpoint, so that the producer has something to tell. They are in flight for as long as
    /// what is returned is kept.
    pub fn teach(&mut self, producer: &dyn Producer) -> Vec<Box<dyn Held>> {
        let cx = Cycle { peer: None, ..cycle(&self.board, &self.request) };
        let mut held = Vec::new();
        for idx in self.board.indices() {
            // What is not produced is not learned; that is measured, too.
            let _ = producer.produce(&cx, &mut self.columns);
            let runs = Runs { names: vec!["default".into()], runs: vec![ProfileRun::Chose(vec![idx])], peer: None };
            let picked = Picked { runs: &runs, primary: 0 };
            held.extend(producer.picked(&cx, &self.columns, &picked));
            producer.learn(&cx, &self.columns, &picked);
        }
        held
    }

    fn fill(&mut self) {
        let tokens = find("token-producer").and_then(|kind| self.rig.build(kind, json!(null)).producer);
        let produced = tokens.map(|tokens| tokens.produce(&cycle(&self.board, &self.request), &mut self.columns));
        assert_eq!(produced, Some(Ok(())), "expected the tokens of the prompt");
        let session = self.rig.slots.request::<SessionId>("session-id-producer");
        *self.columns.write_request(session) = SessionId("s-7".into());
        self.column("inflight-load-producer", |i| InFlight { requests: i % 7, tokens: i % 7 * 500 });
        self.column("inflight-load-producer", |i| UncachedTokens(i % 2000));
        self.column("recent-load-producer", |i| RecentLoad { milli_requests: i as u32 % 7000 });
        self.column("approx-prefix-cache-producer", |i| {
            let blocks = i as u32 % 32;
            PrefixMatch {
                match_blocks: blocks,
                total_blocks: 32,
                block_tokens: 64,
                cached_blocks: blocks,
                host_blocks: None,
            }
        });
        self.column("mm-embeddings-cache-producer", |i| EncoderMatch { matched: i as u32 % 2, requested: 1 });
        self.column("topology-extractor", |i| {
            let [host, rack, zone, region] = [i, i / 8, i / 64, i / 512].map(|at| at as u32 + 1);
            Topology { host, rack, zone, region }
        });
        // Only the last endpoints keep both objectives, so that whoever looks for one must look at all.
        self.column("predicted-latency-producer", |i| {
            let (ttft, tpot) = (1200.0 - i as f64, 120.0 - i as f64 / 10.0);
            LatencyPrediction {
                ttft_valid: ttft <= 210.0,
                tpot_valid: tpot <= 21.0,
                ttft_headroom: 210.0 - ttft,
                tpot_headroom: 21.0 - tpot,
                ttft,
                tpot,
                dispatched: i as u64 % 7 + 1,
            }
        });
    }

    fn column<T: Attribute>(&mut self, producer: &str, value: impl Fn(i64) -> T) {
        let cells = self.columns.write(self.rig.slots.column::<T>(producer));
        cells.iter_mut().zip(0..).for_each(|(cell, i)| *cell = value(i));
    }
}

fn board() -> Snapshot {
    snapshot(1, (0..ENDPOINTS).map(row))
}

fn row(i: u32) -> Row {
    let adapters = |from: u32| -> Names { (from..from + 3).map(|n| format!("adapter-{}", n % 40)).collect() };
    let mut row = Row::heard(f64::from(i % 17), f64::from(1 + i % 31), 0.2 + f64::from(i % 80) / 100.0);
    row.observed.block_tokens = Some(64);
    row.observed.adapters = Some(Arc::new(Adapters { running: adapters(i), waiting: adapters(i + 3), most: 6 }));
    row.observed.custom = Arc::new([
        ("temperature".into(), f64::from(20 + i % 71)),
        ("llm-d.ai/multicluster-queue-size/".into(), f64::from(i % 17)),
        ("llm-d.ai/multicluster-kv-cache-utilization/".into(), f64::from(i % 101) / 100.0),
    ]);
    let (role, revision) = (["prefill", "decode"][i as usize % 2], ["v1", "v2"][i as usize / 2 % 2]);
    row.labels = BTreeMap::from(
        [
            ("app", "x".into()),
            ("disaggregatedset.x-k8s.io/revision", revision.into()),
            ("disaggregatedset.x-k8s.io/role", role.into()),
            ("kubernetes.io/hostname", format!("host-{i}")),
            ("llm-d.ai/context-length-range", format!("{}-{}", i % 3 * 1000, i % 3 * 1000 + 4000)),
            ("llm-d.ai/role", role.into()),
            ("slice", format!("s{}", i % 8)),
            ("tier", ["gold", "iron"][i as usize % 2].into()),
            ("topology.kubernetes.io/rack", format!("rack-{}", i / 8)),
            ("topology.kubernetes.io/region", format!("region-{}", i / 512)),
            ("topology.kubernetes.io/zone", format!("zone-{}", i / 64)),
        ]
        .map(|(key, value): (&str, String)| (key.to_owned(), value)),
    );
    row
}

/// A chat of 2,000 tokens with an image, which may be turned away.
fn chat() -> InferenceRequest {
    let text = "Call me Ishmael. ".repeat(480);
    let image = r#"{"type":"image_url","image_url":{"url":"https://example.com/whale.png"}}"#;
    let content = format!(r#"[{{"type":"text","text":"{text}"}},{image}]"#);
    let body = format!(r#"{{"model":"adapter-7","messages":[{{"role":"user","content":{content}}}]}}"#);
    let parsed = OpenAi.parse("v1/chat/completions", &Default::default(), body.as_bytes());
    let mut request = request(body.as_bytes(), parsed.expect("the body is a chat"));
    request.target_model = "adapter-7".into();
    request.priority = -1;
    for (key, value) in HEADERS {
        request.headers.set(key, value.to_owned());
    }
    request
}
