//! Prefill and decode on different engines: the prompt is computed at one, its blocks move, and the other answers.

use epp_sim::model::{BlockNames, Prompt, Report};

use super::live::{Live, Moving, Part};
use super::run::{Run, What};

impl Run<'_, '_> {
    /// The prompt is computed: what the other engine has none of begins to move there.
    pub(super) fn transfer(&mut self, to: usize, live: Live, report: &Report) {
        let (number, job) = (live.job, self.job(live.job));
        let ids = self.stage.traffic.ids(job);
        let engine = &self.pool.engines[to];
        let names =
            BlockNames::new(&Prompt::Tokens(ids.as_slice().into()), engine.settings().block_size, job.model.into());
        let there = engine.cached_tokens(&names);
        self.tally.prefilled_elsewhere();
        let part = Part::Decode { cached_tokens: report.cached_tokens, preemptions: report.preemptions };
        self.count(to, 1);
        self.moving.insert(number, Moving { to, live: Live { part, ..live }, ids });
        let time = self.stage.transfer.time(report.prompt_tokens.saturating_sub(there));
        self.at(self.now + time, What::Moved(number));
    }

    /// The blocks have come, if the engine still waits for them.
    pub(super) fn moved(&mut self, number: u32) {
        if let Some(Moving { to, live, ids }) = self.moving.remove(&number) {
            self.give(to, ids, live);
        }
    }
}
