//! Requests in engines: sent, counted in flight, and told of until they end or are lost.

use std::time::Duration;

use epp_plugin_api::Usage;
use epp_sim::model::{Event, Happening, Prompt, Refusal, Report, Request};

use super::live::{Live, Part};
use super::picker::Pick;
use super::pool::NotSent;
use super::run::{Run, What};
use super::tally::Ended;

impl Run<'_, '_> {
    /// Sends a request where its pick says, at first to whom computes its prompt.
    pub(super) fn send(&mut self, number: u32, arrived: Duration, pick: Pick) {
        let Pick { row, prefill, ids, lasting } = pick;
        let group = self.job(number).group;
        self.tally.picked(row, group);
        let mut live =
            Live { job: number, arrived, admitted: self.now, first_token: self.now, lasting, part: Part::Whole };
        match prefill {
            Some(first) => {
                self.tally.picked_for_prefill(first);
                live.part = Part::Prefill { then: row };
                self.count(first, 1);
                self.give(first, ids, live);
            }
            None => {
                self.count(row, 1);
                self.give(row, ids, live);
            }
        }
    }

    /// Gives a request, which is counted in flight there, to an engine.
    pub(super) fn give(&mut self, row: usize, ids: Vec<u32>, live: Live) {
        let job = self.job(live.job);
        let output_tokens = if matches!(live.part, Part::Prefill { .. }) { 1 } else { job.output_tokens as usize };
        let request = Request {
            prompt: Prompt::Tokens(ids.into()),
            salt: job.model.into(),
            sample: u64::from(live.job) + 1,
            output_tokens,
        };
        let computed = matches!(live.part, Part::Decode { .. });
        match self.pool.send(row, self.now, &request, computed) {
            Ok(id) => {
                self.live[row].insert(id, live);
                self.schedule(row);
            }
            Err(not) => {
                self.count(row, -1);
                match not {
                    NotSent::Gone => self.lost(live.job, live.arrived, row),
                    NotSent::Refused(refusal) => {
                        let why = match refusal {
                            Refusal::EmptyPrompt => "engine: empty prompt",
                            Refusal::PromptTooLong { .. } => "engine: prompt longer than its cache",
                            Refusal::QueueFull { .. } => "engine: queue full",
                        };
                        self.fail(live.job, why.into());
                    }
                }
            }
        }
    }

    pub(super) fn count(&mut self, row: usize, more: i32) {
        let count = self.pool.count(row, self.now, more);
        self.tally.in_flight(row, self.now, count);
    }

    pub(super) fn schedule(&mut self, row: usize) {
        let next = self.pool.engines[row].next_event().map(|at| at.max(self.now));
        if next != self.scheduled[row] {
            self.scheduled[row] = next;
            self.stamps[row] += 1;
            if let Some(at) = next {
                self.at(at, What::Engine { row: row as u32, stamp: self.stamps[row] });
            }
        }
    }

    pub(super) fn engine_says(&mut self, row: usize, Event { at, what }: Event) {
        match what {
            Happening::Admitted { id, .. } => {
                if let Some(live) = self.live[row].get_mut(&id).filter(|live| live.part.is_first()) {
                    live.admitted = at;
                }
            }
            Happening::Token { id, .. } => {
                if let Some(live) = self.live[row].get_mut(&id).filter(|live| live.part.is_last()) {
                    live.first_token = at;
                    live.lasting.began();
                }
            }
            Happening::Finished { id, report } => {
                let Some(live) = self.live[row].remove(&id) else { return };
                self.count(row, -1);
                match live.part {
                    Part::Prefill { then } => self.transfer(then, live, &report),
                    Part::Whole => self.end(row, at, live, report),
                    Part::Decode { cached_tokens, preemptions } => {
                        let preemptions = preemptions + report.preemptions;
                        self.end(row, at, live, Report { cached_tokens, preemptions, ..report });
                    }
                }
            }
            // Nobody aborts, and steps are not told.
            Happening::Preempted { .. } | Happening::Aborted { .. } | Happening::Step { .. } => {}
        }
    }

    fn end(&mut self, row: usize, at: Duration, live: Live, report: Report) {
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
        if let Some(picker) = self.chooser.picker() {
            let [prompt, completion, cached] =
                [report.prompt_tokens, report.output_tokens, report.cached_tokens].map(|n| Some(n as u64));
            let total = prompt.zip(completion).map(|(prompt, completion)| prompt + completion);
            live.lasting.ended(Usage { prompt, completion, cached, total }, &picker.clock);
        }
        self.tally.ended(row, ended);
        self.over(live.job);
    }
}
