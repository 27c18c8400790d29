//! Counts what happens in a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use epp_sim::model::Load;

use super::lines::Line;
use super::report::{ArmReport, Histogram, Histograms, RolloutReport, Series, Spread, StepReport, rounded};
use super::traffic::Traffic;

/// Up to so many endpoints are told of one by one.
const MOST_TOLD: usize = 64;
/// Bounds of histograms: the first one, and by how much each is larger than the one before.
const FIRST_BOUND: f64 = 0.001;
/// The fourth root of 2: curves drawn through them are smooth.
const BOUND_RATIO: f64 = 1.189_207_115_002_721;

/// One request from its arrival to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub arrived: Duration,
    pub first_token: Duration,
    pub at: Duration,
    pub admitted: Duration,
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub output_tokens: usize,
    pub preemptions: usize,
}

/// Times of many requests, in nanoseconds.
#[derive(Debug, Default)]
struct Times(Vec<u64>);

/// All counts of one arm.
pub(super) struct Tally {
    requests: u64,
    failures: BTreeMap<String, u64>,
    prompt_tokens: u64,
    output_tokens: u64,
    reused_tokens: u64,
    preemptions: u64,
    retries: u64,
    prefilled_elsewhere: u64,
    ttft: Times,
    tpot: Times,
    e2e: Times,
    wait: Times,
    picks: Vec<u64>,
    last_end: Duration,
    load: InFlight,
    observed: Duration,
    waiting: Line,
    kv_usage: Line,
    rollouts: Vec<Step>,
    /// By group: the row that all went to so far, or that they went apart.
    groups: Vec<Option<Together>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    On(usize),
    Apart,
}

#[derive(Debug, Default)]
struct Step {
    began: Duration,
    trajectories: Vec<Duration>,
    done: Vec<Duration>,
}

/// Requests in flight of every endpoint over time.
struct InFlight {
    counts: Vec<u32>,
    since: Vec<Duration>,
    areas: Vec<f64>,
    lines: Vec<Line>,
    /// How many endpoints have so many in flight.
    with: Vec<usize>,
    most: usize,
    most_since: Duration,
    most_area: f64,
}

impl InFlight {
    fn new(n_endpoints: usize) -> Self {
        Self {
            counts: vec![0; n_endpoints],
            since: vec![Duration::ZERO; n_endpoints],
            areas: vec![0.0; n_endpoints],
            lines: (0..n_endpoints).map(|_| Line::default()).collect(),
            with: vec![n_endpoints],
            most: 0,
            most_since: Duration::ZERO,
            most_area: 0.0,
        }
    }

    fn set(&mut self, row: usize, now: Duration, count: u32) {
        self.settle(row, now);
        let before = std::mem::replace(&mut self.counts[row], count) as usize;
        let after = count as usize;
        if self.with.len() <= after {
            self.with.resize(after + 1, 0);
        }
        self.with[before] -= 1;
        self.with[after] += 1;
        let mut most = self.most.max(after);
        while most > 0 && self.with[most] == 0 {
            most -= 1;
        }
        if most != self.most {
            self.settle_most(now);
            self.most = most;
        }
    }

    fn settle(&mut self, row: usize, now: Duration) {
        let from = std::mem::replace(&mut self.since[row], now);
        let count = f64::from(self.counts[row]);
        self.areas[row] += count * (now - from).as_secs_f64();
        self.lines[row].add(from, now, count);
    }

    fn settle_most(&mut self, now: Duration) {
        let from = std::mem::replace(&mut self.most_since, now);
        self.most_area += self.most as f64 * (now - from).as_secs_f64();
    }
}

impl Tally {
    pub fn new(n_endpoints: usize, traffic: &Traffic) -> Self {
        let n_groups = traffic.jobs.iter().filter_map(|job| job.group).max().map_or(0, |most| most as usize + 1);
        Self {
            requests: 0,
            failures: BTreeMap::new(),
            prompt_tokens: 0,
            output_tokens: 0,
            reused_tokens: 0,
            preemptions: 0,
            retries: 0,
            prefilled_elsewhere: 0,
            ttft: Times::default(),
            tpot: Times::default(),
            e2e: Times::default(),
            wait: Times::default(),
            picks: vec![0; n_endpoints],
            last_end: Duration::ZERO,
            load: InFlight::new(n_endpoints),
            observed: Duration::ZERO,
            waiting: Line::default(),
            kv_usage: Line::default(),
            rollouts: Vec::new(),
            groups: vec![None; n_groups],
        }
    }

    pub fn arrived(&mut self) {
        self.requests += 1;
    }

    pub fn picked(&mut self, row: usize, group: Option<u32>) {
        self.picks[row] += 1;
        if let Some(group) = group {
            let all = &mut self.groups[group as usize];
            *all = match *all {
                None => Some(Together::On(row)),
                Some(Together::On(same)) if same == row => *all,
                Some(_) => Some(Together::Apart),
            };
        }
    }

    pub fn picked_for_prefill(&mut self, row: usize) {
        self.picks[row] += 1;
    }

    pub fn prefilled_elsewhere(&mut self) {
        self.prefilled_elsewhere += 1;
    }

    /// A request that was lost will be picked for once more.
    pub fn retried(&mut self) {
        self.retries += 1;
    }

    pub fn in_flight(&mut self, row: usize, now: Duration, count: u32) {
        self.load.set(row, now, count);
    }

    pub fn failed(&mut self, why: String, now: Duration) {
        *self.failures.entry(why).or_default() += 1;
        self.last_end = self.last_end.max(now);
    }

    pub fn ended(&mut self, row: usize, ended: Ended) {
        let Ended { arrived, first_token, at, admitted, .. } = ended;
        self.prompt_tokens += ended.prompt_tokens as u64;
        self.output_tokens += ended.output_tokens as u64;
        self.reused_tokens += ended.cached_tokens as u64;
        self.preemptions += ended.preemptions as u64;
        self.ttft.push(first_token - arrived);
        self.wait.push(admitted - arrived);
        self.e2e.push(at - arrived);
        if ended.output_tokens > 1 {
            self.tpot.push((at - first_token) / (ended.output_tokens as u32 - 1));
        }
        self.last_end = self.last_end.max(at);
        if let Some(step) = self.rollouts.last_mut() {
            step.done[row] = at;
        }
    }

    /// What engines were busy with until now, since they were looked at before.
    pub fn observed(&mut self, now: Duration, loads: &[Load], blocks: &[usize]) {
        let from = std::mem::replace(&mut self.observed, now);
        let waiting: usize = loads.iter().map(|load| load.waiting).sum();
        let usage: f64 = loads.iter().zip(blocks).map(|(load, blocks)| load.used_blocks as f64 / *blocks as f64).sum();
        self.waiting.add(from, now, waiting as f64);
        self.kv_usage.add(from, now, usage / loads.len().max(1) as f64);
    }

    pub fn step_began(&mut self, now: Duration) {
        self.rollouts.push(Step { began: now, trajectories: Vec::new(), done: vec![now; self.picks.len()] });
    }

    pub fn trajectory_ended(&mut self, now: Duration) {
        if let Some(step) = self.rollouts.last_mut() {
            step.trajectories.push(now - step.began);
        }
    }

    /// Everything, as it is told.
    pub fn report(mut self, name: &str, traffic: &Traffic) -> ArmReport {
        let end = self.last_end;
        (0..self.picks.len()).for_each(|row| self.load.settle(row, end.max(self.load.since[row])));
        self.load.settle_most(end.max(self.load.most_since));
        let rollouts = (traffic.n_steps > 1 || !self.groups.is_empty()).then(|| self.rollout_report());
        let mean_area = self.load.areas.iter().sum::<f64>() / self.picks.len() as f64;
        let over_mean = |most: f64| if mean_area > 0.0 { rounded(most / mean_area) } else { 1.0 };
        let reuse = self.reused_tokens as f64 / traffic.reusable_tokens as f64;
        let most_area = self.load.areas.iter().copied().fold(0.0, f64::max);
        ArmReport {
            name: name.to_owned(),
            requests: self.requests,
            completed: self.e2e.0.len() as u64,
            inflight_max_over_mean: over_mean(most_area),
            inflight_momentary_max_over_mean: over_mean(self.load.most_area),
            failures: self.failures,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            reused_tokens: self.reused_tokens,
            reusable_tokens: traffic.reusable_tokens,
            reuse_share: if traffic.reusable_tokens > 0 { rounded(reuse) } else { 1.0 },
            makespan_seconds: rounded(end.as_secs_f64()),
            preemptions: self.preemptions,
            retries: self.retries,
            prefilled_elsewhere: self.prefilled_elsewhere,
            notes: Vec::new(),
            picks_per_endpoint: self.picks,
            histograms: Histograms {
                ttft: self.ttft.histogram(),
                tpot: self.tpot.histogram(),
                e2e: self.e2e.histogram(),
            },
            ttft_seconds: self.ttft.spread(),
            tpot_seconds: self.tpot.spread(),
            e2e_seconds: self.e2e.spread(),
            wait_seconds: self.wait.spread(),
            series: series(end, self.load.lines, self.waiting, self.kv_usage),
            rollouts,
        }
    }

    fn rollout_report(&self) -> RolloutReport {
        let told = |of: fn(&Step, f64) -> f64| {
            let all = self.rollouts.iter().map(|step| of(step, step.makespan().as_secs_f64()));
            rounded(all.sum::<f64>() / self.rollouts.len().max(1) as f64)
        };
        let together = self.groups.iter().filter(|all| matches!(all, Some(Together::On(_)))).count();
        let n_groups = self.groups.iter().flatten().count().max(1);
        RolloutReport {
            colocated_groups: rounded(together as f64 / n_groups as f64),
            straggler_ratio: told(|step, makespan| makespan / step.after(0.5)),
            tail_share: told(|step, makespan| 1.0 - step.after(0.9) / makespan),
            idle_share: told(|step, makespan| {
                let busy = |done: &Duration| (*done - step.began).as_secs_f64() / makespan;
                1.0 - step.done.iter().map(busy).sum::<f64>() / step.done.len() as f64
            }),
            steps: self.rollouts.iter().map(Step::report).collect(),
        }
    }
}

impl Step {
    fn makespan(&self) -> Duration {
        self.trajectories.iter().max().copied().unwrap_or_default()
    }

    /// When this part of the trajectories was over.
    fn after(&self, part: f64) -> f64 {
        let mut all = self.trajectories.clone();
        all.sort_unstable();
        all.get(rank(all.len(), part)).map_or(0.0, Duration::as_secs_f64)
    }

    fn report(&self) -> StepReport {
        let mut times = Times::default();
        self.trajectories.iter().for_each(|took| times.push(*took));
        let done = self.done.iter().map(|at| rounded((*at - self.began).as_secs_f64()));
        StepReport {
            began_seconds: rounded(self.began.as_secs_f64()),
            makespan_seconds: rounded(self.makespan().as_secs_f64()),
            trajectory_seconds: times.spread(),
            endpoint_done_seconds: if self.done.len() > MOST_TOLD { Vec::new() } else { done.collect() },
        }
    }
}

impl Times {
    fn push(&mut self, time: Duration) {
        self.0.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        let mut bound = FIRST_BOUND;
        let most = self.0.iter().max().map_or(0.0, |most| *most as f64 / 1e9);
        while histogram.bounds.last().is_none_or(|last| *last < most) {
            histogram.bounds.push(rounded(bound));
            bound *= BOUND_RATIO;
        }
        histogram.counts.resize(histogram.bounds.len(), 0);
        for nanos in &self.0 {
            let at = histogram.bounds.partition_point(|bound| *bound < *nanos as f64 / 1e9);
            histogram.counts[at] += 1;
        }
        histogram
    }

    fn spread(mut self) -> Spread {
        self.0.sort_unstable();
        let at = |part: f64| self.0.get(rank(self.0.len(), part)).map_or(0.0, |nanos| rounded(*nanos as f64 / 1e9));
        let sum: u128 = self.0.iter().map(|nanos| u128::from(*nanos)).sum();
        let mean = rounded(sum as f64 / 1e9 / self.0.len() as f64);
        Spread { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// The place of a percentile among `n` sorted values.
fn rank(n: usize, part: f64) -> usize {
    ((n as f64 * part).ceil() as usize).clamp(1, n.max(1)) - 1
}

fn series(end: Duration, lines: Vec<Line>, waiting: Line, kv_usage: Line) -> Series {
    let each = Line::each_for(end);
    let short = |values: Vec<f64>| values.into_iter().map(|v| (v * 1e3).round() / 1e3).collect::<Vec<f64>>();
    let lines: Vec<Vec<f64>> = lines.into_iter().map(|line| short(line.means(each, end))).collect();
    let n = lines.first().map_or(0, Vec::len);
    let column = |at: usize| lines.iter().map(move |line| line[at]);
    Series {
        seconds_each: each.as_secs_f64(),
        in_flight_mean: short((0..n).map(|at| column(at).sum::<f64>() / lines.len() as f64).collect()),
        in_flight_max: short((0..n).map(|at| column(at).fold(0.0, f64::max)).collect()),
        waiting: short(waiting.means(each, end)),
        kv_usage: short(kv_usage.means(each, end)),
        in_flight_per_endpoint: if lines.len() > MOST_TOLD { Vec::new() } else { lines },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_there() {
        let times = Times((1..=100).map(|ms| ms * 1_000_000).collect());
        let spread = times.spread();
        assert_eq!([spread.p50, spread.p90, spread.p99, spread.max], [0.05, 0.09, 0.099, 0.1]);
        assert_eq!(Times::default().spread(), Spread::default());
    }

    #[test]
    fn a_histogram_holds_every_value() {
        let histogram = Times(vec![0, 1_000_000, 1_100_000, 9_000_000_000]).histogram();
        assert_eq!(histogram.counts.iter().sum::<u64>(), 4);
        assert_eq!(histogram.counts[..2], [2, 1]);
        assert_eq!(histogram.counts.len(), histogram.bounds.len());
    }

    #[test]
    fn the_largest_count_is_followed_up_and_down() {
        let mut load = InFlight::new(2);
        let s = Duration::from_secs;
        load.set(0, s(0), 2);
        load.set(1, s(1), 1);
        load.set(0, s(2), 0);
        load.settle_most(s(3));
        assert_eq!((load.most, load.most_area), (1, 2.0 * 2.0 + 1.0));
    }
}
