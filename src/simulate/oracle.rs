//! The arms that know everything: the true state of the engines and how long answers will be, and with foresight the
//! whole of the traffic that is still to come.
//!
//! Each request goes where it costs least. The cost is in seconds: its own wait and the computing of what is not cached,
//! the wait that this is for others, the reading of its context in the steps of others and of theirs in its own, and, at
//! a multiple, the computing that caches save, with foresight also what is pushed out of them before it is wanted. What is
//! in flight over time is kept even by a cost of its own.
//!
//! It is no bound: it takes one request after the other, guesses when followers will come and how fast caches are
//! overwritten, and never goes back.

use std::collections::HashMap;
use std::time::Duration;

use epp_sim::model::{BlockNames, ModelSettings, Prompt};
use epp_trace::record::Since;
use foldhash::fast::FixedState;

use super::pool::Pool;
use super::stage::Stage;
use super::traffic::Job;

/// It looks at so many blocks of all prompts; of more, at every second, third and so on.
const MOST_BLOCKS: usize = 8_000_000;
/// Blocks that were sent are remembered until there are so many; then it begins anew.
const MOST_SENT: usize = 4_000_000;
/// How far back it looks to tell how fast a cache is overwritten, in seconds.
const MEMORY: f64 = 120.0;

// How much each part counts; found by trying, on the traces of docs/results.
/// A second of computing that is saved or lost by the caches, beside the wait for it.
const REUSE: f64 = 20.0;
/// A second that each request in flight waits for another one's prompt.
const OTHERS: f64 = 3.0;
/// Seconds for an engine that had twice the mean in flight, over time.
const EVEN: f64 = 1.0;
/// Above so many times the mean, and some seconds of one request, an engine gets nothing if any other is below.
const LIMIT: f64 = 1.2;
const LIMIT_SPARE: f64 = 30.0;
const BEYOND_LIMIT: f64 = 1000.0;
/// Seconds for a cache that would have to hold twice what it can.
const CROWDED: f64 = 20.0;

/// How uncertain it is how much will be written until then: by that itself, and by the size of the cache.
const DOUBT: (f64, f64) = (0.3, 0.05);

/// How answers and prompts of earlier requests are taken to delay followers, by the costs of an idle engine.
const BUSY_STEP: f64 = 1.3;
const NEW_PROMPT: f64 = 0.3;

/// What is known of one request before it comes.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// About when it comes, in seconds; 0, where nobody looked.
    at: f64,
    output_tokens: f64,
    /// Where its parts are; none, where nobody looked.
    parts: (u32, u32),
}

/// Blocks of a prompt up to a depth, from where the part before ends, and the next request that begins with them.
#[derive(Clone, Copy, Debug)]
struct Part {
    until: u32,
    next: u32,
}

/// Tokens in a cache that a later request wants.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    tokens: f64,
    next: u32,
    /// About when.
    at: f64,
    /// How much had been written into the cache when they were used last.
    written: f64,
}

/// What it knows of a cache beside what it sees.
#[derive(Clone, Debug, Default)]
struct Cache {
    /// Tokens written into it, ever.
    written: f64,
    /// Tokens a second, of late.
    rate: f64,
    since: f64,
    wanted: Vec<Wanted>,
}

/// The request that is chosen for.
struct Asking<'a> {
    number: u32,
    names: &'a BlockNames,
    now: f64,
    /// By row: how many of its first blocks were sent there a moment ago. They are not cached yet, and will be.
    underway: HashMap<usize, usize, FixedState>,
    /// Requests in flight, summed over time, of an endpoint in the mean.
    mean_area: f64,
}

pub(super) struct Oracle {
    ahead: Vec<Ahead>,
    parts: Vec<Part>,
    came: Vec<bool>,
    caches: Vec<Cache>,
    /// By the name of a block, where it was sent last.
    sent: HashMap<u64, usize, FixedState>,
}

impl Oracle {
    /// Knows of what is to come only how long the answers will be.
    pub fn of_now(stage: &Stage<'_>) -> Self {
        let jobs = &stage.traffic.jobs;
        let ahead = |job: &Job| Ahead { at: 0.0, output_tokens: job.output_tokens.into(), parts: (0, 0) };
        Self {
            ahead: jobs.iter().map(ahead).collect(),
            parts: Vec::new(),
            came: vec![false; jobs.len()],
            caches: vec![Cache::default(); stage.engines.len()],
            sent: HashMap::default(),
        }
    }

    /// Looks at all of the traffic.
    pub fn of_all_time(stage: &Stage<'_>) -> Self {
        let mut oracle = Self::of_now(stage);
        for (ahead, at) in oracle.ahead.iter_mut().zip(about_when(stage)) {
            ahead.at = at;
        }
        oracle.look_ahead(stage);
        oracle
    }

    /// New weights: nothing that was sent is cached any more.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.caches.iter_mut().for_each(|cache| cache.wanted.clear());
    }

    /// The row that costs least, the first of equals; `None` if no engine is there.
    pub fn choose(&mut self, number: u32, names: &BlockNames, pool: &Pool, now: Duration) -> Option<usize> {
        self.came[number as usize] = true;
        let rows: Vec<usize> = pool.listed().iter().copied().filter(|row| pool.is_up(*row)).collect();
        let areas: f64 = rows.iter().map(|row| pool.area(*row, now)).sum();
        let mut underway: HashMap<usize, usize, FixedState> = HashMap::default();
        let sent = names.blocks().iter().map_while(|block| self.sent.get(block));
        sent.for_each(|row| *underway.entry(*row).or_default() += 1);
        let mean_area = areas / rows.len().max(1) as f64;
        let asking = Asking { number, names, now: now.as_secs_f64(), underway, mean_area };
        for row in &rows {
            self.caches[*row].pass(asking.now, &self.came);
        }
        let costs = rows.iter().map(|row| (self.cost(&asking, *row, pool, pool.area(*row, now)), *row));
        let (_, best) = costs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        self.remember(&asking, best, pool);
        Some(best)
    }

    /// Finds for each request who comes next of those that begin alike.
    fn look_ahead(&mut self, stage: &Stage<'_>) {
        let traffic = stage.traffic;
        let size = stage.engines[0].block_size;
        let n_blocks: usize = traffic.jobs.iter().map(|job| job.prompt_tokens as usize / size).sum();
        let stride = n_blocks.div_ceil(MOST_BLOCKS).max(1);
        let mut order: Vec<usize> = (0..traffic.jobs.len()).collect();
        let key = |at: usize| (traffic.jobs[at].step, self.ahead[at].at);
        order.sort_by(|a, b| key(*a).0.cmp(&key(*b).0).then(key(*a).1.total_cmp(&key(*b).1)));
        let mut next: HashMap<u64, u32, FixedState> = HashMap::default();
        let mut step = None;
        for number in order.into_iter().rev() {
            let job = &traffic.jobs[number];
            if step.replace(job.step) != Some(job.step) {
                next.clear();
            }
            let names = BlockNames::new(&Prompt::Tokens(traffic.ids(job).into()), size, job.model.into());
            let begin = self.parts.len();
            let mut shared = true;
            for (at, block) in names.blocks().iter().enumerate().skip(stride - 1).step_by(stride) {
                let then = next.insert(*block, number as u32);
                shared &= then.is_some();
                if let Some(then) = then.filter(|_| shared) {
                    let until = at as u32 + 1;
                    match self.parts[begin..].last_mut().filter(|part| part.next == then) {
                        Some(part) => part.until = until,
                        None => self.parts.push(Part { until, next: then }),
                    }
                }
            }
            self.ahead[number].parts = (begin as u32, self.parts.len() as u32);
        }
    }

    /// The parts of a prompt that are wanted again: how many tokens, by whom, and in how many seconds.
    fn parts(&self, number: u32, block_size: usize) -> impl Iterator<Item = (f64, u32, f64)> {
        let Ahead { at, parts, .. } = self.ahead[number as usize];
        let mut before = 0;
        self.parts[parts.0 as usize..parts.1 as usize].iter().map(move |part| {
            let blocks = (part.until - std::mem::replace(&mut before, part.until)) as usize;
            ((blocks * block_size) as f64, part.next, (self.ahead[part.next as usize].at - at).max(0.0))
        })
    }

    fn remember(&mut self, asking: &Asking<'_>, row: usize, pool: &Pool) {
        let Asking { number, names, now, .. } = *asking;
        let block_size = pool.engines[row].settings().block_size;
        let new = names.tokens() as f64 - asking.cached(row, pool);
        let written = new + self.ahead[number as usize].output_tokens;
        let parts: Vec<_> = self.parts(number, block_size).collect();
        let cache = &mut self.caches[row];
        cache.written += written;
        cache.rate += written / MEMORY;
        let (written, wanted) = (cache.written, &mut cache.wanted);
        wanted.extend(parts.into_iter().map(|(tokens, next, gap)| Wanted { tokens, next, at: now + gap, written }));
        if self.sent.len() > MOST_SENT {
            self.sent.clear();
        }
        self.sent.extend(names.blocks().iter().map(|block| (*block, row)));
    }

    /// What the request costs in seconds if it goes there.
    fn cost(&self, asking: &Asking<'_>, row: usize, pool: &Pool, area: f64) -> f64 {
        let engine = &pool.engines[row];
        let settings = engine.settings();
        let [prefill, a_request, a_token] =
            [settings.prefill_per_token, settings.decode_per_request, settings.decode_per_context_token]
                .map(|cost| cost.as_secs_f64());
        let output = self.ahead[asking.number as usize].output_tokens;
        let (in_flight, uncomputed) = (f64::from(pool.in_flight[row]), engine.uncomputed_tokens() as f64);
        let new = asking.names.tokens() as f64 - asking.cached(row, pool);
        let context = asking.names.tokens() as f64 + output;
        let compute = new * prefill;

        let mine = a_request + context * a_token;
        let theirs = in_flight * a_request + engine.context_tokens() as f64 * a_token;
        let decode = output * (theirs + mine * in_flight);
        let used = (engine.load().used_blocks * settings.block_size) as f64;
        let crowded = ((used + uncomputed + context) / settings.window() as f64 - 1.0).max(0.0);
        let (kept, lost) = self.reuse(asking, &self.caches[row], settings, new + output);
        let mean = asking.mean_area;
        let uneven = (area / (mean + 0.1) - 1.0).max(0.0);
        let beyond = (area - LIMIT * mean - LIMIT_SPARE).max(0.0) / (mean + 1.0);
        uncomputed * prefill
            + compute
            + OTHERS * compute * in_flight
            + decode
            + REUSE * prefill * (new + lost - kept)
            + EVEN * uneven
            + BEYOND_LIMIT * beyond
            + CROWDED * crowded
    }

    /// How many tokens of the prompt will still be there when they are wanted, and how many others are pushed out before
    /// they are, if so many tokens are written.
    fn reuse(&self, asking: &Asking<'_>, cache: &Cache, settings: &ModelSettings, written: f64) -> (f64, f64) {
        let capacity = settings.window() as f64;
        let doubt = |more: f64| DOUBT.0 * more + DOUBT.1 * capacity;
        let rate = cache.rate + written / MEMORY / 2.0;
        let kept = self.parts(asking.number, settings.block_size).map(|(tokens, _, gap)| {
            let more = rate * gap;
            tokens * likely((capacity - more) / doubt(more))
        });
        let lost = cache.wanted.iter().map(|wanted| {
            let more = cache.rate * (wanted.at - asking.now).max(0.0);
            let spare = wanted.written + capacity - cache.written - more;
            wanted.tokens * (likely(spare / doubt(more)) - likely((spare - written) / doubt(more)))
        });
        (kept.sum(), lost.sum())
    }
}

impl Asking<'_> {
    /// Tokens of the prompt that need not be computed there.
    fn cached(&self, row: usize, pool: &Pool) -> f64 {
        let engine = &pool.engines[row];
        let sent = self.underway.get(&row).filter(|_| pool.in_flight[row] > 0).copied().unwrap_or_default();
        let sent = (sent * engine.settings().block_size).min(self.names.tokens().saturating_sub(1));
        engine.cached_tokens(self.names).max(sent) as f64
    }
}

impl Cache {
    /// Time passes, and who has come wants nothing any more.
    fn pass(&mut self, now: f64, came: &[bool]) {
        self.rate *= ((self.since - now).min(0.0) / MEMORY).exp();
        self.since = now;
        self.wanted.retain(|wanted| !came[wanted.next as usize]);
    }
}

/// Turns what is to spare, by the doubt about it, into a probability.
fn likely(spare: f64) -> f64 {
    1.0 / (1.0 + (-2.0 * spare).exp())
}

/// About when each request comes, in seconds since the beginning of its step, if engines have little to do.
fn about_when(stage: &Stage<'_>) -> Vec<f64> {
    let (traffic, settings) = (stage.traffic, &stage.engines[0]);
    let (step, prefill) = (settings.decode_step.as_secs_f64(), settings.prefill_per_token.as_secs_f64());
    let mut times: Vec<f64> = Vec::with_capacity(traffic.jobs.len());
    for job in &traffic.jobs {
        let after = traffic.after(job).iter().map(|of| {
            let earlier = &traffic.jobs[*of as usize];
            let answer = f64::from(earlier.output_tokens) * step * BUSY_STEP;
            let prompt = f64::from(earlier.prompt_tokens) * prefill * NEW_PROMPT;
            times[*of as usize] + if job.since == Since::End { answer + prompt } else { 0.0 }
        });
        let last = after.fold(f64::NEG_INFINITY, f64::max);
        times.push(if last.is_finite() { last + job.gap.as_secs_f64() } else { job.arrival.as_secs_f64() });
    }
    times
}
