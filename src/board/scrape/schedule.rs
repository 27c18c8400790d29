//! Board, scraping: when an endpoint is asked next.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest interval; what is configured below it is raised to it.
pub const SHORTEST: Duration = Duration::from_millis(50);

/// The longest wait after failures, unless the interval is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// The interval that all others are multiples of: `interval`, or the shortest interval of a source if that is less.
pub fn base_tick(interval: Duration, sources: impl IntoIterator<Item = Option<Duration>>) -> Duration {
    let sources = sources.into_iter().flatten().filter(|i| !i.is_zero());
    sources.fold(interval, Duration::min).max(SHORTEST)
}

/// The interval of a source, rounded to a multiple of `base` that is at least `base`. `None` and zero: at every tick.
pub fn period(interval: Option<Duration>, base: Duration) -> Duration {
    let ticks = (interval.unwrap_or_default() + base / 2).as_nanos() / base.as_nanos().max(1);
    base.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX).max(1))
}

/// Keeps time for one endpoint and source. Ticks that are missed are left out.
#[derive(Debug)]
pub struct Pacer {
    period: Duration,
    next: Instant,
    failures: u32,
}

impl Pacer {
    /// Starts at `now`; ticks come at `phase`, 0 to 1, within every period.
    pub fn new(period: Duration, now: Instant, phase: f64) -> Self {
        Self { period, next: now + period.mul_f64(phase.clamp(0.0, 1.0)), failures: 0 }
    }

    /// The next tick after `now`, when the engine has answered.
    pub fn answered(&mut self, now: Instant) -> Instant {
        self.failures = 0;
        if self.next <= now {
            let late = (now - self.next).as_nanos() / self.period.as_nanos();
            self.next += self.period.saturating_mul(u32::try_from(late + 1).unwrap_or(u32::MAX));
        }
        self.next
    }

    /// When to try again after `now`, when it could not be reached: waits that double, up to a second.
    pub fn unreachable(&mut self, now: Instant) -> Instant {
        self.failures = (self.failures + 1).min(16);
        let longest = LONGEST_BACKOFF.max(self.period);
        self.next = now + self.period.saturating_mul(1 << (self.failures - 1)).min(longest);
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_base_is_the_shortest_interval_within_bounds() {
        for (flag, sources, expected) in [
            (50, &[][..], 50),
            (10, &[], 50),
            (500, &[None], 500),
            (5000, &[Some(1000), Some(5000)], 1000),
            (500, &[Some(1)], 50),
            (500, &[Some(0)], 500),
        ] {
            let sources = sources.iter().map(|s: &Option<u64>| s.map(MS));
            assert_eq!(base_tick(MS(flag), sources), MS(expected), "{flag}");
        }
    }

    #[test]
    fn intervals_are_rounded_to_whole_ticks() {
        for (interval, expected) in [
            (None, 50),
            (Some(0), 50),
            (Some(50), 50),
            (Some(1000), 1000),
            (Some(5000), 5000),
            (Some(75), 100),
            (Some(130), 150),
            (Some(120), 100),
            (Some(25), 50),
            (Some(1), 50),
        ] {
            assert_eq!(period(interval.map(MS), MS(50)), MS(expected), "{interval:?}");
        }
    }

    #[test]
    fn ticks_keep_their_phase_and_missed_ones_are_left_out() {
        let start = Instant::now();
        let mut pacer = Pacer::new(MS(100), start, 0.3);
        for (now, expected) in [(0, 30), (31, 130), (130, 230), (229, 230), (231, 330), (1000, 1030), (60_029, 60_030)]
        {
            assert_eq!(pacer.answered(start + MS(now)), start + MS(expected), "{now}");
        }
    }

    #[test]
    fn waits_double_while_an_engine_cannot_be_reached() {
        let start = Instant::now();
        let mut pacer = Pacer::new(MS(50), start, 0.0);
        let mut now = start;
        for expected in [50, 100, 200, 400, 800, 1000, 1000] {
            let next = pacer.unreachable(now);
            assert_eq!(next - now, MS(expected));
            now = next;
        }
        assert_eq!(pacer.answered(now) - now, MS(50));
        assert_eq!(pacer.unreachable(now) - now, MS(50));
    }

    #[test]
    fn a_long_interval_is_not_shortened_by_failures() {
        let start = Instant::now();
        let mut pacer = Pacer::new(MS(5000), start, 0.0);
        assert_eq!(pacer.unreachable(start) - start, MS(5000));
        assert_eq!(pacer.unreachable(start) - start, MS(5000));
    }
}
