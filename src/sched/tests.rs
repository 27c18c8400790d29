//! What whole configs choose: endpoints and a request in, the choice out.

mod gather;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::testing::request;
use epp_plugin_api::{
    Adapters, Call, EndpointId, EndpointMeta, EndpointName, InferenceRequest, Job, Ledger, MetricHub, Observed, Parsed,
    Piece, Snapshot, SnapshotRow,
};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::app::plan_of;
use crate::flow::refusal::Refusal;
use crate::sched::calls::{Answer, Calls, NoCalls};
use crate::sched::cycle::Outcome;
use crate::sched::decisions::Decisions;
use crate::sched::inputs::Inputs;
use crate::sched::metrics::SchedMetrics;
use crate::sched::pipeline::Pipeline;
use crate::sched::record::DecisionRecord;

const ROLE: &str = "llm-d.ai/role";

/// The pipeline of a config and the endpoints 10.0.0.1:8000, 10.0.0.2:8000 and on.
struct Bench {
    pipeline: Pipeline,
    snapshot: ArcSwap<Snapshot>,
    ledger: Ledger,
    decisions: Decisions,
}

impl Bench {
    fn new(config: &str, endpoints: Vec<(&[(&str, &str)], Observed)>) -> Self {
        let hub = MetricHub::default();
        let plan = plan_of(config, &hub);
        let pipeline = Pipeline::new(&plan, SchedMetrics::new(&hub).into(), &hub);
        let rows = (1..).zip(endpoints).map(|(i, (labels, observed))| row(i, labels, observed));
        let snapshot = Snapshot::new(1, rows, Instant::now(), Duration::from_secs(2));
        Self {
            pipeline,
            snapshot: ArcSwap::from_pointee(snapshot),
            ledger: Ledger::default(),
            decisions: Decisions::default(),
        }
    }

    /// Endpoints of these roles; an empty one is no label.
    fn of_roles(config: &str, roles: &[&str]) -> Self {
        let labels: Vec<_> = roles.iter().filter(|r| !r.is_empty()).map(|role| [(ROLE, *role)]).collect();
        let mut labels = labels.iter();
        let endpoints = roles.iter().map(|role| {
            let labels = if role.is_empty() { &[][..] } else { labels.next().map_or(&[][..], |l| &l[..]) };
            (labels, Observed::default())
        });
        Self::new(config, endpoints.collect())
    }

    fn run(&self, model: &str, prompt: &[u32]) -> Result<Outcome, Refusal> {
        self.run_with(model, prompt, &NoCalls).expect("nothing is waited for")
    }

    /// As `run`, with services that answer `calls`; `None` if one of them does not.
    fn run_with(&self, model: &str, prompt: &[u32], calls: &dyn Calls) -> Option<Result<Outcome, Refusal>> {
        let outcome = self.ask(model, prompt, calls).now_or_never()?;
        Some(outcome.map(|(outcome, _)| outcome))
    }

    async fn ask(
        &self,
        model: &str,
        prompt: &[u32],
        calls: &dyn Calls,
    ) -> Result<(Outcome, Arc<DecisionRecord>), Refusal> {
        let now = Instant::now();
        let parsed = Parsed {
            pieces: vec![Piece::Ids { at: 0..prompt.len() }],
            ids: prompt.iter().flat_map(|id| id.to_le_bytes()).collect(),
            ..Parsed::default()
        };
        let request =
            InferenceRequest { model: model.into(), target_model: model.into(), received: now, ..request(b"", parsed) };
        let inputs = Inputs {
            board: &|| self.snapshot.load_full(),
            request: &request,
            subset: None,
            ledger: &self.ledger,
            now,
            with_scores: true,
            generation: 1,
            decisions: &self.decisions,
        };
        self.pipeline.run(inputs, calls).await
    }

    /// Where a request for a prompt of token ids goes, and who is named to do its prefill.
    fn picks(&self, prompt: &[u32]) -> String {
        match self.run("m", prompt) {
            Ok(outcome) => {
                let mut set = outcome.headers.set.iter();
                let prefill = set.find(|(name, _)| name == "x-prefiller-host-port");
                outcome.destination + &prefill.map_or(String::new(), |(_, value)| format!(" after {value}"))
            }
            Err(refusal) => format!("{} {}", refusal.status(), refusal.reason().unwrap_or_default()),
        }
    }
}

/// The endpoint 10.0.0.i:8000.
fn row(i: u32, labels: &[(&str, &str)], observed: Observed) -> SnapshotRow {
    let name = EndpointName { namespace: "default".into(), name: format!("e{i}") };
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let meta = EndpointMeta::new(name, format!("10.0.0.{i}"), 8000, labels, 0);
    SnapshotRow { id: EndpointId::new(i - 1, i), meta: meta.into(), observed }
}

fn heard(waiting: f64, kv_usage: f64, adapters: &[&str]) -> Observed {
    let running = adapters.iter().map(|name| (*name).to_owned()).collect();
    let adapters = Adapters { running, waiting: Default::default(), most: 2 };
    Observed {
        waiting: Some(waiting),
        running: Some(0.0),
        kv_usage: Some(kv_usage),
        adapters: Some(adapters.into()),
        at: Some(Instant::now()),
        ..Observed::default()
    }
}

#[test]
fn a_loaded_adapter_decides_between_equally_idle_engines() {
    let names = ["kv-cache-utilization-scorer", "queue-scorer", "prefix-cache-scorer", "lora-affinity-scorer"];
    let config: String = names.iter().map(|name| format!("- {{type: {name}}}\n")).collect();
    let endpoints = [(0.0, 0.2, ["foo", "bar"]), (0.0, 0.2, ["foo", "critical"]), (10.0, 0.8, ["foo", "foo"])];
    let endpoints = endpoints.map(|(waiting, usage, adapters)| (&[][..], heard(waiting, usage, &adapters)));
    let bench = Bench::new(&format!("plugins:\n{config}"), endpoints.to_vec());
    let outcome = bench.run("critical", &[1, 2, 3]).unwrap();
    let totals: Vec<f64> = outcome.scores.iter().map(|(_, total)| (total * 1e9).round() / 1e9).collect();
    assert_eq!((outcome.destination.as_str(), totals), ("10.0.0.2:8000", vec![1.8, 2.8, 1.0]));
}

#[test]
fn a_pool_whose_filters_leave_nobody_is_told_to_be_full() {
    let config = "plugins: [{type: label-selector-filter, parameters: {matchLabels: {tier: gold}}}]\n";
    assert_eq!(Bench::of_roles(config, &["", "decode"]).picks(&[1]), "429 rejected-saturated");
    let gold = Bench::new(config, vec![(&[("tier", "gold")], Observed::default())]);
    assert_eq!(gold.picks(&[1]), "10.0.0.1:8000");
}

/// A predictor that answers nobody before so many calls are under way; of the endpoints those of the last call are best.
struct Predictor {
    calls: usize,
    under_way: AtomicUsize,
}

impl Calls for Predictor {
    fn call(&self, call: Call) -> Answer<'_> {
        let n = self.under_way.fetch_add(1, Relaxed) + 1;
        let rows = call.body.windows(6).filter(|bytes| bytes == b"\"kv_ca").count();
        let one = format!(r#"{{"ttft_ms": {}, "tpot_ms": 1}}"#, 100 - n);
        let body = format!(r#"{{"predictions": [{}]}}"#, vec![one; rows].join(","));
        Box::pin(std::future::poll_fn(move |_| match self.under_way.load(Relaxed) == self.calls {
            true => std::task::Poll::Ready(Ok(body.clone().into())),
            false => std::task::Poll::Pending,
        }))
    }

    fn compute(&self, job: Job) -> Answer<'_> {
        panic!("expected calls, found {job:?}")
    }

    fn send(&self, _call: Call) {}
}

#[test]
fn what_a_producer_asks_for_is_asked_at_once_and_answers_keep_their_order() {
    let config = "plugins: [{type: predicted-latency-producer}, {type: latency-scorer}, {type: max-score-picker}]\n";
    let bench = Bench::of_roles(config, &[""; 201]);
    // Three calls for predictions, and one that asks the service how it is.
    let predictor = Predictor { calls: 4, under_way: AtomicUsize::new(0) };
    let outcome = bench.run_with("m", &[1], &predictor).expect("all calls are under way at once").unwrap();
    assert_eq!(outcome.destination, "10.0.0.201:8000");
}

#[test]
fn an_empty_pool_is_told_apart_from_a_full_one() {
    assert_eq!(Bench::of_roles("plugins: [{type: queue-scorer}]\n", &[]).picks(&[1]), "503 rejected-no-endpoints");
}

/// Two stages with these parameters of the handler, which stands before the decider that it names.
fn disaggregated(parameters: &str) -> String {
    format!(
        "plugins:\n- {{type: disagg-profile-handler, parameters: {{{parameters}}}}}\n\
         - {{type: prefix-based-pd-decider, parameters: {{nonCachedTokens: 2}}}}\n\
         - {{type: prefill-filter}}\n- {{type: decode-filter}}\n\
         schedulingProfiles:\n- {{name: prefill, plugins: [{{pluginRef: prefill-filter}}]}}\n\
         - {{name: decode, plugins: [{{pluginRef: decode-filter}}]}}\n"
    )
}

const BY_PREFIX: &str = "deciders: {prefill: prefix-based-pd-decider}";

#[test]
fn a_prompt_goes_by_prefill_when_enough_of_it_is_new() {
    for (roles, prompt, expected) in [
        (&["prefill", "decode"][..], &[1, 2][..], "10.0.0.2:8000 after 10.0.0.1:8000"),
        (&["prefill", "decode"], &[1], "10.0.0.2:8000"),
        (&["prefill"], &[1, 2], "429 rejected-saturated"),
        (&["prefill", ""], &[1, 2], "10.0.0.2:8000 after 10.0.0.1:8000"),
        (&["decode"], &[1, 2], "10.0.0.1:8000"),
    ] {
        let bench = Bench::of_roles(&disaggregated(BY_PREFIX), roles);
        assert_eq!(bench.picks(prompt), expected, "{roles:?} {prompt:?}");
    }
}

#[test]
fn a_prompt_that_the_decode_endpoint_knows_needs_no_prefill() {
    let bench = Bench::of_roles(&disaggregated(BY_PREFIX), &["prefill", "decode"]);
    assert_eq!(bench.picks(&[1, 2]), "10.0.0.2:8000 after 10.0.0.1:8000");
    assert_eq!(bench.picks(&[1, 2]), "10.0.0.2:8000");
    assert_eq!(bench.picks(&[1, 3]), "10.0.0.2:8000 after 10.0.0.1:8000");
}

#[test]
fn prefill_can_go_first_without_a_decider() {
    let bench = Bench::of_roles(&disaggregated("stageOrder: prefill-first"), &["prefill", "decode"]);
    for _ in 0..2 {
        assert_eq!(bench.picks(&[1]), "10.0.0.2:8000 after 10.0.0.1:8000");
    }
}
