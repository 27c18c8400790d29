//! What is in a trace: lengths, sessions, arrivals, and what a cache could reuse.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::prompt::PromptRef;
use crate::reuse::Seen;
use crate::trace::{Request, Trace};

/// How many parts of its duration a trace is cut in, to count arrivals.
const PARTS: usize = 60;
/// The time over which the working set is taken, in seconds.
const WINDOW_SECONDS: u64 = 300;
/// How many models are named.
const MOST_MODELS: usize = 16;

/// What is in a trace. What it does not say is `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub format: &'static str,
    pub requests: usize,
    /// Bad records that were left out.
    pub skipped: u64,
    pub out_of_order: u64,
    pub duration_seconds: f64,
    pub requests_per_second: Option<f64>,
    /// The coefficient of variation of the gaps between arrivals: 1 is a Poisson process, more comes in bursts.
    pub burstiness: Option<f64>,
    pub arrivals: Arrivals,
    pub prompt_tokens: Option<Spread>,
    pub output_tokens: Option<Spread>,
    pub sessions: Option<Sessions>,
    /// The models with the most requests.
    pub models: Vec<Model>,
    pub reuse: Option<Reuse>,
}

/// How often requests came, over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arrivals {
    pub seconds_each: f64,
    pub requests: Vec<u32>,
}

/// How long things are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub total: u64,
    pub mean: f64,
    pub p50: u32,
    pub p90: u32,
    pub p99: u32,
    pub max: u32,
    /// How many are 0, 1, 2 to 3, 4 to 7, and so on.
    pub by_power_of_two: Vec<u32>,
}

/// Requests that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sessions {
    pub sessions: usize,
    pub turns: Spread,
    /// The median time between a turn and what it waited for; `null` if there is one turn only each.
    pub gap_seconds_p50: Option<f64>,
}

/// Requests of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    pub model: String,
    pub requests: u64,
}

/// What a cache could do for these prompts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reuse {
    pub prompt_tokens: u64,
    /// Tokens at the beginning of a prompt that are also at the beginning of an earlier one for the same model and
    /// adapter: what a cache that forgets nothing would reuse.
    pub reusable_tokens: u64,
    pub share: f64,
    /// What that cache would hold in the end.
    pub unique_tokens: u64,
    pub unique_blocks: Option<u64>,
    pub block_tokens: Option<u32>,
    pub working_set: WorkingSet,
}

/// The unique tokens of the prompts within some minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkingSet {
    pub window_seconds: u64,
    /// Of the fullest window.
    pub tokens_max: u64,
    /// Of those with a request in them.
    pub tokens_mean: u64,
}

impl Summary {
    /// Looks through a trace.
    pub fn of(trace: &Trace) -> Self {
        let duration = trace.duration().as_secs_f64();
        let n_requests = trace.requests.len();
        Self {
            format: trace.format.name(),
            requests: n_requests,
            skipped: trace.skipped.n_records,
            out_of_order: trace.n_out_of_order,
            duration_seconds: duration,
            requests_per_second: (duration > 0.0).then(|| n_requests as f64 / duration),
            burstiness: burstiness(&trace.requests),
            arrivals: arrivals(trace),
            prompt_tokens: spread(trace.requests.iter().filter_map(|request| trace.prompt(request).tokens())),
            output_tokens: spread(trace.requests.iter().filter_map(|request| request.output_tokens)),
            sessions: sessions(trace),
            models: models(trace),
            reuse: reuse(trace),
        }
    }
}

/// `None` if nothing was measured.
fn spread(of: impl Iterator<Item = u32>) -> Option<Spread> {
    let mut all: Vec<u32> = of.collect();
    all.sort_unstable();
    let max = *all.last()?;
    let at = |share: f64| all[((all.len() as f64 * share).ceil() as usize).clamp(1, all.len()) - 1];
    let total = all.iter().map(|n| u64::from(*n)).sum::<u64>();
    let mut by_power_of_two = vec![0; power(max) + 1];
    all.iter().for_each(|n| by_power_of_two[power(*n)] += 1);
    let mean = total as f64 / all.len() as f64;
    Some(Spread { total, mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max, by_power_of_two })
}

/// How many binary digits a number has.
fn power(n: u32) -> usize {
    (u32::BITS - n.leading_zeros()) as usize
}

fn burstiness(requests: &[Request]) -> Option<f64> {
    let gaps = || requests.windows(2).map(|two| (two[1].arrival - two[0].arrival).as_secs_f64());
    let n = gaps().len() as f64;
    let mean = gaps().sum::<f64>() / n;
    let variance = gaps().map(|gap| (gap - mean).powi(2)).sum::<f64>() / n;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

fn arrivals(trace: &Trace) -> Arrivals {
    let duration = trace.duration().as_secs_f64();
    let seconds_each = duration / PARTS as f64;
    let mut requests = vec![0; if duration > 0.0 { PARTS } else { 1 }];
    let last = requests.len() - 1;
    for request in &trace.requests {
        let part = if duration > 0.0 { (request.arrival.as_secs_f64() / seconds_each) as usize } else { 0 };
        requests[part.min(last)] += 1;
    }
    Arrivals { seconds_each, requests }
}

fn sessions(trace: &Trace) -> Option<Sessions> {
    let mut turns: HashMap<u32, u32> = HashMap::new();
    let mut gaps: Vec<Duration> = Vec::new();
    for turn in trace.requests.iter().filter_map(|request| request.turn) {
        *turns.entry(turn.session).or_default() += 1;
        if !trace.after(&turn).is_empty() {
            gaps.push(turn.gap);
        }
    }
    gaps.sort_unstable();
    let gap_seconds_p50 = gaps.get(gaps.len().saturating_sub(1) / 2).map(Duration::as_secs_f64);
    Some(Sessions { sessions: turns.len(), turns: spread(turns.into_values())?, gap_seconds_p50 })
}

fn models(trace: &Trace) -> Vec<Model> {
    let mut requests = vec![0; trace.whos().len()];
    trace.requests.iter().for_each(|request| requests[trace.who_number(request) as usize] += 1);
    let mut by_name: HashMap<&str, u64> = HashMap::new();
    for (who, n) in trace.whos().iter().zip(requests) {
        if let Some(model) = &who.model {
            *by_name.entry(model).or_default() += n;
        }
    }
    let mut models: Vec<Model> =
        by_name.into_iter().map(|(model, requests)| Model { model: model.into(), requests }).collect();
    models.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.model.cmp(&b.model)));
    models.truncate(MOST_MODELS);
    models
}

/// `None` if no prompt is known.
fn reuse(trace: &Trace) -> Option<Reuse> {
    // A cache holds nothing of one model for another one.
    let mut roots: HashMap<(Option<&str>, Option<&str>), u64> = HashMap::new();
    let root: Vec<u64> = trace
        .whos()
        .iter()
        .map(|who| {
            let n = roots.len() as u64;
            *roots.entry((who.model.as_deref(), who.lora.as_deref())).or_insert(n)
        })
        .collect();
    let (mut seen, mut window) = (Seen::default(), Seen::default());
    let (mut prompt_tokens, mut reusable_tokens, mut block_tokens) = (0, 0, None);
    let (mut windows, mut now) = (Vec::new(), 0);
    for request in &trace.requests {
        let at = request.arrival.as_secs() / WINDOW_SECONDS;
        if at != now {
            windows.push(window.n_tokens());
            window.clear();
            now = at;
        }
        let (prompt, root) = (trace.prompt(request), root[trace.who_number(request) as usize]);
        if let PromptRef::Blocks { block_tokens: size, .. } = prompt {
            block_tokens = Some(size);
        }
        prompt_tokens += u64::from(prompt.tokens().unwrap_or(0));
        reusable_tokens += seen.add(root, prompt);
        window.add(root, prompt);
    }
    windows.push(window.n_tokens());
    (prompt_tokens > 0).then(|| Reuse {
        prompt_tokens,
        reusable_tokens,
        share: reusable_tokens as f64 / prompt_tokens as f64,
        unique_tokens: seen.n_tokens(),
        unique_blocks: block_tokens.map(|_| seen.n_blocks()),
        block_tokens,
        working_set: WorkingSet {
            window_seconds: WINDOW_SECONDS,
            tokens_max: windows.iter().copied().max().unwrap_or(0),
            tokens_mean: windows.iter().sum::<u64>() / windows.len() as u64,
        },
    })
}
