//! Sends traffic by one arm, in time that is only counted.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::Duration;

use epp_trace::record::Since;

use super::arm::{Arm, Way};
use super::balance::Balance;
use super::chooser::Chooser;
use super::picker::Picker;
use super::report::ArmReport;
use super::run::{Run, What};
use super::schedule::at_first;
use super::stage::Stage;
use crate::config::Mistake;

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
    let mut run = Run::new(stage, chooser(arm, stage)?, progress);
    run.begin();
    while run.advance() {}
    Ok(run.report(&arm.name))
}

/// Who chooses for an arm.
pub(super) fn chooser(arm: &Arm, stage: &Stage<'_>) -> Result<Chooser, Vec<Mistake>> {
    Ok(match &arm.way {
        Way::Rule(rule) => Chooser::Rule(Balance::of(*rule, stage).into()),
        Way::Config(text) => Chooser::pipeline(Rc::new(Picker::new(text, stage.registry, stage.staleness)?)),
    })
}

impl Run<'_, '_> {
    pub(super) fn begin(&mut self) {
        let n = self.pool.engines.len();
        let there = at_first(self.stage.changes.iter(), n as u32);
        there
            .iter()
            .enumerate()
            .filter(|(_, there)| !**there)
            .for_each(|(row, _)| self.pool.is_not_there_at_first(row));
        for (at, change) in self.stage.changes.iter().enumerate() {
            self.at(change.time(), What::Change(at as u32));
        }
        self.listen();
        self.open_door();
        self.begin_step(0);
    }

    /// What it came to.
    pub(super) fn report(self, name: &str) -> ArmReport {
        ArmReport { notes: self.chooser.passed_over(), ..self.tally.report(name, self.stage.traffic) }
    }

    /// Lets the next thing happen; false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        let next = self.due.peek().map(|Reverse((at, _))| *at);
        let wakes = self.chooser.picker().and_then(|picker| picker.clock.next());
        let Some(at) = next.into_iter().chain(wakes).min() else { return false };
        self.now = self.now.max(at);
        if let Some(picker) = self.chooser.picker() {
            picker.clock.set(self.now);
        }
        if wakes.is_some() {
            self.take_picks();
            self.let_go();
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
            What::Change(at) => self.change(self.stage.changes[at as usize]),
            What::List(row) => self.list(row as usize),
            What::Step(step) => {
                self.pool.reset_caches();
                (0..self.pool.engines.len()).for_each(|row| self.tell_of_cache(row));
                if let Chooser::Rule(balance) = &mut self.chooser {
                    balance.forget();
                }
                self.begin_step(step);
            }
            What::Scrape => self.scrape(),
            What::Publish => self.publish(self.now.saturating_sub(self.stage.scrape_delay)),
            What::Hear => self.hear(),
            What::Moved(job) => self.moved(job),
            What::Look => self.look_at_time(),
            What::Again(job) => {
                let arrived = self.lost_once.get(&job).copied().unwrap_or(self.now);
                self.choose(job, arrived);
            }
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
                    self.tell_of_cache(row);
                    self.schedule(row);
                    self.look();
                }
            }
        }
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
        self.end_lull(self.is_quiet());
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

    /// Whether nothing is under way, and nothing will come but news of that.
    fn is_quiet(&self) -> bool {
        let news =
            |what: &What| matches!(what, What::Scrape | What::Publish | What::Hear | What::Look | What::Engine { .. });
        self.pool.in_flight.iter().all(|n| *n == 0) && self.due.iter().all(|Reverse((_, what))| news(what))
    }

    /// Lets the picker see what engines said last until then.
    fn publish(&mut self, until: Duration) {
        let mut newest = None;
        while self.said.front().is_some_and(|(at, _)| *at <= until) {
            newest = self.said.pop_front();
        }
        if let (Some((at, loads)), Some(_)) = (newest, self.chooser.picker()) {
            self.pool.said(&loads, at);
            self.show_board();
        }
    }

    /// Lets the picker see the board as it is now.
    pub(super) fn show_board(&mut self) {
        if let Some(picker) = self.chooser.picker() {
            let now = picker.clock.instant(self.now);
            picker.board.store(self.pool.snapshot(&picker.clock, now, self.stage.staleness).into());
        }
        self.look();
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
        self.choose(number, self.now);
    }

    pub(super) fn fail(&mut self, job: u32, why: String) {
        self.tally.failed(why, self.now);
        self.over(job);
    }

    /// The request has ended, in whatever way.
    pub(super) fn over(&mut self, number: u32) {
        self.n_open -= 1;
        self.n_over += 1;
        if self.n_over.is_multiple_of(256) || self.n_over == self.stage.traffic.jobs.len() {
            (self.progress)(self.n_over);
        }
        if self.job(number).group.is_some() && self.waiting.range(number).is_empty() {
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
            let follower = self.waiting.follower(at);
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
