//! Prefill and decode on different engines: the prompt is computed at one, its blocks move, and the other answers.

use std::time::Duration;

use epp_sim::model::{BlockNames, Prompt, Report};

use super::serving::Live;
use super::simulation::{Run, What};

/// What it takes to move the blocks of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Whatever is moved.
    pub fixed: Duration,
    pub per_token: Duration,
}

/// Which part of its work a request is at an engine for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Whole,
    /// It goes on to that row.
    Prefill {
        then: usize,
    },
    /// What the engine that computed the prompt said of it.
    Decode {
        cached_tokens: usize,
        preemptions: usize,
    },
}

/// A request whose blocks are on their way.
pub(super) struct Moving {
    pub to: usize,
    pub live: Live,
    ids: Vec<u32>,
}

impl Part {
    pub fn is_first(&self) -> bool {
        matches!(self, Self::Whole | Self::Prefill { .. })
    }

    pub fn is_last(&self) -> bool {
        matches!(self, Self::Whole | Self::Decode { .. })
    }
}

impl Transfer {
    /// How long it takes to move so many tokens.
    pub fn time(&self, tokens: usize) -> Duration {
        self.fixed.saturating_add(self.per_token.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX)))
    }
}

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
