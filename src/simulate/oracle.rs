//! The arm that knows everything: the true state of the engines, and the whole of the traffic that is still to come.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use epp_sim::model::{BlockNames, ModelSettings, Prompt};
use foldhash::fast::FixedState;

use super::pool::Pool;
use super::simulation::Stage;

/// It looks at so many blocks of all prompts; of more, at every second, third and so on.
const MOST_BLOCKS: usize = 8_000_000;
/// Blocks that were sent are remembered until there are so many; then it begins anew.
const MOST_SENT: usize = 4_000_000;
/// How far back it looks to tell how fast a cache is overwritten, in seconds.
const MEMORY: f64 = 60.0;

/// What is known of one request before it comes.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// About when it comes, in seconds.
    at: f64,
    /// Where its parts are.
    parts: (u32, u32),
}

/// Blocks of a prompt up to a depth, from where the part before ends, and the next request that begins with them.
#[derive(Clone, Copy, Debug)]
struct Part {
    until: u32,
    next: u32,
}

/// Blocks in a cache that a later request wants.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    tokens: f64,
    next: u32,
    /// About when.
    at: f64,
    /// How much had been written into the cache when they were used last.
    written: f64,
}

/// What it knows of an engine beside what it sees.
#[derive(Clone, Debug, Default)]
struct Cache {
    /// Tokens written into it, ever.
    written: f64,
    /// Tokens a second, of late.
    rate: f64,
    since: f64,
    wanted: VecDeque<Wanted>,
}

pub(super) struct Oracle {
    ahead: Vec<Ahead>,
    parts: Vec<Part>,
    came: Vec<bool>,
    caches: Vec<Cache>,
    /// What is about to be cached: by the name of a block, where it was sent last.
    sent: HashMap<u64, usize, FixedState>,
    outputs: Vec<u32>,
    weights: Weights,
}

/// How much each part of the cost counts.
#[derive(Clone, Copy, Debug)]
struct Weights {
    reuse: f64,
    others: f64,
    even: f64,
    limit: f64,
}

fn var(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

impl Oracle {
    /// Looks at all of the traffic.
    pub fn new(stage: &Stage<'_>) -> Self {
        let traffic = stage.traffic;
        let mut oracle = Self {
            ahead: about_when(stage).into_iter().map(|at| Ahead { at, parts: (0, 0) }).collect(),
            parts: Vec::new(),
            came: vec![false; traffic.jobs.len()],
            caches: vec![Cache::default(); stage.engines.len()],
            sent: HashMap::default(),
            outputs: traffic.jobs.iter().map(|job| job.output_tokens).collect(),
            weights: Weights {
                reuse: var("W_REUSE", 3.0),
                others: var("W_OTHERS", 0.5),
                even: var("W_EVEN", 1.0),
                limit: var("W_LIMIT", 1.2),
            },
        };
        oracle.look_ahead(stage);
        oracle
    }

    /// Finds for each request who comes next of those that begin alike.
    fn look_ahead(&mut self, stage: &Stage<'_>) {
        let traffic = stage.traffic;
        let size = stage.engines[0].block_size;
        let n_blocks: usize = traffic.jobs.iter().map(|job| job.prompt_tokens as usize / size).sum();
        let stride = n_blocks.div_ceil(MOST_BLOCKS).max(1);
        let mut order: Vec<u32> = (0..traffic.jobs.len() as u32).collect();
        order.sort_by(|a, b| {
            let key = |job: &u32| (traffic.jobs[*job as usize].step, self.ahead[*job as usize].at);
            let (a, b) = (key(a), key(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let mut next: HashMap<u64, u32, FixedState> = HashMap::default();
        let mut step = None;
        for number in order.into_iter().rev() {
            let job = &traffic.jobs[number as usize];
            if step.replace(job.step) != Some(job.step) {
                next.clear();
            }
            let names = BlockNames::new(&Prompt::Tokens(traffic.ids(job).into()), size, job.model.into());
            let begin = self.parts.len();
            let mut going = true;
            for (depth, block) in names.blocks().iter().enumerate().skip(stride - 1).step_by(stride) {
                let until = depth as u32 + 1;
                if let Some(then) = next.insert(*block, number).filter(|_| going) {
                    match self.parts[begin..].last_mut().filter(|part| part.next == then) {
                        Some(part) => part.until = until,
                        None => self.parts.push(Part { until, next: then }),
                    }
                } else {
                    going = false;
                }
            }
            self.ahead[number as usize].parts = (begin as u32, self.parts.len() as u32);
        }
    }

    /// New weights: nothing that was sent is cached any more.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.caches.iter_mut().for_each(|cache| cache.wanted.clear());
    }

    /// The row that costs least.
    pub fn choose(&mut self, number: u32, names: &BlockNames, pool: &Pool, now: Duration) -> Option<usize> {
        let now = now.as_secs_f64();
        self.came[number as usize] = true;
        let rows: Vec<usize> = pool.listed().iter().copied().filter(|row| pool.is_up(*row)).collect();
        let mut busy = 0.0;
        for row in &rows {
            let cache = &mut self.caches[*row];
            let passed = (now - cache.since).max(0.0);
            cache.since = now;
            cache.rate *= (-passed / MEMORY).exp();
            let came = &self.came;
            cache.wanted.retain(|wanted| !came[wanted.next as usize]);
            busy += pool.area(*row);
        }
        let mean = busy / rows.len().max(1) as f64;
        // Blocks that were sent somewhere a moment ago are not cached yet, and will be.
        let mut underway: HashMap<usize, usize, FixedState> = HashMap::default();
        let sent = names.blocks().iter().map_while(|block| self.sent.get(block));
        sent.for_each(|row| *underway.entry(*row).or_default() += 1);
        let best = rows.iter().copied().min_by(|a, b| {
            let cost = |row: usize| {
                self.cost(number, row, names, pool, now, mean, underway.get(&row).copied().unwrap_or_default())
            };
            cost(*a).total_cmp(&cost(*b))
        })?;
        let size = pool.engines[best].settings().block_size;
        let cached = self.cached(best, names, pool, underway.get(&best).copied().unwrap_or_default());
        let prompt = names.tokens();
        let written = (prompt - cached) as f64 + f64::from(self.outputs[number as usize]);
        let ahead = self.ahead[number as usize];
        let cache = &mut self.caches[best];
        cache.written += written;
        cache.rate += written / MEMORY;
        let mut before = 0;
        for part in &self.parts[ahead.parts.0 as usize..ahead.parts.1 as usize] {
            let tokens = ((part.until - before) as usize * size) as f64;
            before = part.until;
            let at = now + (self.ahead[part.next as usize].at - ahead.at).max(0.0);
            cache.wanted.push_back(Wanted { tokens, next: part.next, at, written: cache.written });
        }
        if self.sent.len() > MOST_SENT {
            self.sent.clear();
        }
        self.sent.extend(names.blocks().iter().map(|block| (*block, best)));
        Some(best)
    }

    fn cached(&self, row: usize, names: &BlockNames, pool: &Pool, underway: usize) -> usize {
        let engine = &pool.engines[row];
        let sent = if pool.in_flight[row] > 0 { underway * engine.settings().block_size } else { 0 };
        engine.cached_tokens(names).max(sent.min(names.tokens() - 1))
    }

    /// What the request costs in seconds if it goes there.
    fn cost(
        &self,
        number: u32,
        row: usize,
        names: &BlockNames,
        pool: &Pool,
        now: f64,
        mean: f64,
        underway: usize,
    ) -> f64 {
        let (engine, cache) = (&pool.engines[row], &self.caches[row]);
        let settings = engine.settings();
        let prefill = settings.prefill_per_token.as_secs_f64();
        let cached = self.cached(row, names, pool, underway);
        let new = (names.tokens() - cached) as f64;
        let in_flight = f64::from(pool.in_flight[row]);
        let wait = engine.uncomputed_tokens() as f64 * prefill;
        let output = f64::from(self.outputs[number as usize]);
        let context = names.tokens() as f64 + output;
        let each =
            settings.decode_per_request.as_secs_f64() + context * settings.decode_per_context_token.as_secs_f64();
        let theirs = engine.context_tokens() as f64 * settings.decode_per_context_token.as_secs_f64()
            + in_flight * settings.decode_per_request.as_secs_f64();
        let decode = output * (theirs + each * in_flight);
        let capacity = settings.window() as f64;
        let full =
            engine.load().used_blocks as f64 * settings.block_size as f64 + engine.uncomputed_tokens() as f64 + context;
        let crowded = (full / capacity - 1.0).max(0.0) * 20.0;
        let (kept, lost) = self.reuse(number, cache, settings, new + output, now, engine.room());
        let uneven = (pool.area(row) / (mean + 1.0 / 64.0) - 1.0).max(0.0);
        let over = (pool.area(row) - self.weights.limit * mean - 30.0).max(0.0) / (mean + 1.0);
        wait + new * prefill
            + self.weights.others * (new * prefill * in_flight)
            + decode
            + crowded
            + self.weights.reuse * prefill * (new + lost - kept)
            + self.weights.even * uneven
            + over * 1000.0
    }

    /// How many tokens of the request's own prompt will still be there when they are wanted, and how many of others are
    /// pushed out by writing so many.
    fn reuse(
        &self,
        number: u32,
        cache: &Cache,
        settings: &ModelSettings,
        new: f64,
        now: f64,
        room: usize,
    ) -> (f64, f64) {
        let capacity = settings.window() as f64;
        let rate = cache.rate + new / MEMORY / 2.0;
        let ahead = self.ahead[number as usize];
        let mut kept = 0.0;
        let mut before = 0;
        let free = (room * settings.block_size) as f64;
        for part in &self.parts[ahead.parts.0 as usize..ahead.parts.1 as usize] {
            let tokens = ((part.until - before) as usize * settings.block_size) as f64;
            before = part.until;
            let gap = (self.ahead[part.next as usize].at - ahead.at).max(0.0);
            let margin = capacity + 0.0 * free - rate * gap;
            let width = 0.3 * rate * gap + 0.05 * capacity;
            kept += tokens * sure(margin / width);
        }
        let mut lost = 0.0;
        for wanted in &cache.wanted {
            let gap = (wanted.at - now).max(0.0);
            let margin = wanted.written + capacity - cache.written - cache.rate * gap;
            let width = 0.3 * cache.rate * gap + 0.05 * capacity;
            lost += wanted.tokens * (sure(margin / width) - sure((margin - new) / width));
        }
        (kept, lost)
    }
}

/// From 0 to 1.
fn sure(margin: f64) -> f64 {
    1.0 / (1.0 + (-2.0 * margin).exp())
}

/// About when each request comes, in seconds since the beginning of its step, if engines were idle.
fn about_when(stage: &Stage<'_>) -> Vec<f64> {
    let traffic = stage.traffic;
    let settings = &stage.engines[0];
    let step = settings.decode_step.as_secs_f64() * 1.3;
    let prefill = settings.prefill_per_token.as_secs_f64();
    let mut at: Vec<f64> = Vec::with_capacity(traffic.jobs.len());
    for job in &traffic.jobs {
        let after = traffic.after(job).iter().map(|of| {
            let earlier = &traffic.jobs[*of as usize];
            let takes = f64::from(earlier.output_tokens) * step + f64::from(earlier.prompt_tokens) * prefill * 0.3;
            at[*of as usize] + if job.since == epp_trace::record::Since::End { takes } else { 0.0 }
        });
        let free = after.fold(f64::NEG_INFINITY, f64::max);
        at.push(if free.is_finite() { free + job.gap.as_secs_f64() } else { job.arrival.as_secs_f64() });
    }
    at
}
