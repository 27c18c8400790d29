//! A simulation under way: what is due, and the state of everything that takes part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use epp_sim::model::{Load, RequestId};
use foldhash::fast::FixedState;

use super::chooser::Chooser;
use super::live::{Live, Moving, Said};
use super::pool::Pool;
use super::stage::Stage;
use super::tally::Tally;
use super::traffic::Job;
use super::waiters::Door;
use super::waiting::Waiting;

/// What happens at a time. Of one moment, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A change to an engine, by its place in the list.
    Change(u32),
    /// The picker comes to know whether an endpoint is there.
    List(u32),
    Step(u32),
    Scrape,
    Publish,
    /// The picker hears the next message about a cache.
    Hear,
    /// The blocks of a prompt have been moved.
    Moved(u32),
    /// Those who wait in the picker are looked at.
    Look,
    /// A request that was lost is picked for again.
    Again(u32),
    Arrive(u32),
    /// Only the newest of an engine counts.
    Engine {
        row: u32,
        stamp: u64,
    },
}

/// A simulation under way.
pub(super) struct Run<'a, 'p> {
    pub stage: &'a Stage<'a>,
    pub progress: &'p mut dyn FnMut(usize),
    pub chooser: Chooser,
    pub pool: Pool,
    pub tally: Tally,
    pub now: Duration,
    pub due: BinaryHeap<Reverse<(Duration, What)>>,
    pub stamps: Vec<u64>,
    pub scheduled: Vec<Option<Duration>>,
    pub live: Vec<HashMap<RequestId, Live, FixedState>>,
    /// Requests whose blocks are on their way, and those that were lost once, with their arrivals.
    pub moving: HashMap<u32, Moving, FixedState>,
    pub lost_once: HashMap<u32, Duration, FixedState>,
    /// Messages about caches that are on their way.
    pub heard: VecDeque<Said>,
    /// Who waits in the picker; `None`: nobody ever does.
    pub door: Option<Door>,
    pub waiting: Waiting,
    /// Requests that have come and not ended.
    pub n_open: usize,
    pub n_over: usize,
    pub scraping: bool,
    pub said: VecDeque<(Duration, Vec<Load>)>,
    pub blocks: Vec<usize>,
    pub step: u32,
    pub step_began: Duration,
    pub n_left_in_step: usize,
    /// The next request of the step that waits for nobody.
    pub next_free: usize,
}

impl<'a, 'p> Run<'a, 'p> {
    pub fn new(stage: &'a Stage<'a>, chooser: Chooser, progress: &'p mut dyn FnMut(usize)) -> Self {
        let n = stage.engines.len();
        Self {
            stage,
            progress,
            chooser,
            pool: Pool::new(&stage.engines, stage.prefill),
            tally: Tally::new(n, stage.traffic),
            now: Duration::ZERO,
            due: BinaryHeap::new(),
            stamps: vec![0; n],
            scheduled: vec![None; n],
            live: (0..n).map(|_| HashMap::default()).collect(),
            moving: HashMap::default(),
            lost_once: HashMap::default(),
            heard: VecDeque::new(),
            door: None,
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

    pub fn job(&self, job: u32) -> &'a Job {
        &self.stage.traffic.jobs[job as usize]
    }

    pub fn at(&mut self, at: Duration, what: What) {
        self.due.push(Reverse((at, what)));
    }
}
