//! The shell around the state machine of waiting: hands it what happens, wakes those whom it lets go, and counts.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use epp_plugin_api::{Headers, InferenceRequest, MetricHub, Snapshot};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, interval, sleep_until};

use crate::flow::core::{Core, Effects, Entered, World};
use crate::flow::eviction::Run;
use crate::flow::metrics::{FlowMetrics, FlowSeries};
use crate::flow::outcome::Outcome;
use crate::flow::queue::Arrival;
use crate::flow::refusal::Refusal;
use crate::flow::report::Report;
use crate::flow::settings::Settings;
use crate::flow::ticket::Ticket;

/// How often series of flows are looked for that have been idle as long.
const PRUNE_EVERY: Duration = Duration::from_secs(300);
/// The longest objective that counts; what is longer is a mistake.
const LONGEST_OBJECTIVE: i64 = i64::MAX / 1_000_000;

/// What one that waits is told in the end.
type Verdict = Result<Departure, Outcome>;

/// One that waits.
struct Waiter {
    verdict: oneshot::Sender<Verdict>,
    series: Arc<FlowSeries>,
}

type Live = Core<Waiter, oneshot::Sender<()>>;
type LiveEffects = Effects<Waiter, oneshot::Sender<()>>;

struct State {
    /// `None`: the gate was never open. Stays when it closes, for what is still departing or under way.
    core: Option<Live>,
    is_closed: bool,
    /// When the task looks next.
    armed: Option<Instant>,
    /// What was asked back and has not come, as the page of metrics shows it.
    pending: f64,
}

/// Flow control of the process. Outlives every generation; the gate may open and close.
pub struct Control {
    state: Mutex<State>,
    /// Whether the gate is open, to be looked at without the lock.
    is_on: AtomicBool,
    /// How many wait, to be looked at without the lock.
    waiting: AtomicUsize,
    wake: Notify,
    snapshots: Arc<ArcSwap<Snapshot>>,
    metrics: FlowMetrics,
    /// How late engines say what has changed.
    lag: Duration,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Control({} wait)", self.waiting.load(Ordering::Relaxed))
    }
}

impl Control {
    /// Makes the control of a pool. `settings` are `None` while the gate is off; `lag` is how late engines say what has
    /// changed.
    pub fn new(
        settings: Option<Settings>,
        pool: &str,
        lag: Duration,
        snapshots: Arc<ArcSwap<Snapshot>>,
        hub: &MetricHub,
    ) -> Arc<Self> {
        let control = Arc::new(Self {
            state: Mutex::new(State { core: None, is_closed: false, armed: None, pending: 0.0 }),
            is_on: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            wake: Notify::new(),
            snapshots,
            metrics: FlowMetrics::new(hub, pool),
            lag,
        });
        control.reconfigure(settings);
        control
    }

    /// Looks whenever the endpoints or what is known of them have changed, or a time has come; ends with `changes`.
    pub async fn run(self: Arc<Self>, mut changes: watch::Receiver<u64>) {
        let mut prune = interval(PRUNE_EVERY);
        loop {
            let armed = self.state.lock().armed;
            let due = async move {
                match armed {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = due => {}
                () = self.wake.notified() => continue,
                _ = prune.tick() => {
                    self.metrics.prune();
                    continue;
                }
            }
            self.act(|core, world, effects| core.look(world, effects));
        }
    }

    /// Waits until the request may go. `None`: the gate is off. Dropping what is returned says that the request is now
    /// counted where it went; dropping the future means that the client has left.
    ///
    /// # Errors
    /// If there is no room to wait, it took too long, or the picker shuts down.
    pub async fn enter(
        self: &Arc<Self>,
        request: &InferenceRequest,
        patience: Option<Duration>,
    ) -> Result<Option<Departure>, Refusal> {
        if !self.is_on.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let began = std::time::Instant::now();
        let series = self.metrics.series(&request.fairness_id, request.priority, &request.model, &request.target_model);
        let arrival = Arrival {
            priority: request.priority,
            flow: &request.fairness_id,
            bytes: request.body.len() as u64,
            received: request.received,
            ttft_objective: ttft_objective(&request.headers),
            patience,
        };
        let mut told = None;
        let entered = self.act(|core, world, effects| {
            let payload = || {
                let (verdict, waits) = oneshot::channel();
                told = Some(waits);
                series.came(arrival.bytes);
                Waiter { verdict, series: series.clone() }
            };
            core.arrive(&arrival, payload, world, effects)
        });
        let bytes = arrival.bytes;
        match (entered, told) {
            (None, _) => Ok(None),
            (Some(Entered::Goes), _) => {
                series.handled(None, began.elapsed());
                series.left(Outcome::Dispatched, Duration::ZERO);
                Ok(Some(Departure { control: self.clone(), bytes, waited: None }))
            }
            (Some(Entered::Refused(outcome)), _) => {
                series.handled(Some(outcome), began.elapsed());
                series.left(outcome, Duration::ZERO);
                Err(outcome.refusal().unwrap_or(Refusal::Internal("a request was refused for no reason")))
            }
            (Some(Entered::Waits(ticket)), Some(told)) => {
                series.handled(None, began.elapsed());
                drop(series);
                let _place = Place { control: self, ticket };
                match told.await {
                    Ok(Ok(departure)) => Ok(Some(departure)),
                    Ok(Err(outcome)) => {
                        Err(outcome.refusal().unwrap_or(Refusal::Internal("a request left the queue for no reason")))
                    }
                    Err(_) => Err(Refusal::Internal("a request was lost in the queue")),
                }
            }
            (Some(Entered::Waits(_)), None) => Err(Refusal::Internal("a request was lost on its way to the queue")),
        }
    }

    /// A request gets under way, which has not had to wait since then. Keep what is returned until everything that it
    /// holds has been given back.
    pub fn begin(self: &Arc<Self>, priority: i32, since: Instant) -> Slot {
        let mut told = None;
        let run = self.state.lock().core.as_mut().and_then(|core| {
            core.begin(priority, since, || {
                let (how, evicted) = oneshot::channel();
                told = Some(evicted);
                how
            })
        });
        Slot { control: self.clone(), run, evicted: told }
    }

    /// Something that was in flight is so no more.
    pub fn freed(self: &Arc<Self>) {
        // Whoever takes a place in the queue says so first and looks at what is in flight then; here it is the other way
        // round. So one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.act(|core, world, effects| core.look(world, effects));
        }
    }

    /// Goes on under other settings. With the gate closed, everyone who waits is let go.
    pub fn reconfigure(self: &Arc<Self>, settings: Option<Settings>) {
        let mut state = self.state.lock();
        self.is_on.store(settings.is_some(), Ordering::Relaxed);
        let Some(settings) = settings else {
            drop(state);
            self.act(|core, _, effects| core.release(effects));
            return;
        };
        if state.core.is_none() {
            let snapshot = self.snapshots.load();
            let world = World { snapshot: &snapshot, now: Instant::now() };
            let mut core = Live::new(settings, self.lag, world);
            if state.is_closed {
                core.close(&mut LiveEffects::default());
            }
            state.core = Some(core);
            return;
        }
        drop(state);
        self.act(|core, world, effects| core.reconfigure(settings, world, effects));
    }

    /// Turns away everyone who waits or comes from now on.
    pub fn close(self: &Arc<Self>) {
        self.state.lock().is_closed = true;
        self.act(|core, _, effects| core.close(effects));
    }

    /// Shows how things stand; `None` while the gate is off. With `flows`, also who waits in each band.
    pub fn report(&self, flows: bool) -> Option<Report> {
        let mut state = self.state.lock();
        let snapshot = self.snapshots.load();
        let world = World { snapshot: &snapshot, now: Instant::now() };
        let core = state.core.as_mut().filter(|_| self.is_on.load(Ordering::Relaxed))?;
        let mut report = Report::of(core, world);
        if flows {
            report.add_flows(core, world.now);
        }
        Some(report)
    }

    /// Lets the state machine take a step, and does what follows from it. `None`: the gate was never open.
    fn act<T>(self: &Arc<Self>, step: impl FnOnce(&mut Live, World<'_>, &mut LiveEffects) -> T) -> Option<T> {
        let began = std::time::Instant::now();
        let mut effects = LiveEffects::default();
        let mut state = self.state.lock();
        let State { core, armed, pending, .. } = &mut *state;
        let core = core.as_mut()?;
        // Said before what is in flight is looked at; see `freed`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let snapshot = self.snapshots.load();
        let now = Instant::now();
        let result = step(core, World { snapshot: &snapshot, now }, &mut effects);
        let n_waiting = usize::try_from(core.queue.load().requests).unwrap_or(usize::MAX);
        self.waiting.store(n_waiting, Ordering::Relaxed);
        let next = core.next_look();
        let sooner = next.is_some_and(|next| armed.is_none_or(|armed| next < armed));
        *armed = next;
        let still = core.reclaim.pending();
        if still.total_cmp(&std::mem::replace(pending, still)).is_ne() {
            self.metrics.pending(still);
        }
        drop(state);
        if sooner {
            self.wake.notify_one();
        }
        self.metrics.cycle(began.elapsed());
        self.deliver(effects, now);
        Some(result)
    }

    fn deliver(self: &Arc<Self>, effects: LiveEffects, now: Instant) {
        let Effects { left, evict, revoked_for, confirmed, timed_out } = effects;
        if let Some((priority, target)) = revoked_for {
            self.metrics.revoked(priority, target);
        }
        if let Some(after) = confirmed {
            self.metrics.confirmed(after);
        }
        self.metrics.timed_out(timed_out);
        for how in evict {
            // Who has ended meanwhile hears nothing any more.
            let _ = how.send(());
        }
        for (gone, outcome) in left {
            let Waiter { verdict, series } = gone.payload;
            series.went(gone.bytes);
            let waited = now.saturating_duration_since(gone.since);
            series.left(outcome, waited);
            let told = match outcome {
                Outcome::Dispatched => Ok(Departure { control: self.clone(), bytes: gone.bytes, waited: Some(waited) }),
                outcome => Err(outcome),
            };
            // With its client gone, a departure is given back as it drops.
            drop(verdict.send(told));
        }
    }
}

/// The client's objective for the time to the first token, if it gives a sensible one.
fn ttft_objective(headers: &Headers) -> Option<Duration> {
    let text = headers.find_either("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")?;
    let ms = text.trim().parse::<i64>().ok().filter(|ms| (0..=LONGEST_OBJECTIVE).contains(ms))?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The place of one that waits. Given up when the client leaves.
struct Place<'a> {
    control: &'a Arc<Control>,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        if self.control.waiting.load(Ordering::Relaxed) > 0 {
            self.control.act(|core, world, effects| core.cancel(ticket, world, effects));
        }
    }
}

/// A request that was let go, until it is counted where it went.
#[derive(Debug)]
pub struct Departure {
    control: Arc<Control>,
    bytes: u64,
    waited: Option<Duration>,
}

impl Departure {
    /// How long it waited; `None`: it went at once.
    pub fn waited(&self) -> Option<Duration> {
        self.waited
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let bytes = self.bytes;
        self.control.act(|core, world, effects| core.departed(bytes, world, effects));
    }
}

/// A request under way. Its end lets others go.
#[derive(Debug)]
pub struct Slot {
    control: Arc<Control>,
    run: Option<Run>,
    evicted: Option<oneshot::Receiver<()>>,
}

impl Slot {
    /// Whether the request is to end now, to make room; otherwise wakes the task when it is.
    pub fn poll_evicted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(evicted) = &mut self.evicted else { return Poll::Pending };
        match evicted.poll_unpin(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) => {
                self.evicted = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Some of what it holds was given back.
    pub fn lightened(&self) {
        self.control.freed();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match self.run {
            Some(run) => {
                self.control.act(|core, world, effects| core.end(run, world, effects));
            }
            None => self.control.freed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_that_is_no_sensible_number_is_none() {
        for (text, expected) in [
            ("100", Some(100)),
            (" 500 ", Some(500)),
            ("0", Some(0)),
            ("9223372036854", Some(9_223_372_036_854)),
            ("9223372036855", None),
            ("9300000000000000", None),
            ("99999999999999999999", None),
            ("-1", None),
            ("1e3", None),
            ("1.5", None),
            ("", None),
        ] {
            let mut headers = Headers::default();
            headers.set("x-llm-d-slo-ttft-ms", text.to_owned());
            assert_eq!(ttft_objective(&headers), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn the_new_name_of_the_objective_counts_even_if_its_value_does_not() {
        let mut headers = Headers::default();
        headers.set("x-slo-ttft-ms", "7".to_owned());
        assert_eq!(ttft_objective(&headers), Some(Duration::from_millis(7)));
        headers.set("x-llm-d-slo-ttft-ms", "soon".to_owned());
        assert_eq!(ttft_objective(&headers), None);
    }
}
