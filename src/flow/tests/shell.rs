//! The shell on paused time: streams wait, leave, are let go and end, side by side.

use arc_swap::ArcSwap;
use epp_plugin_api::{InferenceRequest, Parsed};
use proptest::prelude::*;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::flow::control::{Control, Departure, Slot};
use crate::flow::page;
use crate::flow::refusal::Refusal;
use crate::telemetry::exposition::{Format, page};

/// A control with a pool that has room for so many.
struct Bench {
    control: Arc<Control>,
    pool: Arc<Pool>,
    hub: MetricHub,
    snapshots: Arc<ArcSwap<Snapshot>>,
    changes: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Bench {
    fn new(most: u64, change: impl FnOnce(&mut Settings)) -> Self {
        let (pool, hub) = (Pool::new(most, false), MetricHub::default());
        let mut settings = settings(&pool, &[10, 0, -1], "global-strict-fairness-policy");
        change(&mut settings);
        let snapshots = Arc::new(ArcSwap::from_pointee(endpoints(1)));
        let control = Control::new(Some(settings), "pool", MS(300), snapshots.clone(), &hub);
        page::show(&control, "pool", &hub);
        let (changes, changed) = watch::channel(0);
        let task = tokio::spawn(control.clone().run(changed));
        Self { control, pool, hub, snapshots, changes, task }
    }

    /// A stream that waits, is under way for so long, and ends.
    fn stream(&self, priority: i32, flow: &str, runs: Duration) -> JoinHandle<Result<(), Refusal>> {
        let (control, pool, request) = (self.control.clone(), self.pool.clone(), request(priority, flow));
        tokio::spawn(async move {
            let departure = control.enter(&request, None).await?;
            let _running = Running::new(&control, &pool, departure, priority);
            tokio::time::sleep(runs).await;
            Ok(())
        })
    }

    fn endpoints(&self, n: u32) {
        self.snapshots.store(Arc::new(endpoints(n)));
        self.changes.send_modify(|n| *n += 1);
    }

    fn page(&self) -> String {
        page(&self.hub, Format::Text).expect("a page")
    }

    /// The sum of a family's samples that hold this text.
    fn sum(&self, family: &str, with: &str) -> f64 {
        let page = self.page();
        let lines =
            page.lines().filter(|l| l.starts_with(&format!("llm_d_epp_flow_control_{family}")) && l.contains(with));
        lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    fn outcomes(&self, outcome: &str) -> f64 {
        self.sum("requests_total", &format!("\"{outcome}\""))
    }
}

/// A request under way, as the pool counts it.
struct Running {
    pool: Arc<Pool>,
    _slot: Slot,
}

impl Running {
    fn new(control: &Arc<Control>, pool: &Arc<Pool>, departure: Option<Departure>, priority: i32) -> Self {
        pool.in_flight.fetch_add(1, Relaxed);
        let slot = control.begin(priority, Instant::now());
        drop(departure);
        Self { pool: pool.clone(), _slot: slot }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The slot is dropped after this.
        self.pool.in_flight.fetch_sub(1, Relaxed);
    }
}

fn request(priority: i32, flow: &str) -> InferenceRequest {
    let request = epp_plugin_api::testing::request(b"0123456789", Parsed::default());
    InferenceRequest { fairness_id: flow.into(), priority, ..request }
}

async fn settle() {
    tokio::time::sleep(MS(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_lets_the_next_go() {
    let bench = Bench::new(1, |_| {});
    let first = bench.stream(0, "a", MS(1000));
    settle().await;
    let second = bench.stream(0, "a", MS(10));
    settle().await;
    assert_eq!((bench.sum("queue_size", ""), bench.sum("queue_bytes", "")), (1.0, 10.0));
    let began = Instant::now();
    assert_eq!(first.await.unwrap(), Ok(()));
    assert_eq!(second.await.unwrap(), Ok(()));
    assert_eq!(began.elapsed().as_millis() / 100, 10);
    assert_eq!((bench.sum("queue_size", ""), bench.outcomes("Dispatched")), (0.0, 2.0));
}

#[tokio::test(start_paused = true)]
async fn a_time_to_wait_ends_to_the_millisecond() {
    let bench = Bench::new(1, |s| s.ttl = Some(MS(300)));
    let _busy = bench.stream(0, "a", MS(10_000));
    settle().await;
    let began = Instant::now();
    assert_eq!(bench.stream(0, "a", MS(1)).await.unwrap(), Err(Refusal::WaitedTooLong));
    assert!((300..=302).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(bench.outcomes("EvictedTTL"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_frees_its_place_at_once() {
    let bench = Bench::new(1, |s| s.max_requests = Some(1));
    let _busy = bench.stream(0, "a", MS(10_000));
    settle().await;
    let waits = bench.stream(0, "a", MS(1));
    settle().await;
    assert_eq!(bench.stream(0, "a", MS(1)).await.unwrap(), Err(Refusal::QueueFull));
    waits.abort();
    settle().await;
    assert_eq!((bench.sum("queue_size", ""), bench.outcomes("EvictedContextCancelled")), (0.0, 1.0));
    let _takes_its_place = bench.stream(0, "a", MS(1));
    settle().await;
    assert_eq!(bench.sum("queue_size", ""), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_comes_lets_everyone_go() {
    let bench = Bench::new(9, |_| {});
    bench.endpoints(0);
    settle().await;
    let streams: Vec<_> = (0..5).map(|_| bench.stream(0, "a", MS(1))).collect();
    settle().await;
    assert_eq!(bench.sum("queue_size", ""), 5.0);
    bench.endpoints(1);
    for stream in streams {
        assert_eq!(stream.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn closing_turns_away_those_who_wait_and_those_who_come() {
    let bench = Bench::new(1, |_| {});
    let busy = bench.stream(0, "a", MS(500));
    settle().await;
    let waits = bench.stream(0, "a", MS(1));
    settle().await;
    bench.control.close();
    assert_eq!(waits.await.unwrap(), Err(Refusal::WaitsAtShutdown));
    assert_eq!(bench.stream(0, "a", MS(1)).await.unwrap(), Err(Refusal::ComesAtShutdown));
    assert_eq!(busy.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_closes_lets_everyone_go() {
    let bench = Bench::new(1, |_| {});
    let streams: Vec<_> = (0..4).map(|_| bench.stream(0, "a", MS(1000))).collect();
    settle().await;
    bench.control.reconfigure(None);
    let began = Instant::now();
    for stream in streams {
        assert_eq!(stream.await.unwrap(), Ok(()));
    }
    assert!(began.elapsed() < MS(1010));
    assert!(!bench.page().contains("pool_saturation{"));
}

#[tokio::test(start_paused = true)]
async fn a_reload_leaves_those_who_wait_where_they_are() {
    let bench = Bench::new(1, |_| {});
    let _busy = bench.stream(0, "a", MS(1000));
    settle().await;
    let streams: Vec<_> = (0..4).map(|_| bench.stream(0, "a", MS(1))).collect();
    settle().await;
    let mut changed = settings(&bench.pool, &[5], "round-robin-fairness-policy");
    changed.max_requests = Some(1);
    bench.control.reconfigure(Some(changed));
    settle().await;
    assert_eq!(bench.sum("queue_size", ""), 4.0);
    for stream in streams {
        assert_eq!(stream.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_taken_in_is_not_final_yet_and_shows_under_both_names() {
    let bench = Bench::new(1, |settings| settings.max_requests = Some(1));
    let first = bench.stream(0, "a", MS(10));
    settle().await;
    let (waits, refused) = (bench.stream(0, "a", MS(1)), bench.stream(0, "a", MS(1)));
    for (stream, goes) in [(first, true), (waits, true), (refused, false)] {
        assert_eq!(stream.await.unwrap().is_ok(), goes);
    }
    let steps = "request_enqueue_duration_seconds_count";
    assert_eq!(bench.sum(steps, "NotYetFinalized"), 2.0, "{}", bench.page());
    assert_eq!(bench.sum(steps, "RejectedCapacity"), 1.0, "{}", bench.page());
    let page = bench.page();
    let values = |prefix: &str| -> Vec<String> {
        let lines = page.lines().filter_map(|line| line.strip_prefix(prefix));
        lines.filter(|line| line.starts_with("queue_size") || line.starts_with(steps)).map(str::to_owned).collect()
    };
    assert_eq!(values("llm_d_epp_flow_control_"), values("inference_extension_flow_control_"));
    assert!(!values("inference_extension_flow_control_").is_empty());
}

#[tokio::test(start_paused = true)]
async fn series_of_an_idle_flow_go() {
    let bench = Bench::new(9, |_| {});
    bench.stream(0, "short", MS(1)).await.unwrap().unwrap();
    assert!(bench.page().contains("short"));
    tokio::time::sleep(Duration::from_secs(660)).await;
    let page = bench.page();
    assert!(!page.contains("short"), "{page}");
}

/// What a stream of a random life does.
#[derive(Clone, Copy, Debug)]
struct Plan {
    comes: u64,
    priority: i32,
    flow: u8,
    runs: u64,
    /// Its client leaves so long after it came, if it has not got its answer.
    leaves: Option<u64>,
}

fn plan() -> impl Strategy<Value = Plan> {
    (0..2000_u64, prop::sample::select(vec![10, 0, -1]), 0..4_u8, 0..300_u64, prop::option::weighted(0.3, 0..400_u64))
        .prop_map(|(comes, priority, flow, runs, leaves)| Plan { comes, priority, flow, runs, leaves })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn streams_side_by_side_each_end_once(
        plans in prop::collection::vec(plan(), 1..80),
        flips in prop::collection::vec((0..2500_u64, 0..2_u32), 0..6),
        reloads in prop::collection::vec((0..2500_u64, 1..20_u64), 0..4),
        closes in prop::option::weighted(0.3, 0..2500_u64),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new(2, |s| (s.ttl, s.max_requests) = (Some(MS(400)), Some(15)));
            let mut streams = Vec::new();
            for plan in &plans {
                let (control, pool, plan) = (bench.control.clone(), bench.pool.clone(), *plan);
                streams.push(tokio::spawn(async move {
                    tokio::time::sleep(MS(plan.comes)).await;
                    let life = async {
                        let request = request(plan.priority, &format!("f{}", plan.flow));
                        let departure = control.enter(&request, None).await?;
                        let _running = Running::new(&control, &pool, departure, plan.priority);
                        let most = pool.most.load(Relaxed);
                        assert!(pool.in_flight.load(Relaxed) <= most, "the pool is overrun");
                        tokio::time::sleep(MS(plan.runs)).await;
                        Ok::<(), Refusal>(())
                    };
                    let leaves = plan.leaves.map_or(MS(1_000_000), MS);
                    drop(tokio::time::timeout(leaves, life).await);
                }));
            }
            for (at, n) in &flips {
                let (snapshots, changes, at, n) = (bench.snapshots.clone(), bench.changes.clone(), *at, *n);
                streams.push(tokio::spawn(async move {
                    tokio::time::sleep(MS(at)).await;
                    snapshots.store(Arc::new(endpoints(n)));
                    changes.send_modify(|n| *n += 1);
                }));
            }
            for (at, most) in &reloads {
                let (control, at, most) = (bench.control.clone(), *at, *most);
                let mut new = settings(&bench.pool, &[10, 0], "round-robin-fairness-policy");
                (new.ttl, new.max_requests, new.eviction) = (Some(MS(400)), Some(most), most % 2 == 0);
                streams.push(tokio::spawn(async move {
                    tokio::time::sleep(MS(at)).await;
                    control.reconfigure(Some(new));
                }));
            }
            if let Some(at) = closes {
                let (control, again) = (bench.control.clone(), settings(&bench.pool, &[0], "global-strict-fairness-policy"));
                bench.pool.most.store(1_000_000, Relaxed);
                streams.push(tokio::spawn(async move {
                    tokio::time::sleep(MS(at)).await;
                    control.reconfigure(None);
                    tokio::time::sleep(MS(100)).await;
                    control.reconfigure(Some(again));
                }));
            }
            for stream in streams {
                stream.await.expect("no stream fails");
            }
            settle().await;
            // Whoever comes while the gate is closed is not counted.
            let counted = [bench.sum("requests_total", ""), bench.sum("request_queue_duration_seconds_count", "")];
            assert_eq!(counted[0], counted[1]);
            assert!(closes.is_some() || counted[0] == plans.len() as f64, "{}", bench.page());
            assert_eq!((bench.sum("queue_size", ""), bench.sum("queue_bytes", "")), (0.0, 0.0));
            assert_eq!(bench.pool.in_flight.load(Relaxed), 0);
            let report = bench.control.report(true).expect("the gate is open");
            assert_eq!((report.requests, report.departing), (0, 0));
            bench.task.abort();
        });
    }
}
