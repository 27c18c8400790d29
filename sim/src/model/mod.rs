//! The engine model: continuous batching, a prefix cache and a waiting queue, in time that the caller tells.
//!
//! It opens no socket, reads no clock and draws no random number: the same calls give the same events.

mod blocks;
#[cfg(test)]
mod blocks_tests;
mod cache;
#[cfg(test)]
mod cache_tests;
mod chain;
mod request;
mod runs;
mod settings;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::cache::CacheChange;
pub use self::chain::VOCABULARY;
pub use self::request::{BlockNames, Event, Happening, Prompt, Refusal, Report, Request, RequestId};
pub use self::settings::{ModelSettings, SettingsError};

use self::blocks::{BlockPool, Holding};
use self::cache::Words;
use self::chain::Chain;
use self::step::{Plan, Step};

/// What an engine is busy with at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests that have a seat.
    pub running: usize,
    /// Requests that wait for one.
    pub waiting: usize,
    /// Blocks that running requests hold.
    pub used_blocks: usize,
    /// Blocks whose content a later prompt could use, held or not.
    pub cached_blocks: usize,
}

/// What an engine tells of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    /// Every token and every step.
    Tokens,
    /// Admissions, first tokens and ends. Steps that are alike are taken at once.
    Ends,
}

/// One engine. Times are durations since its start and never go back; a call with an earlier time counts as the latest.
#[derive(Debug)]
pub struct Model {
    settings: ModelSettings,
    detail: Detail,
    now: Duration,
    next_id: u64,
    pool: BlockPool,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    step: Option<Step>,
    events: Vec<Event>,
    /// What changed in the cache and may be told.
    changes: Vec<CacheChange>,
}

#[derive(Debug)]
struct Sequence {
    id: RequestId,
    chain: Chain,
    /// Its tokens, if the engine tells of its cache.
    words: Option<Words>,
    /// The prompt was computed elsewhere, and its blocks come with the request.
    given: bool,
    sample: u64,
    holding: Holding,
    prompt_tokens: usize,
    asked_tokens: usize,
    output_limit: usize,
    output: usize,
    computed: usize,
    arrived: Duration,
    admitted: Option<Admission>,
    first_token: Duration,
    last_token: Duration,
    preemptions: usize,
}

#[derive(Clone, Copy, Debug)]
struct Admission {
    at: Duration,
    cached_tokens: usize,
}

impl Model {
    /// Makes an idle engine at time zero.
    ///
    /// # Errors
    /// If no such engine can run.
    pub fn new(settings: ModelSettings) -> Result<Self, SettingsError> {
        Self::with_detail(settings, Detail::Tokens)
    }

    /// As [`new`](Self::new), but tells only of admissions, first tokens and ends, at the same times. The work for a
    /// request does not grow with its answer, as long as the batch stays as it is.
    ///
    /// # Errors
    /// If no such engine can run.
    pub fn brief(settings: ModelSettings) -> Result<Self, SettingsError> {
        Self::with_detail(settings, Detail::Ends)
    }

    fn with_detail(settings: ModelSettings, detail: Detail) -> Result<Self, SettingsError> {
        settings.check()?;
        let pool = BlockPool::new(settings.blocks);
        Ok(Self {
            settings,
            detail,
            now: Duration::ZERO,
            next_id: 0,
            pool,
            waiting: VecDeque::new(),
            running: Vec::new(),
            step: None,
            events: Vec::new(),
            changes: Vec::new(),
        })
    }

    /// What the engine was made of.
    pub fn settings(&self) -> &ModelSettings {
        &self.settings
    }

    /// Takes a request in. It waits until a step begins, so requests of one moment can share their first step.
    ///
    /// # Errors
    /// If the engine can never serve it, or if too many wait already.
    pub fn arrive(&mut self, now: Duration, request: &Request) -> Result<RequestId, Refusal> {
        self.take_in(now, request, false)
    }

    /// As [`arrive`](Self::arrive), for a request whose prompt was computed by another engine, and whose blocks come with
    /// it: only the last token of the prompt is computed here, unless the request is preempted.
    ///
    /// # Errors
    /// If the engine can never serve it, or if too many wait already.
    pub fn arrive_computed(&mut self, now: Duration, request: &Request) -> Result<RequestId, Refusal> {
        self.take_in(now, request, true)
    }

    fn take_in(&mut self, now: Duration, request: &Request, given: bool) -> Result<RequestId, Refusal> {
        self.catch_up(now);
        let (tokens, window) = (request.prompt.tokens(), self.settings.window());
        if tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if tokens >= window {
            return Err(Refusal::PromptTooLong { tokens, window });
        }
        if self.waiting.len() >= self.settings.queue {
            return Err(Refusal::QueueFull { queue: self.settings.queue });
        }
        // A full batch stays as it is, whoever waits.
        if self.running.len() < self.settings.seats {
            self.cut_steps();
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.push_back(Sequence {
            id,
            chain: request.prompt.chain(self.settings.block_size, request.salt),
            words: self.pool.remembers_changes().then(|| Words::new(request)),
            given,
            sample: request.sample,
            holding: Holding::default(),
            prompt_tokens: tokens,
            asked_tokens: request.output_tokens,
            output_limit: request.output_tokens.clamp(1, window - tokens),
            output: 0,
            computed: 0,
            arrived: self.now,
            admitted: None,
            first_token: Duration::ZERO,
            last_token: Duration::ZERO,
            preemptions: 0,
        });
        Ok(id)
    }

    /// Takes a request back, waiting or running. Does nothing if it is not there any more.
    pub fn abort(&mut self, now: Duration, id: RequestId) {
        self.catch_up(now);
        self.cut_steps();
        let left = match self.running.iter().position(|s| s.id == id) {
            Some(at) => Some(self.running.remove(at)),
            None => self.waiting.iter().position(|s| s.id == id).and_then(|at| self.waiting.remove(at)),
        };
        if let Some(mut sequence) = left {
            self.pool.release(&mut sequence.holding);
            self.say(Happening::Aborted { id });
        }
    }

    /// Lets time pass until `now` and returns what happened since the last call, in order.
    pub fn advance(&mut self, now: Duration) -> Vec<Event> {
        self.run_to(now);
        std::mem::take(&mut self.events)
    }

    /// When something can happen next if nothing arrives; `None` while the engine is idle.
    pub fn next_event(&self) -> Option<Duration> {
        let work = !(self.running.is_empty() && self.waiting.is_empty());
        match &self.step {
            _ if !self.events.is_empty() => Some(self.now),
            Some(step) => Some(step.ends()),
            None => work.then_some(self.now),
        }
    }

    /// What the engine is busy with.
    pub fn load(&self) -> Load {
        Load {
            running: self.running.len(),
            waiting: self.waiting.len(),
            used_blocks: self.pool.used()
                + self.step.as_ref().map_or(0, |step| self.blocks_behind(step.done(self.now))),
            cached_blocks: self.pool.named(),
        }
    }

    /// How many tokens of the prompt are computed already: whole blocks, and never the last token, which is always
    /// computed.
    pub fn cached_tokens(&self, prompt: &BlockNames) -> usize {
        let reusable = (prompt.tokens.saturating_sub(1)) / self.settings.block_size;
        self.pool.known(&prompt.blocks[..reusable.min(prompt.blocks.len())]) * self.settings.block_size
    }

    /// Forgets every cached block; does nothing and says no while a request holds one.
    pub fn reset_prefix_cache(&mut self) -> bool {
        let cleared = self.pool.clear();
        self.changes.append(&mut self.pool.take_changes());
        cleared
    }

    /// Runs to a later moment, and does not begin a step at the present one.
    fn catch_up(&mut self, now: Duration) {
        if now > self.now {
            self.run_to(now);
        }
    }

    fn run_to(&mut self, now: Duration) {
        loop {
            if self.step.is_none() && !(self.running.is_empty() && self.waiting.is_empty()) {
                self.step = Some(self.begin_step());
            }
            match self.step.take_if(|step| step.ends() <= now) {
                Some(step) => self.end_step(step),
                None => break,
            }
        }
        self.now = self.now.max(now);
    }

    /// Chooses the work of the next step: first those who have a seat, oldest first, then the head of the queue.
    fn begin_step(&mut self) -> Step {
        let mut plan = Plan::default();
        let mut budget = self.settings.step_tokens;
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() && budget > 0 {
            let sequence = &mut self.running[at];
            let tokens = sequence.uncomputed().min(budget);
            if sequence.take_blocks(&mut self.pool, tokens, self.settings.block_size) {
                plan.add(sequence, tokens);
                budget -= tokens;
                at += 1;
            } else {
                self.preempt_newest();
                preempted = true;
            }
        }
        while !preempted && budget > 0 && self.running.len() < self.settings.seats {
            let Some(tokens) = self.admit_head(budget) else { break };
            plan.add(self.running.last().expect("the head was admitted"), tokens);
            budget -= tokens;
        }
        let alike = self.detail == Detail::Ends && !preempted && plan.decoding() == self.running.len();
        let n = if alike { self.steps_alike() } else { 1 };
        Step::new(self.now, n, plan, &self.settings)
    }

    /// Gives a seat to the first in line if its next blocks fit, and returns how many tokens it may compute.
    fn admit_head(&mut self, budget: usize) -> Option<usize> {
        let head = self.waiting.front_mut()?;
        // the last token is always computed: its result is the next token
        let reusable = (head.chain.tokens() - 1) / self.settings.block_size;
        head.holding = self.pool.hold_prefix(&head.chain.blocks()[..reusable]);
        head.computed = head.holding.blocks() * self.settings.block_size;
        let cached_tokens = head.computed;
        let mut tokens = if head.given { head.uncomputed() } else { head.uncomputed().min(budget) };
        if !head.take_blocks(&mut self.pool, tokens, self.settings.block_size) {
            self.pool.release(&mut head.holding);
            head.computed = 0;
            return None;
        }
        if head.given {
            (head.computed, tokens) = (head.prompt_tokens - 1, 1);
        }
        let mut head = self.waiting.pop_front()?;
        if head.admitted.is_none() {
            head.admitted = Some(Admission { at: self.now, cached_tokens });
            self.say(Happening::Admitted { id: head.id, prompt_tokens: head.prompt_tokens, cached_tokens });
        }
        self.running.push(head);
        Some(tokens)
    }

    fn preempt_newest(&mut self) {
        let mut newest = self.running.pop().expect("blocks run out only while something runs");
        self.pool.release(&mut newest.holding);
        newest.computed = 0;
        newest.given = false;
        newest.preemptions += 1;
        self.say(Happening::Preempted { id: newest.id });
        self.waiting.push_front(newest);
    }

    fn end_step(&mut self, step: Step) {
        let (began, n) = (step.began(), step.n());
        self.now = step.ends();
        let (mut tokens, mut next) = (0, 0);
        for (id, computed) in step.work {
            // Work stands in the order of the seats, but for those that were left.
            let at = match self.running.get(next) {
                Some(sequence) if sequence.id == id => Some(next),
                _ => self.running.iter().position(|s| s.id == id),
            };
            let Some(at) = at else { continue };
            next = at + 1;
            let sequence = &mut self.running[at];
            if n > 1 {
                sequence.decode(n, self.now, &mut self.pool, self.settings.block_size);
            } else {
                sequence.computed += computed;
                tokens += computed;
                if sequence.uncomputed() > 0 {
                    continue;
                }
                let token = sequence.next_token(id, self.now);
                if self.detail == Detail::Tokens || sequence.output == 1 {
                    self.events.push(Event { at: self.now, what: token });
                }
            }
            let sequence = &mut self.running[at];
            if sequence.output == sequence.output_limit {
                let mut sequence = self.running.remove(at);
                next = at;
                self.pool.release(&mut sequence.holding);
                self.say(Happening::Finished { id, report: sequence.report() });
            }
        }
        if self.detail == Detail::Tokens {
            self.say(Happening::Step { tokens, took: self.now - began });
        }
        self.changes.append(&mut self.pool.take_changes());
    }

    fn say(&mut self, what: Happening) {
        self.events.push(Event { at: self.now, what });
    }
}

impl Sequence {
    fn uncomputed(&self) -> usize {
        self.chain.tokens() - self.computed
    }

    /// Takes the blocks that the next `tokens` tokens need, and names those that they fill.
    fn take_blocks(&mut self, pool: &mut BlockPool, tokens: usize, block_size: usize) -> bool {
        let end = self.computed + tokens;
        let more = end.div_ceil(block_size) - self.holding.blocks();
        let taken = pool.grow(&mut self.holding, more);
        if taken {
            let full = &self.chain.blocks()[..end / block_size];
            let known = pool.name_full(&mut self.holding, full);
            if let Some(words) = self.words.as_ref().filter(|_| known < full.len()) {
                pool.tell(words.stored(full, known, block_size));
            }
        }
        taken
    }

    fn generate(&mut self) -> u32 {
        let token = self.chain.generate(self.sample);
        if let Some(words) = &mut self.words {
            words.push(token);
        }
        token
    }

    fn next_token(&mut self, id: RequestId, now: Duration) -> Happening {
        let token = self.generate();
        let index = self.output;
        let since = if index == 0 { self.arrived } else { self.last_token };
        if index == 0 {
            self.first_token = now;
        }
        self.last_token = now;
        self.output += 1;
        Happening::Token { id, index, token, since: now - since, last: self.output == self.output_limit }
    }

    fn report(&self) -> Report {
        let admitted = self.admitted.unwrap_or(Admission { at: self.arrived, cached_tokens: 0 });
        Report {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: admitted.cached_tokens,
            output_tokens: self.output,
            asked_tokens: self.asked_tokens,
            preemptions: self.preemptions,
            queued: admitted.at - self.arrived,
            prefill: self.first_token - admitted.at,
            decode: self.last_token - self.first_token,
        }
    }
}
