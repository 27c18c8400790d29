//! What became of the requests, how much memory the picker took, and which rules that breaks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

/// So many examples of what is wrong are kept.
const MOST_EXAMPLES: usize = 5;
/// Memory may grow by so much after it was warm: a part of what it was, or this many MB, whichever is more.
const MAY_GROW: f64 = 0.1;
const MAY_GROW_MB: f64 = 4.0;

#[derive(Debug, Default)]
struct Counts {
    picked: u64,
    left: u64,
    left_later: u64,
    lost: u64,
    ended_badly: u64,
    wrong: u64,
    ended_early: u64,
    /// By status and reason.
    refused: BTreeMap<(i32, String), u64>,
    without_reason: u64,
    /// Milliseconds from asking to the pick, by objective.
    took: BTreeMap<&'static str, Vec<f32>>,
    examples: Vec<String>,
}

/// Outcomes; each request has one.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

impl Tally {
    pub fn picked(&self, took: Duration, objective: Option<&'static str>, wrong: Option<String>) {
        let mut counts = self.0.lock();
        counts.picked += 1;
        counts.took.entry(objective.unwrap_or("none")).or_default().push(took.as_secs_f32() * 1e3);
        if let Some(wrong) = wrong {
            counts.wrong += 1;
            counts.example(format!("wrong pick: {wrong}"));
        }
    }

    /// The client left, before its answer or after it.
    pub fn left(&self, answered: bool) {
        let mut counts = self.0.lock();
        *if answered { &mut counts.left_later } else { &mut counts.left } += 1;
    }

    /// The stream of a request that had its answer broke.
    pub fn ended_badly(&self, why: String) {
        let mut counts = self.0.lock();
        counts.ended_badly += 1;
        counts.example(format!("ended badly: {why}"));
    }

    pub fn lost(&self, why: String) {
        let mut counts = self.0.lock();
        counts.lost += 1;
        counts.example(format!("lost: {why}"));
    }

    pub fn refused(&self, status: i32, reason: Option<String>) {
        let mut counts = self.0.lock();
        counts.without_reason += u64::from(reason.is_none());
        *counts.refused.entry((status, reason.unwrap_or_default())).or_default() += 1;
    }

    /// The picker ended a request that it had let go.
    pub fn ended_early(&self, reason: Option<String>) {
        let mut counts = self.0.lock();
        counts.ended_early += 1;
        counts.without_reason += u64::from(reason.is_none());
    }

    /// The rules that are broken after so many requests.
    pub fn broken(&self, sent: u64) -> Vec<String> {
        let counts = self.0.lock();
        let refused: u64 = counts.refused.values().sum();
        let answered = counts.picked + refused;
        let mut broken = Vec::new();
        let mut rule = |n: u64, what: &str| {
            if n > 0 {
                broken.push(format!("{n} {what}"));
            }
        };
        rule(counts.wrong, "picks are wrong");
        rule(counts.lost, "requests are lost");
        rule(counts.without_reason, "refusals have no reason");
        rule(counts.ended_badly, "streams ended badly");
        rule(sent.abs_diff(answered + counts.left + counts.lost), "requests have no outcome, or two");
        broken.extend(counts.examples.clone());
        broken
    }
}

impl Counts {
    fn example(&mut self, text: String) {
        if self.examples.len() < MOST_EXAMPLES {
            self.examples.push(text);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock();
        writeln!(
            f,
            "picked {}, refused {:?}, left before that {}, left after it {}, ended for others {}, lost {}, wrong {}",
            counts.picked,
            counts.refused,
            counts.left,
            counts.left_later,
            counts.ended_early,
            counts.lost,
            counts.wrong
        )?;
        write!(f, "milliseconds from asking to the pick:")?;
        for (objective, took) in &counts.took {
            let mut took = took.clone();
            took.sort_by(f32::total_cmp);
            let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
            write!(f, " {objective} p50 {:.1} p99 {:.1};", at(0.5), at(0.99))?;
        }
        Ok(())
    }
}

/// What the picker takes over time, in MB.
#[derive(Debug)]
pub struct Memory {
    at_first: f64,
    seen: Mutex<(Vec<f64>, bool)>,
}

impl Memory {
    pub fn new(at_first: f64) -> Self {
        Self { at_first, seen: Mutex::default() }
    }

    pub fn note(&self, mb: f64) {
        let mut seen = self.seen.lock();
        if !seen.1 {
            seen.0.push(mb);
        }
    }

    /// What comes from now on does not count.
    pub fn stop(&self) {
        self.seen.lock().1 = true;
    }

    /// The most once it is warm, from the first sixth of the time to the second, and the least of the last third: a crowd
    /// that waited for a moment goes, what is leaked stays.
    fn warm_and_last(&self) -> (f64, f64) {
        let seen = &self.seen.lock().0;
        let sixth = (seen.len() / 6).max(1);
        let part = |from: usize, to: usize| seen.iter().take(to).skip(from).copied();
        let warm = part(sixth, 2 * sixth).fold(0.0, f64::max);
        (warm, part(seen.len().saturating_sub(2 * sixth), seen.len()).fold(f64::INFINITY, f64::min))
    }

    pub fn broken(&self) -> Option<String> {
        let (warm, last) = self.warm_and_last();
        (last > warm + (warm * MAY_GROW).max(MAY_GROW_MB))
            .then(|| format!("memory grew from {warm:.1} to {last:.1} MB"))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (warm, last) = self.warm_and_last();
        write!(f, "memory: {:.1} MB at first, at most {warm:.1} once warm, at least {last:.1} at last", self.at_first)
    }
}
