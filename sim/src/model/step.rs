//! One step of the batch, or several in a row that are alike.

use std::time::Duration;

use super::blocks::BlockPool;
use super::request::RequestId;
use super::{Model, ModelSettings, Sequence};

/// What a step has taken on so far.
#[derive(Debug, Default)]
pub(super) struct Plan {
    work: Vec<(RequestId, usize)>,
    prefill_tokens: usize,
    decoding: usize,
    context: usize,
}

impl Plan {
    /// Takes on the next `tokens` tokens of a sequence.
    pub(super) fn add(&mut self, sequence: &Sequence, tokens: usize) {
        self.work.push((sequence.id, tokens));
        match sequence.output > 0 && sequence.uncomputed() == 1 {
            true => {
                self.decoding += 1;
                self.context += sequence.computed;
            }
            false => self.prefill_tokens += tokens,
        }
    }

    /// How many requests get one more token of their answers.
    pub(super) fn decoding(&self) -> usize {
        self.decoding
    }
}

/// Steps under way: how many tokens are computed for which request in each of them.
#[derive(Debug)]
pub(super) struct Step {
    began: Duration,
    n: usize,
    /// What the first of them takes, and by how much each one takes longer than the one before.
    first: Duration,
    growth: Duration,
    pub(super) work: Vec<(RequestId, usize)>,
}

impl Step {
    /// Begins `n` steps, all with the work of the plan.
    pub(super) fn new(began: Duration, n: usize, plan: Plan, costs: &ModelSettings) -> Self {
        let mut first = times(costs.prefill_per_token, plan.prefill_tokens);
        if plan.decoding > 0 {
            first = first
                .saturating_add(costs.decode_step)
                .saturating_add(times(costs.decode_per_request, plan.decoding))
                .saturating_add(times(costs.decode_per_context_token, plan.context));
        }
        let growth = times(costs.decode_per_context_token, plan.decoding);
        Self { began, n, first, growth, work: plan.work }
    }

    pub(super) fn began(&self) -> Duration {
        self.began
    }

    pub(super) fn n(&self) -> usize {
        self.n
    }

    /// When the last of them ends.
    pub(super) fn ends(&self) -> Duration {
        self.end_of(self.n)
    }

    /// How many of them have ended by `now`.
    pub(super) fn done(&self, now: Duration) -> usize {
        let (mut done, mut not) = (0, self.n + 1);
        while not - done > 1 {
            let middle = done + (not - done) / 2;
            *if self.end_of(middle) <= now { &mut done } else { &mut not } = middle;
        }
        done
    }

    fn end_of(&self, n: usize) -> Duration {
        let pairs = n.saturating_mul(n.saturating_sub(1)) / 2;
        self.began.saturating_add(times(self.first, n)).saturating_add(times(self.growth, pairs))
    }
}

impl Model {
    /// How many steps can be taken until a request has all its tokens or blocks run out; all requests decode.
    pub(super) fn steps_alike(&self) -> usize {
        let left = self.running.iter().map(|s| s.output_limit.saturating_sub(s.output));
        let mut n = left.min().unwrap_or(1).max(1);
        if self.pool.remembers_changes() {
            // A block that an answer fills is told of when these steps are over.
            n = n.min(self.settings.block_size);
        }
        let free = self.settings.blocks - self.pool.used();
        while n > 1 && self.blocks_behind(n - 1) > free {
            n /= 2;
        }
        n.max(1)
    }

    /// How many blocks sequences need beside those that they hold when `done` more steps have ended and another one is
    /// under way.
    pub(super) fn blocks_behind(&self, done: usize) -> usize {
        if done == 0 {
            return 0;
        }
        let end = |s: &Sequence| (s.computed + done + 1).div_ceil(self.settings.block_size);
        self.running.iter().map(|s| end(s).saturating_sub(s.holding.blocks())).sum()
    }

    /// Lets the steps under way end with the present one, because the next one will differ.
    pub(super) fn cut_steps(&mut self) {
        let now = self.now;
        if let Some(step) = self.step.as_mut().filter(|step| step.n > 1) {
            step.n = (step.done(now) + 1).min(step.n);
        }
    }
}

impl Sequence {
    /// Computes the tokens of `n` steps, the first of which has its block already.
    pub(super) fn decode(&mut self, n: usize, now: Duration, pool: &mut BlockPool, block_size: usize) {
        for _ in 0..n {
            self.generate();
        }
        let taken = self.take_blocks(pool, n, block_size);
        assert!(taken, "there is room for as many steps as were begun");
        self.computed += n;
        self.output += n;
        self.last_token = now;
    }
}

fn times(cost: Duration, n: usize) -> Duration {
    let nanos = cost.as_nanos().saturating_mul(n as u128);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
