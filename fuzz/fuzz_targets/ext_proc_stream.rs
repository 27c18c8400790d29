//! Feeds a stream any messages that decode: it must answer headers before bodies, pick at most once, say nothing after a
//! refusal, and give back all that it held.
#![no_main]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use epp::config::{Environment, load};
use epp::ext_proc::bodies::{Bodies, BodyLimits};
use epp::ext_proc::context::{Context, Options};
use epp::ext_proc::metrics::RequestMetrics;
use epp::ext_proc::stream::{ClientEnd, Stream};
use epp::ext_proc::wire::{ProcessingRequest, Response};
use epp::flow::control::Control;
use epp::generation::Generation;
use epp::sched::calls::NoCalls;
use epp::sched::metrics::{SchedMetrics, StageMetrics};
use epp_plugin_api::{
    EndpointId, EndpointMeta, EndpointName, Ledger, MetricHub, Observed, Slots, Snapshot, SnapshotRow,
};
use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tokio::time::Instant;

const CONFIG: &str = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n\
    - {type: prefix-cache-scorer}\n- {type: active-request-scorer}\n\
    schedulingProfiles: [{name: default, plugins: [{pluginRef: prefix-cache-scorer}, {pluginRef: active-request-scorer}]}]\n";
const BODIES: BodyLimits = BodyLimits { each: 1 << 16, together: 1 << 18, patience: None };
const ENDPOINTS: u32 = 3;

static CONTEXT: LazyLock<Arc<Context>> = LazyLock::new(|| {
    let (hub, slots) = (MetricHub::default(), Slots::default());
    let environment = Environment {
        registry: epp_plugins::registry::REGISTRY,
        slots: &slots,
        metrics: &hub,
        staleness: Duration::from_secs(2),
        allow_experimental: true,
        previous: None,
    };
    let plan = load(CONFIG, &environment).expect("the config of this target is right");
    let generation = Generation::new(1, plan, &Arc::new(SchedMetrics::new(&hub)), &hub);
    let rows = (0..ENDPOINTS).map(|i| {
        let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
        let meta = EndpointMeta::new(name, format!("10.0.0.{i}"), 8000, Default::default(), 0);
        SnapshotRow { id: EndpointId::new(i, i + 1), meta: Arc::new(meta), observed: Observed::default() }
    });
    let snapshots = Arc::new(ArcSwap::from_pointee(Snapshot::new(1, rows, Instant::now(), Duration::from_secs(2))));
    Arc::new(Context {
        flow: Control::new(generation.flow.clone(), "pool", Duration::ZERO, snapshots.clone(), &hub),
        snapshots,
        ledger: Arc::new(Ledger::default()),
        generations: Arc::new(ArcSwap::from_pointee(generation)),
        calls: Arc::new(NoCalls),
        metrics: RequestMetrics::new(&hub),
        stages: StageMetrics::of(&hub),
        streams: None,
        options: Options { subset_hint: true, emit_scores: true, explain: true, bodies: BODIES },
        bodies: Arc::new(Bodies::new(BODIES)),
        decisions: Default::default(),
        warned_of_headers_only: Default::default(),
    })
});

fn in_flight() -> i64 {
    (0..ENDPOINTS).map(|i| CONTEXT.ledger.of(EndpointId::new(i, i + 1)).0).sum()
}

// Messages as a length-delimited sequence, which is how gRPC's own framing cuts them.
fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut stream = Stream::new(CONTEXT.clone());
    let (mut headers, mut bodies, mut picks, mut refused) = (0, 0, 0, false);
    while let Ok(message) = ProcessingRequest::decode_length_delimited(&mut rest) {
        stream.take(message, Instant::now()).now_or_never().expect("nothing is waited for where no service is asked");
        assert!((0..=1).contains(&in_flight()));
        while let Some(answer) = stream.next_answer() {
            assert!(!refused, "nothing is said after a refusal");
            picks += usize::from(answer.dynamic_metadata.is_some());
            match answer.response.expect("every answer says something") {
                Response::RequestHeaders(_) => {
                    assert_eq!(bodies, 0, "headers come before bodies");
                    headers += 1;
                }
                Response::RequestBody(_) => bodies += 1,
                Response::Immediate(_) => refused = true,
                Response::RequestTrailers(_)
                | Response::ResponseHeaders(_)
                | Response::ResponseBody(_)
                | Response::ResponseTrailers(_) => {}
            }
        }
    }
    assert!(headers <= 1 && picks <= 1);
    stream.half_closed(ClientEnd::AfterAnswers, Instant::now());
    drop(stream);
    assert_eq!(in_flight(), 0);
});
