//! One round: every request of the work is sent at its time, or as soon as another one has ended, and measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::bench::client::{Answer, Client, Question};
use crate::bench::process::{Memory, Process};
use crate::bench::work::{Pace, Work};

/// Latencies are kept to three digits.
const DIGITS: u8 = 3;

/// How requests are sent, the same for every round.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub pace: Pace,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long a response takes for each of its tokens.
    pub token_time: Duration,
}

/// What came of one round. Only requests after the warm-up are in it.
#[derive(Debug)]
pub struct Round {
    pub sent: usize,
    pub tally: Tally,
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

/// How requests ended.
#[derive(Debug)]
pub struct Tally {
    /// From when a request should have been sent to when its endpoint was known, in nanoseconds.
    pub latency: Histogram<u64>,
    /// The same from when it was sent.
    pub service: Histogram<u64>,
    pub picks: BTreeMap<String, u64>,
    pub refused: u64,
    pub failed: u64,
    /// The first of them.
    pub complaint: Option<String>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new(DIGITS).expect("a histogram may have three digits");
        Self {
            latency: histogram(),
            service: histogram(),
            picks: BTreeMap::new(),
            refused: 0,
            failed: 0,
            complaint: None,
        }
    }
}

impl Tally {
    fn picked(&mut self, destination: &str, latency: Duration, service: Duration) {
        let nanos = |took: Duration| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanos(latency));
        self.service.saturating_record(nanos(service));
        let first = destination.split(',').next().unwrap_or_default();
        match self.picks.get_mut(first) {
            Some(n) => *n += 1,
            None => _ = self.picks.insert(first.to_owned(), 1),
        }
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        self.complaint.get_or_insert_with(what);
    }
}

/// Sends a round. `progress` is told how many requests have ended.
///
/// # Errors
/// If the picker's process cannot be watched.
pub async fn run(
    client: &Arc<Client>,
    work: &Arc<Work>,
    plan: Plan,
    process: Option<Process>,
    progress: &Arc<AtomicUsize>,
) -> anyhow::Result<Round> {
    let sender = Sender {
        client: client.clone(),
        work: work.clone(),
        plan,
        tally: Arc::default(),
        ended: progress.clone(),
        begun: Arc::new(Mutex::new(None)),
        process,
    };
    let issued = match (work.starts(plan.pace), plan.pace) {
        (Some(starts), _) => Some(sender.open_loop(starts).await?),
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
    Ok(Round { sent: work.len() - work.warm_up, tally, issued, took, used })
}

/// When the requests that count begin, and how long the picker had been on a CPU then.
type Begun = Option<(Instant, Option<Duration>)>;

/// What every request of a round needs.
#[derive(Clone)]
struct Sender {
    client: Arc<Client>,
    work: Arc<Work>,
    plan: Plan,
    tally: Arc<Mutex<Tally>>,
    ended: Arc<AtomicUsize>,
    begun: Arc<Mutex<Begun>>,
    process: Option<Process>,
}

impl Sender {
    /// Sends each request at its time, whether or not others have been answered. A thread of its own keeps the times:
    /// timers of the runtime are a millisecond wide.
    async fn open_loop(&self, starts: Vec<Duration>) -> anyhow::Result<Issued> {
        let (runtime, sender) = (Handle::current(), self.clone());
        // Nothing is ever sent: it is over once every request has let go of its end.
        let (running, mut over) = mpsc::channel::<()>(1);
        let paced = tokio::task::spawn_blocking(move || {
            let (began, first) = (Instant::now(), sender.work.warm_up);
            let (mut first_sent, mut last_sent) = (began, began);
            for (at, start) in starts.iter().enumerate() {
                // The body is made before it is time.
                let question = sender.work.question(at);
                sender.count_from(at);
                let intended = began + *start;
                std::thread::sleep(intended.saturating_duration_since(Instant::now()));
                last_sent = Instant::now();
                if at == first {
                    first_sent = last_sent;
                }
                let (sender, running) = (sender.clone(), running.clone());
                runtime.spawn(async move {
                    sender.send(at, question, intended).await;
                    drop(running);
                });
            }
            let asked = starts.last().zip(starts.get(first)).map(|(last, first)| last.saturating_sub(*first));
            Issued { asked: asked.unwrap_or_default(), took: last_sent - first_sent }
        });
        let issued = paced.await?;
        while over.recv().await.is_some() {}
        Ok(issued)
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
        if at == self.work.warm_up {
            *self.begun.lock() = Some((Instant::now(), self.process.and_then(|process| process.on_cpu().ok())));
        }
    }

    async fn send(&self, at: usize, question: Question, intended: Instant) {
        let sent = Instant::now();
        let answer = tokio::time::timeout(self.plan.timeout, self.client.ask(question)).await;
        let answered = Instant::now();
        let counts = at >= self.work.warm_up;
        let mut ended = Ok(());
        match answer {
            Ok(Ok(Answer::Picked(open))) => {
                if counts {
                    self.tally.lock().picked(&open.destination, answered - intended, answered - sent);
                }
                let usage = self.work.usage(at);
                let holds = self.plan.token_time.saturating_mul(usage.completion_tokens);
                let response = async move {
                    // Even no time at all would be a millisecond.
                    if !holds.is_zero() {
                        tokio::time::sleep(holds).await;
                    }
                };
                ended = open.finish(response, usage).await;
            }
            Ok(Ok(Answer::Refused(status))) if counts => {
                let mut tally = self.tally.lock();
                tally.refused += 1;
                tally.complain(|| format!("the picker refused a request with {status}"));
            }
            Ok(Ok(Answer::Refused(_))) => {}
            Ok(Err(why)) => ended = Err(why),
            Err(_) => ended = Err(anyhow::anyhow!("no answer within {:?}", self.plan.timeout)),
        }
        if let (Err(why), true) = (ended, counts) {
            let mut tally = self.tally.lock();
            tally.failed += 1;
            tally.complain(|| format!("{why:#}"));
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}
