//! What programs have had: tokens, requests in flight, and how long they waited.

use std::collections::HashMap;
use std::time::Duration;

use epp_plugin_api::FlowId;
use tokio::time::Instant;

use super::program_metrics::ProgramMetrics;

/// So many programs are remembered.
const MOST_PROGRAMS: usize = 100_000;

/// How long what counts.
#[derive(Clone, Copy, Debug)]
pub struct Remembering {
    /// In what time service counts half; `None`: it always counts whole.
    pub half_life: Option<Duration>,
    /// How long a program is kept that has nothing in flight; `None`: for ever.
    pub forget_after: Option<Duration>,
    pub sweep_every: Duration,
}

#[derive(Debug)]
struct Program {
    service: f64,
    /// When `service` was last brought up to date.
    as_of: Instant,
    in_flight: u64,
    ended: Instant,
    waits: u64,
    /// Milliseconds, over all `waits`.
    waited: f64,
}

impl Program {
    fn average(&self) -> f64 {
        if self.waits == 0 { 0.0 } else { self.waited / self.waits as f64 }
    }

    fn service_at(&self, now: Instant, half_life: Option<Duration>) -> f64 {
        let Some(half_life) = half_life else { return self.service };
        let elapsed = now.saturating_duration_since(self.as_of);
        self.service * (-elapsed.as_secs_f64() / half_life.as_secs_f64()).exp2()
    }
}

/// Every program that is remembered.
pub struct Programs {
    remembering: Remembering,
    metrics: ProgramMetrics,
    known: HashMap<FlowId, Program, foldhash::fast::RandomState>,
    swept: Option<Instant>,
    /// The programs' average waits, and their squares, added up.
    sums: (f64, f64),
}

impl Programs {
    /// Makes an empty set.
    pub fn new(remembering: Remembering, metrics: ProgramMetrics) -> Self {
        Self { remembering, metrics, known: HashMap::default(), swept: None, sums: (0.0, 0.0) }
    }

    /// What the program has had, as it counts now.
    pub fn service(&self, program: &str, now: Instant) -> f64 {
        self.known.get(program).map_or(0.0, |p| p.service_at(now, self.remembering.half_life))
    }

    /// A request of the program goes, after it has waited so long. `None`: there is no room to remember the program.
    pub fn went(&mut self, program: &str, waited: Duration, now: Instant) -> Option<FlowId> {
        self.sweep(now);
        let name: FlowId = match self.known.get_key_value(program) {
            Some((name, _)) => name.clone(),
            None if self.known.len() >= MOST_PROGRAMS => return None,
            None => program.into(),
        };
        let new = || Program { service: 0.0, as_of: now, in_flight: 0, ended: now, waits: 0, waited: 0.0 };
        let one = self.known.entry(name.clone()).or_insert_with(new);
        let before = one.average();
        one.in_flight += 1;
        one.waits += 1;
        one.waited += waited.as_secs_f64() * 1000.0;
        let after = one.average();
        self.sums = (self.sums.0 - before + after, self.sums.1 - before * before + after * after);
        self.metrics.waited(program, after);
        self.metrics.index(self.index());
        Some(name)
    }

    /// An answer to the program was complete, and counts so much.
    pub fn served(&mut self, program: &str, tokens: f64, now: Instant) {
        if let Some(one) = self.known.get_mut(program) {
            one.service = one.service_at(now, self.remembering.half_life) + tokens;
            one.as_of = now;
            self.metrics.served(program, one.service);
        }
    }

    /// A request of the program is over, however it ended.
    pub fn ended(&mut self, program: &str, now: Instant) {
        if let Some(one) = self.known.get_mut(program) {
            one.in_flight = one.in_flight.saturating_sub(1);
            one.ended = one.ended.max(now);
        }
    }

    /// Jain's index of the average waits: 1 if all are equal, 1 / n if one of n waits alone.
    fn index(&self) -> f64 {
        let (sum, squares) = self.sums;
        if self.known.len() <= 1 || squares <= 0.0 || sum <= 0.0 {
            return 1.0;
        }
        (sum * sum / (self.known.len() as f64 * squares)).min(1.0)
    }

    fn sweep(&mut self, now: Instant) {
        let swept = *self.swept.get_or_insert(now);
        let Some(forget_after) = self.remembering.forget_after else { return };
        if now.saturating_duration_since(swept) < self.remembering.sweep_every {
            return;
        }
        self.swept = Some(now);
        let metrics = &mut self.metrics;
        self.known.retain(|name, one| {
            let keep = one.in_flight > 0 || now.saturating_duration_since(one.ended) <= forget_after;
            if !keep {
                metrics.forget(name);
            }
            keep
        });
        let averages = self.known.values().map(Program::average);
        self.sums = averages.fold((0.0, 0.0), |(sum, squares), wait| (sum + wait, squares + wait * wait));
    }

    /// Totals as JSON; programs are not named.
    pub fn report(&self) -> String {
        let in_flight: u64 = self.known.values().map(|one| one.in_flight).sum();
        serde_json::json!({"programs": self.known.len(), "in_flight": in_flight, "fairness_index": self.index()})
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn programs(half_life: u64, forget_after: u64) -> Programs {
        let remembering = Remembering {
            half_life: Some(S(half_life)).filter(|time| !time.is_zero()),
            forget_after: Some(S(forget_after)),
            sweep_every: S(10),
        };
        Programs::new(remembering, ProgramMetrics::new(&Default::default()))
    }

    #[test]
    fn service_halves_in_its_half_life() {
        let (mut all, zero) = (programs(1, 100), Instant::now());
        all.went("p", Duration::ZERO, zero);
        all.served("p", 100.0, zero);
        assert!((all.service("p", zero + S(1)) - 50.0).abs() < 1e-9);
        all.served("p", 10.0, zero + S(1));
        assert!((all.service("p", zero + S(1)) - 60.0).abs() < 1e-9);
        assert!(all.service("p", zero + S(11)) < 0.1);
        assert_eq!(all.service("never seen", zero), 0.0);
    }

    #[test]
    fn a_program_is_forgotten_only_with_nothing_in_flight() {
        let (mut all, zero) = (programs(0, 60), Instant::now());
        all.went("busy", Duration::ZERO, zero);
        all.went("idle", Duration::ZERO, zero);
        all.served("busy", 7.0, zero);
        all.served("idle", 7.0, zero);
        all.ended("idle", zero + S(1));
        all.went("new", Duration::ZERO, zero + S(50));
        assert_eq!(all.service("idle", zero + S(50)), 7.0);
        all.went("new", Duration::ZERO, zero + S(70));
        assert_eq!((all.service("idle", zero + S(70)), all.service("busy", zero + S(70))), (0.0, 7.0));
    }

    #[test]
    fn unequal_waits_lower_the_index() {
        let (mut all, zero) = (programs(0, 60), Instant::now());
        all.went("a", Duration::from_millis(10), zero);
        assert_eq!(all.index(), 1.0);
        all.went("b", Duration::from_millis(10), zero);
        assert!((all.index() - 1.0).abs() < 1e-9);
        all.went("b", Duration::from_millis(1990), zero);
        assert!(all.index() < 0.9, "{}", all.index());
    }
}
