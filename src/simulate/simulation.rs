//! Sends traffic by one arm, in time that is only counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use epp_plugin_api::{PluginType, Usage};
use epp_sim::model::{BlockNames, Event, Happening, Load, ModelSettings, Prompt, Refusal, Request, RequestId};
use epp_trace::record::Since;
use foldhash::fast::FixedState;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;

use super::arm::{Arm, Way};
use super::balance::{Balance, Known};
use super::picker::{Asked, Lasting, Pick, Picker};
use super::pool::Pool;
use super::report::ArmReport;
use super::tally::{Ended, Tally};
use super::traffic::{Job, Traffic};
use crate::config::Mistake;
use crate::flow::refusal::Refusal as Refused;

/// Where traffic is sent, and what the picker hears of it; the same for all arms.
pub struct Stage<'a> {
    pub traffic: &'a Traffic,
    /// An engine an endpoint; at least one.
    pub engines: Vec<ModelSettings>,
    pub seed: u64,
    /// How often every engine is asked for its load.
    pub scrape_interval: Duration,
    /// How long it takes until the picker knows what an engine said.
    pub scrape_delay: Duration,
    /// How long what an engine said counts.
    pub staleness: Duration,
    /// The plugins that configs may name.
    pub registry: &'a [&'static PluginType],
}

/// What happens at a time. Of one moment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Step(u32),
    Scrape,
    Publish,
    Arrive(u32),
    /// Only the newest of an engine counts.
    Engine {
        row: u32,
        stamp: u64,
    },
}

/// A request in an engine.
struct Live {
    job: u32,
    arrived: Duration,
    admitted: Duration,
    first_token: Duration,
    lasting: Lasting,
}

/// A request that is being picked for.
type Picking = LocalBoxFuture<'static, (u32, Duration, Result<Pick, Refused>)>;

enum Chooser {
    Rule(Box<Balance>),
    Pipeline { picker: Rc<Picker>, picking: FuturesUnordered<Picking>, bell: Arc<Bell> },
}

/// Rings when somebody who waits in a pick can go on.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

struct Run<'a, 'p> {
    stage: &'a Stage<'a>,
    progress: &'p mut dyn FnMut(usize),
    chooser: Chooser,
    pool: Pool,
    tally: Tally,
    now: Duration,
    due: BinaryHeap<Reverse<(Duration, What)>>,
    stamps: Vec<u64>,
    scheduled: Vec<Option<Duration>>,
    live: Vec<HashMap<RequestId, Live, FixedState>>,
    waiting: Waiting,
    /// Requests that have come and not ended.
    n_open: usize,
    n_over: usize,
    scraping: bool,
    said: VecDeque<(Duration, Vec<Load>)>,
    blocks: Vec<usize>,
    step: u32,
    step_began: Duration,
    n_left_in_step: usize,
    /// The next request of the step that waits for nobody.
    next_free: usize,
}

/// Who waits for whom.
struct Waiting {
    /// By request: how many it still waits for.
    n_left: Vec<u32>,
    begin: Vec<u32>,
    followers: Vec<u32>,
}

/// Sends all of the traffic by one arm. Tells `progress` how many requests are over, now and then.
///
/// # Errors
/// With every mistake of the arm's config.
///
/// # Panics
/// If the stage has no engine.
pub fn run(arm: &Arm, stage: &Stage<'_>, progress: &mut dyn FnMut(usize)) -> Result<ArmReport, Vec<Mistake>> {
    assert!(!stage.engines.is_empty(), "a stage has engines");
    // Random choices of plugins and of the pipeline come from this thread's generator.
    fastrand::seed(stage.seed);
    let chooser = match &arm.way {
        Way::Rule(rule) => Chooser::Rule(Balance::new(*rule, stage.engines.len(), stage.seed).into()),
        Way::Config(text) => {
            let picker = Rc::new(Picker::new(text, stage.registry, stage.staleness)?);
            Chooser::Pipeline { picker, picking: FuturesUnordered::new(), bell: Arc::default() }
        }
    };
    let mut run = Run::new(stage, chooser, progress);
    run.begin_step(0);
    while run.advance() {}
    Ok(run.tally.report(&arm.name, stage.traffic))
}

impl<'a, 'p> Run<'a, 'p> {
    fn new(stage: &'a Stage<'a>, chooser: Chooser, progress: &'p mut dyn FnMut(usize)) -> Self {
        let n = stage.engines.len();
        Self {
            stage,
            progress,
            chooser,
            pool: Pool::new(&stage.engines),
            tally: Tally::new(n, stage.traffic),
            now: Duration::ZERO,
            due: BinaryHeap::new(),
            stamps: vec![0; n],
            scheduled: vec![None; n],
            live: (0..n).map(|_| HashMap::default()).collect(),
            waiting: Waiting::new(stage.traffic),
            n_open: 0,
            n_over: 0,
            scraping: false,
            said: VecDeque::new(),
            blocks: stage.engines.iter().map(|settings| settings.blocks).collect(),
            step: 0,
            step_began: Duration::ZERO,
            n_left_in_step: 0,
            next_free: 0,
        }
    }

    /// Lets the next thing happen; false if there is none.
    fn advance(&mut self) -> bool {
        let next = self.due.peek().map(|Reverse((at, _))| *at);
        let wakes = match &self.chooser {
            Chooser::Pipeline { picker, .. } => picker.clock.next(),
            Chooser::Rule(_) => None,
        };
        let Some(at) = next.into_iter().chain(wakes).min() else { return false };
        self.now = self.now.max(at);
        if let Chooser::Pipeline { picker, .. } = &self.chooser {
            picker.clock.set(self.now);
        }
        if wakes.is_some() {
            self.take_picks();
        }
        if next == Some(at)
            && let Some(Reverse((_, what))) = self.due.pop()
        {
            self.happen(what);
        }
        true
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Step(step) => {
                self.pool.reset_caches();
                if let Chooser::Rule(balance) = &mut self.chooser {
                    balance.forget();
                }
                self.begin_step(step);
            }
            What::Scrape => self.scrape(),
            What::Publish => self.publish(self.now.saturating_sub(self.stage.scrape_delay)),
            What::Arrive(job) => {
                if self.job(job).step == self.step && self.stage.traffic.after(self.job(job)).is_empty() {
                    self.send_next_free();
                }
                self.arrive(job);
            }
            What::Engine { row, stamp } => {
                let row = row as usize;
                if self.stamps[row] == stamp {
                    self.scheduled[row] = None;
                    let events = self.pool.work(row, self.now);
                    events.into_iter().for_each(|event| self.engine_says(row, event));
                    self.schedule(row);
                }
            }
        }
    }

    fn job(&self, job: u32) -> &'a Job {
        &self.stage.traffic.jobs[job as usize]
    }

    fn at(&mut self, at: Duration, what: What) {
        self.due.push(Reverse((at, what)));
    }

    fn begin_step(&mut self, step: u32) {
        (self.step, self.step_began) = (step, self.now);
        let jobs = &self.stage.traffic.jobs;
        self.next_free = jobs.partition_point(|job| job.step < step);
        self.n_left_in_step = jobs.partition_point(|job| job.step <= step) - self.next_free;
        self.tally.step_began(self.now);
        self.send_next_free();
    }

    /// Requests that wait for nobody stand in the order of their arrivals, so one of them is known at a time.
    fn send_next_free(&mut self) {
        while let Some(job) = self.stage.traffic.jobs.get(self.next_free).filter(|job| job.step == self.step) {
            self.next_free += 1;
            if self.stage.traffic.after(job).is_empty() {
                self.at(self.step_began + job.arrival, What::Arrive(self.next_free as u32 - 1));
                return;
            }
        }
    }

    fn scrape(&mut self) {
        let loads = self.pool.observe();
        self.tally.observed(self.now, &loads, &self.blocks);
        self.said.push_back((self.now, loads));
        if self.n_open > 0 && self.stage.scrape_delay > Duration::ZERO {
            self.at(self.now + self.stage.scrape_delay, What::Publish);
        } else {
            self.publish(self.now);
        }
        self.scraping = self.n_open > 0;
        if self.scraping {
            self.at(self.now + self.stage.scrape_interval, What::Scrape);
        }
    }

    /// Lets the picker see what engines said last until then.
    fn publish(&mut self, until: Duration) {
        let mut newest = None;
        while self.said.front().is_some_and(|(at, _)| *at <= until) {
            newest = self.said.pop_front();
        }
        if let (Some((at, loads)), Chooser::Pipeline { picker, .. }) = (newest, &self.chooser) {
            let (at, now) = (picker.clock.instant(at), picker.clock.instant(self.now));
            let snapshot = self.pool.snapshot(&loads, at, now, self.stage.staleness);
            picker.board.store(snapshot.into());
        }
    }

    fn arrive(&mut self, number: u32) {
        if !self.scraping {
            // While nothing happened the picker went on hearing that nothing happens.
            self.scrape();
            self.scraping = true;
            self.at(self.now + self.stage.scrape_interval, What::Scrape);
        }
        self.n_open += 1;
        self.tally.arrived();
        self.release(number, Since::Start);
        let job = self.job(number);
        let ids = self.stage.traffic.ids(job);
        match &mut self.chooser {
            Chooser::Rule(balance) => {
                let block_size = self.stage.engines[0].block_size;
                let names = || BlockNames::new(&Prompt::Tokens(ids.as_slice().into()), block_size, job.model.into());
                let known = Known { session: job.session, ids: &ids, names: &names };
                let row = balance.choose(&known, &self.pool);
                self.send(number, self.now, Pick { row, ids, lasting: Lasting::default() });
            }
            Chooser::Pipeline { picker, picking, .. } => {
                let model = self.stage.traffic.models[job.model as usize].clone();
                let asked = Asked { number, session: job.session, model, ids };
                let (picker, now) = (picker.clone(), self.now);
                picking.push(Box::pin(async move { (number, now, picker.pick(asked).await) }));
                self.take_picks();
            }
        }
    }

    /// Sends what has been picked.
    fn take_picks(&mut self) {
        while let Chooser::Pipeline { picking, bell, .. } = &mut self.chooser {
            bell.0.store(false, Relaxed);
            let waker = Waker::from(bell.clone());
            match picking.poll_next_unpin(&mut Context::from_waker(&waker)) {
                Poll::Ready(Some((job, arrived, Ok(pick)))) => self.send(job, arrived, pick),
                Poll::Ready(Some((job, _, Err(refused)))) => {
                    let reason = refused.reason().unwrap_or("refused");
                    self.fail(job, format!("picker: {} {reason}", refused.status()));
                }
                Poll::Ready(None) => return,
                // Not all that can go on have been looked at.
                Poll::Pending if bell.0.load(Relaxed) => {}
                Poll::Pending => return,
            }
        }
    }

    fn send(&mut self, number: u32, arrived: Duration, pick: Pick) {
        let (Pick { row, ids, lasting }, job) = (pick, self.job(number));
        self.tally.picked(row, job.group);
        let request = Request {
            prompt: Prompt::Tokens(ids.into()),
            salt: job.model.into(),
            sample: u64::from(number) + 1,
            output_tokens: job.output_tokens as usize,
        };
        match self.pool.send(row, self.now, &request) {
            Ok(id) => {
                let live = Live { job: number, arrived, admitted: self.now, first_token: self.now, lasting };
                self.live[row].insert(id, live);
                self.count(row, 1);
                self.schedule(row);
            }
            Err(refusal) => {
                let why = match refusal {
                    Refusal::EmptyPrompt => "engine: empty prompt",
                    Refusal::PromptTooLong { .. } => "engine: prompt longer than its cache",
                    Refusal::QueueFull { .. } => "engine: queue full",
                };
                self.fail(number, why.into());
            }
        }
    }

    fn count(&mut self, row: usize, more: i32) {
        let count = &mut self.pool.in_flight[row];
        *count = count.saturating_add_signed(more);
        self.tally.in_flight(row, self.now, *count);
    }

    fn schedule(&mut self, row: usize) {
        let next = self.pool.engines[row].next_event().map(|at| at.max(self.now));
        if next != self.scheduled[row] {
            self.scheduled[row] = next;
            self.stamps[row] += 1;
            if let Some(at) = next {
                self.at(at, What::Engine { row: row as u32, stamp: self.stamps[row] });
            }
        }
    }

    fn engine_says(&mut self, row: usize, Event { at, what }: Event) {
        match what {
            Happening::Admitted { id, .. } => {
                if let Some(live) = self.live[row].get_mut(&id) {
                    live.admitted = at;
                }
            }
            Happening::Token { id, .. } => {
                if let Some(live) = self.live[row].get_mut(&id) {
                    live.first_token = at;
                    live.lasting.began();
                }
            }
            Happening::Finished { id, report } => {
                let Some(live) = self.live[row].remove(&id) else { return };
                let ended = Ended {
                    arrived: live.arrived,
                    first_token: live.first_token,
                    at,
                    admitted: live.admitted,
                    prompt_tokens: report.prompt_tokens,
                    cached_tokens: report.cached_tokens,
                    output_tokens: report.output_tokens,
                    preemptions: report.preemptions,
                };
                if let Chooser::Pipeline { picker, .. } = &self.chooser {
                    let [prompt, completion, cached] =
                        [report.prompt_tokens, report.output_tokens, report.cached_tokens].map(|n| Some(n as u64));
                    let total = prompt.zip(completion).map(|(prompt, completion)| prompt + completion);
                    live.lasting.ended(Usage { prompt, completion, cached, total }, &picker.clock);
                }
                self.count(row, -1);
                self.tally.ended(row, ended);
                self.over(live.job);
            }
            // Nobody aborts, and steps are not told.
            Happening::Preempted { .. } | Happening::Aborted { .. } | Happening::Step { .. } => {}
        }
    }

    fn fail(&mut self, job: u32, why: String) {
        self.tally.failed(why, self.now);
        self.over(job);
    }

    /// The request has ended, in whatever way.
    fn over(&mut self, number: u32) {
        self.n_open -= 1;
        self.n_over += 1;
        if self.n_over.is_multiple_of(256) || self.n_over == self.stage.traffic.jobs.len() {
            (self.progress)(self.n_over);
        }
        if self.job(number).group.is_some() && self.waiting.followers(number).is_empty() {
            self.tally.trajectory_ended(self.now);
        }
        self.release(number, Since::End);
        self.n_left_in_step -= 1;
        if self.n_left_in_step == 0 && self.step + 1 < self.stage.traffic.n_steps {
            self.at(self.now + self.stage.traffic.pause, What::Step(self.step + 1));
        }
    }

    /// Those who wait for this, and for nothing else any more, will come.
    fn release(&mut self, number: u32, happened: Since) {
        for at in self.waiting.range(number) {
            let follower = self.waiting.followers[at];
            let job = self.job(follower);
            if job.since == happened {
                let left = &mut self.waiting.n_left[follower as usize];
                *left -= 1;
                if *left == 0 {
                    self.at(self.now + job.gap, What::Arrive(follower));
                }
            }
        }
    }
}

impl Waiting {
    fn new(traffic: &Traffic) -> Self {
        let n = traffic.jobs.len();
        let mut begin = vec![0_u32; n + 1];
        let all =
            || traffic.jobs.iter().enumerate().flat_map(|(at, job)| traffic.after(job).iter().map(move |of| (at, *of)));
        all().for_each(|(_, of)| begin[of as usize + 1] += 1);
        (0..n).for_each(|at| begin[at + 1] += begin[at]);
        let mut next = begin.clone();
        let mut followers = vec![0; begin[n] as usize];
        for (at, of) in all() {
            followers[next[of as usize] as usize] = at as u32;
            next[of as usize] += 1;
        }
        let n_left = traffic.jobs.iter().map(|job| traffic.after(job).len() as u32).collect();
        Self { n_left, begin, followers }
    }

    fn range(&self, of: u32) -> std::ops::Range<usize> {
        self.begin[of as usize] as usize..self.begin[of as usize + 1] as usize
    }

    fn followers(&self, of: u32) -> &[u32] {
        &self.followers[self.range(of)]
    }
}
