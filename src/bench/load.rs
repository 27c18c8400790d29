//! One round: every request of the work is sent at its time, or as soon as another one has ended, and measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::bench::client::Question;
use crate::bench::process::{Memory, Process};
use crate::bench::schedule::{Schedule, Wait};
use crate::bench::tally::Tally;
use crate::bench::target::{Patience, Target};
use crate::bench::work::{Pace, Work};

/// How requests are sent, the same for every round.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub pace: Pace,
    pub patience: Patience,
}

/// What came of one round. Only requests after the warm-up are in it.
#[derive(Debug)]
pub struct Round {
    pub sent: usize,
    pub tally: Tally,
    /// Whether engines answered.
    pub generates: bool,
    /// From the first request to the last, as asked for and as it was; nothing if others' ends decide that.
    pub issued: Option<Issued>,
    /// From the first request to the last answer.
    pub took: Duration,
    pub used: Option<Used>,
}

/// How long sending took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Issued {
    pub asked: Duration,
    pub took: Duration,
}

/// What the picker's process used.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub on_cpu: Duration,
    pub memory: Memory,
}

/// Sends a round. `progress` is told how many requests have ended.
///
/// # Errors
/// If the picker's process cannot be watched.
pub async fn run(
    target: &Arc<Target>,
    work: &Arc<Work>,
    plan: Plan,
    process: Option<Process>,
    progress: &Arc<AtomicUsize>,
) -> anyhow::Result<Round> {
    let sender = Sender {
        target: target.clone(),
        work: work.clone(),
        plan,
        tally: Arc::default(),
        ended: progress.clone(),
        begun: Arc::new(Mutex::new(None)),
        process,
    };
    let issued = match (work.waits(plan.pace), plan.pace) {
        (Some(waits), _) => Some(sender.open_loop(waits).await?),
        (None, Pace::AtOnce(n)) => {
            sender.closed_loop(n).await;
            None
        }
        (None, Pace::Scaled(_) | Pace::Rate(_)) => None,
    };
    let begun = sender.begun.lock().take();
    let (began, cpu_before) = begun.ok_or_else(|| anyhow::anyhow!("expected requests to send, found none"))?;
    let took = began.elapsed();
    let used = match (process, cpu_before) {
        (Some(process), Some(before)) => {
            let on_cpu = process.on_cpu()?.saturating_sub(before);
            Some(Used { on_cpu, memory: process.memory()? })
        }
        (Some(process), None) => return Err(process.on_cpu().err().unwrap_or_else(|| anyhow::anyhow!("no CPU time"))),
        (None, _) => None,
    };
    let tally = std::mem::take(&mut *sender.tally.lock());
    let generates = target.generates();
    Ok(Round { sent: work.len() - work.warm_up, tally, generates, issued, took, used })
}

/// When the requests that count begin, and how long the picker had been on a CPU then.
type Begun = Option<(Instant, Option<Duration>)>;

/// What every request of a round needs.
#[derive(Clone)]
struct Sender {
    target: Arc<Target>,
    work: Arc<Work>,
    plan: Plan,
    tally: Arc<Mutex<Tally>>,
    ended: Arc<AtomicUsize>,
    begun: Arc<Mutex<Begun>>,
    process: Option<Process>,
}

impl Sender {
    /// Sends each request at its time, whether or not others have been answered, unless it waits for these. A thread of
    /// its own keeps the times: timers of the runtime are a millisecond wide.
    async fn open_loop(&self, waits: Vec<Wait>) -> anyhow::Result<Issued> {
        let (runtime, sender) = (Handle::current(), self.clone());
        // Nothing is ever sent: it is over once every request has let go of its end.
        let (running, mut over) = mpsc::channel::<()>(1);
        let issued = tokio::task::spawn_blocking(move || sender.issue(&runtime, waits, running)).await?;
        while over.recv().await.is_some() {}
        Ok(issued)
    }

    fn issue(&self, runtime: &Handle, waits: Vec<Wait>, running: mpsc::Sender<()>) -> Issued {
        // Holds as many ends as there are requests, so that nobody ever waits to tell of his.
        let (ended, ends) = sync_channel(waits.len().max(1));
        let mut schedule = Schedule::new(waits);
        let began = Instant::now();
        let mut prepared = None;
        let mut counted: Option<Counted> = None;
        while !schedule.is_over() {
            let Some((due, at)) = schedule.next() else {
                // All who are left wait for the end of another.
                let Ok((at, when)) = ends.recv() else { break };
                schedule.ended(at, when - began);
                continue;
            };
            // The body is made before it is time.
            let question = prepared.take().filter(|(of, _)| *of == at);
            let question = question.map_or_else(|| self.work.question(at), |(_, question)| question);
            let left = (began + due).saturating_duration_since(Instant::now());
            if let Ok((of, when)) = ends.recv_timeout(left) {
                prepared = Some((at, question));
                schedule.ended(of, when - began);
                continue;
            }
            self.count_from(at);
            let sent = Instant::now();
            schedule.take(sent - began);
            if at >= self.work.warm_up {
                counted.get_or_insert(Counted { first: (due, sent), last: (due, sent) }).last = (due, sent);
            }
            let (sender, end, running) = (self.clone(), End { at, to: ended.clone() }, running.clone());
            runtime.spawn(async move {
                sender.send(at, question, began + due).await;
                drop(end);
                drop(running);
            });
        }
        counted.map_or(Issued { asked: Duration::ZERO, took: Duration::ZERO }, |Counted { first, last }| Issued {
            asked: last.0.saturating_sub(first.0),
            took: last.1 - first.1,
        })
    }

    /// Keeps so many requests under way.
    async fn closed_loop(&self, at_once: usize) {
        let next = AtomicUsize::new(0);
        let worker = || async {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= self.work.len() {
                    return;
                }
                let question = self.work.question(at);
                self.count_from(at);
                let sender = self.clone();
                let sent = tokio::spawn(async move { sender.send(at, question, Instant::now()).await });
                // A task that panics has said so already.
                let _ = sent.await;
            }
        };
        futures_util::future::join_all((0..at_once.clamp(1, self.work.len())).map(|_| worker())).await;
    }

    /// The first request after the warm-up begins what is measured.
    fn count_from(&self, at: usize) {
        let mut begun = self.begun.lock();
        if at >= self.work.warm_up && begun.is_none() {
            *begun = Some((Instant::now(), self.process.and_then(|process| process.on_cpu().ok())));
        }
    }

    async fn send(&self, at: usize, question: Question, intended: Instant) {
        let sent = Instant::now();
        let outcome = self.target.see_through(question, self.work.usage(at), self.plan.patience).await;
        if at >= self.work.warm_up {
            self.tally.lock().add(outcome, self.target.generates(), intended, sent);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tells that a request is over when it is dropped, however it came to that.
struct End {
    at: usize,
    to: SyncSender<(usize, Instant)>,
}

impl Drop for End {
    fn drop(&mut self) {
        // Nobody is left to be told once all have been sent.
        let _ = self.to.send((self.at, Instant::now()));
    }
}

/// When the first and the last request that count were due, and were sent.
struct Counted {
    first: (Duration, Instant),
    last: (Duration, Instant),
}
