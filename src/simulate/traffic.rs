//! What is sent in a simulation: requests with their times, or what they wait for, made of a trace or of rollouts.

use std::collections::HashMap;
use std::time::Duration;

use epp_trace::prompt::{PromptRef, Rows};
use epp_trace::record::Since;
use epp_trace::reuse::Seen;
use epp_trace::trace::{Prompts, Trace};

use super::rollout::Rollouts;

/// Tokens of an answer of which the trace does not say how long it is.
const UNKNOWN_OUTPUT: u32 = 256;
/// The seed of the first trajectory; others follow.
const TRAJECTORY: u64 = 1 << 40;

/// Everything that is sent.
pub struct Traffic {
    /// In the order of their arrivals, and of the trace.
    pub(super) jobs: Vec<Job>,
    /// Places in `jobs`, each before whoever waits for it.
    after: Vec<u32>,
    /// Models with their adapters; requests of different ones share no cache.
    pub(super) models: Vec<String>,
    /// How many steps there are; each begins when all before it is over.
    pub(super) n_steps: u32,
    /// Between two steps.
    pub(super) pause: Duration,
    /// Prompt tokens that a cache which forgets nothing within a step would have.
    pub(super) reusable_tokens: u64,
    /// What the requests of the trace ask.
    prompts: Option<Prompts>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Since the beginning, or of its step; counts if it waits for nobody.
    pub arrival: Duration,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// The session or trajectory.
    pub session: Option<u32>,
    /// Samples of one prompt have one number.
    pub group: Option<u32>,
    pub step: u32,
    /// A place in the models.
    pub model: u32,
    /// Time after the last of whom it waits for.
    pub gap: Duration,
    pub since: Since,
    after: (usize, u32),
    asks: Asks,
}

#[derive(Clone, Copy, Debug)]
enum Asks {
    /// What the request of the trace at this place asks.
    Traced(u32),
    /// So many tokens of the row of its group, and then those of the row of its trajectory.
    Rows { shared: u32 },
}

impl Traffic {
    /// Takes the first `limit` requests of a trace, on a clock that is `rate` times as fast.
    ///
    /// # Errors
    /// If the trace does not say what is asked.
    pub fn of_trace(trace: Trace, rate: f64, limit: usize) -> Result<Self, String> {
        let scale = |time: Duration| Duration::from_secs_f64((time.as_secs_f64() / rate).min(1e9));
        let mut traffic = Self::empty();
        traffic.jobs.reserve_exact(trace.requests.len().min(limit));
        let mut models = HashMap::new();
        // Samples of one request are requests of their own, so places differ from those in the trace.
        let mut place = Vec::new();
        for (at, request) in trace.requests.iter().enumerate().take(limit) {
            let prompt = trace.prompt(request);
            let Some(prompt_tokens) = prompt.tokens().filter(|tokens| *tokens > 0) else {
                return Err(format!(
                    "request {} has no prompt of known length, so there is nothing to compute",
                    at + 1
                ));
            };
            let who = trace.who(request);
            let name = who.lora.as_ref().or(who.model.as_ref()).map_or("m", |name| &**name);
            let model = *models.entry(name.to_owned()).or_insert_with(|| {
                traffic.models.push(name.to_owned());
                traffic.models.len() as u32 - 1
            });
            let mut after = (traffic.after.len(), 0);
            if let Some(turn) = &request.turn {
                let earlier = trace.after(turn).iter().filter_map(|i| place.get(*i as usize));
                traffic.after.extend(earlier);
                after.1 = (traffic.after.len() - after.0) as u32;
            }
            let job = Job {
                arrival: scale(request.arrival),
                prompt_tokens,
                output_tokens: request.output_tokens.unwrap_or(UNKNOWN_OUTPUT).max(1),
                session: request.turn.map(|turn| turn.session),
                group: request.group,
                step: 0,
                model,
                gap: scale(request.turn.map_or(Duration::ZERO, |turn| turn.gap)),
                since: request.turn.map_or(Since::End, |turn| turn.since),
                after,
                asks: Asks::Traced(at as u32),
            };
            place.push(traffic.jobs.len() as u32);
            traffic.jobs.extend(std::iter::repeat_n(job, request.samples.max(1) as usize));
        }
        traffic.prompts = Some(trace.into_prompts());
        traffic.count_reusable();
        Ok(traffic)
    }

    /// Makes rollouts; the same ones for the same seed.
    pub fn of_rollouts(of: &Rollouts, seed: u64) -> Self {
        let mut traffic = Self { n_steps: of.steps, pause: Duration::from_secs_f64(of.pause), ..Self::empty() };
        traffic.models.push("m".into());
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut group, mut session) = (0, 0);
        for step in 0..of.steps {
            for _ in 0..of.groups {
                let shared = of.prompt_tokens(&mut rng);
                for _ in 0..of.samples {
                    traffic.push_trajectory(of, (step, group, session), shared, &mut rng);
                    session += 1;
                }
                group += 1;
            }
        }
        traffic.count_reusable();
        traffic
    }

    fn push_trajectory(
        &mut self,
        of: &Rollouts,
        (step, group, session): (u32, u32, u32),
        shared: u32,
        rng: &mut fastrand::Rng,
    ) {
        let mut own = 0;
        for turn in 0..of.turns {
            let output_tokens = of.output_tokens(rng);
            let mut after = (self.after.len(), 0);
            if turn > 0 {
                self.after.push(self.jobs.len() as u32 - 1);
                after.1 = 1;
            }
            let tokens = shared.saturating_add(own);
            self.jobs.push(Job {
                arrival: Duration::ZERO,
                prompt_tokens: tokens,
                output_tokens,
                session: Some(session),
                group: Some(group),
                step,
                model: 0,
                gap: if turn > 0 { of.tool_time(rng) } else { Duration::ZERO },
                since: Since::End,
                after,
                asks: Asks::Rows { shared },
            });
            own = own.saturating_add(output_tokens).saturating_add(of.tool);
        }
    }

    fn empty() -> Self {
        Self {
            jobs: Vec::new(),
            after: Vec::new(),
            models: Vec::new(),
            n_steps: 1,
            pause: Duration::ZERO,
            reusable_tokens: 0,
            prompts: None,
        }
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Prompt and output tokens of all.
    pub fn tokens(&self) -> (u64, u64) {
        let add = |(prompt, output), job: &Job| {
            (prompt + u64::from(job.prompt_tokens), output + u64::from(job.output_tokens))
        };
        self.jobs.iter().fold((0, 0), add)
    }

    /// Whom a request waits for.
    pub(super) fn after(&self, job: &Job) -> &[u32] {
        &self.after[job.after.0..job.after.0 + job.after.1 as usize]
    }

    /// The token ids of a prompt. Text stands for itself: four bytes an id.
    pub(super) fn ids(&self, job: &Job) -> Vec<u32> {
        let prompt = self.prompt(job);
        let mut ids = Vec::with_capacity(job.prompt_tokens as usize);
        if let PromptRef::Text { prompt, .. } = prompt {
            ids.extend(prompt.chunks(4).map(|chunk| {
                let mut bytes = [0; 4];
                bytes[..chunk.len()].copy_from_slice(chunk);
                u32::from_le_bytes(bytes)
            }));
        } else {
            prompt.token_ids(&mut ids);
        }
        ids
    }

    fn prompt(&self, job: &Job) -> PromptRef<'_> {
        match (job.asks, &self.prompts) {
            (Asks::Traced(at), Some(prompts)) => prompts.at(at as usize),
            (Asks::Traced(_), None) => PromptRef::Unknown,
            (Asks::Rows { shared }, _) => {
                let [group, session] = [job.group, job.session].map(|number| u64::from(number.unwrap_or_default()));
                let (seed, own) = (1 + group, TRAJECTORY + session);
                PromptRef::Rows(Rows { seed, shared, own, tokens: job.prompt_tokens })
            }
        }
    }

    fn count_reusable(&mut self) {
        let (mut seen, mut step, mut tokens) = (Seen::default(), 0, 0);
        for job in &self.jobs {
            if job.step != step {
                seen.clear();
                step = job.step;
            }
            tokens += seen.add(job.model.into(), self.prompt(job));
        }
        self.reusable_tokens = tokens;
    }
}
