//! Board, staleness: says in the log when an endpoint's engine falls silent, and not again and again.

use std::time::Duration;

use tokio::time::Instant;

/// How long one endpoint is not named again.
const GAP: Duration = Duration::from_secs(60);

/// As many endpoints are named within [`GAP`].
const MOST: u32 = 5;

/// How long a new endpoint may be silent, if that is longer than the staleness threshold: engines take time to start.
const START: Duration = Duration::from_secs(10);

/// How one endpoint has been heard so far.
#[derive(Debug)]
pub struct Freshness {
    came: Instant,
    heard: Option<bool>,
    named: Option<Instant>,
    told: bool,
}

/// What there is to say of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Stale,
    Back,
}

impl Freshness {
    /// Begins when the endpoint comes.
    pub fn new(now: Instant) -> Self {
        Self { came: now, heard: None, named: None, told: false }
    }

    /// Takes note of whether the endpoint is fresh now.
    pub fn note(&mut self, fresh: bool, staleness: Duration, now: Instant, lines: &mut Lines) -> Option<News> {
        if fresh {
            self.heard = Some(true);
            return std::mem::take(&mut self.told).then_some(News::Back);
        }
        let is_due = match self.heard {
            Some(was_fresh) => was_fresh,
            None => now.saturating_duration_since(self.came) >= staleness.max(START),
        };
        if is_due {
            self.heard = Some(false);
            let was_named = self.named.is_some_and(|at| now.saturating_duration_since(at) < GAP);
            if !was_named && lines.one_more(now) {
                self.named = Some(now);
                self.told = true;
                return Some(News::Stale);
            }
        }
        None
    }
}

/// Counts the endpoints that were named lately.
#[derive(Debug, Default)]
pub struct Lines {
    since: Option<Instant>,
    n: u32,
}

impl Lines {
    fn one_more(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= GAP) {
            *self = Self { since: Some(now), n: 0 };
        }
        self.n += 1;
        self.n <= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALENESS: Duration = Duration::from_secs(2);

    #[track_caller]
    fn check(steps: &[(u64, bool, Option<News>)]) {
        let (start, mut lines) = (Instant::now(), Lines::default());
        let mut freshness = Freshness::new(start);
        for (second, fresh, expected) in steps {
            let now = start + Duration::from_secs(*second);
            assert_eq!(freshness.note(*fresh, STALENESS, now, &mut lines), *expected, "after {second} s");
        }
    }

    #[test]
    fn an_endpoint_that_falls_silent_is_named_once() {
        check(&[(0, true, None), (3, false, Some(News::Stale)), (4, false, None), (70, false, None)]);
    }

    #[test]
    fn an_endpoint_that_comes_and_goes_is_named_once_a_minute() {
        let (stale, back) = (Some(News::Stale), Some(News::Back));
        check(&[
            (0, true, None),
            (3, false, stale),
            (4, true, back),
            (6, false, None),
            (7, true, None),
            (70, false, stale),
            (71, true, back),
        ]);
    }

    #[test]
    fn a_new_endpoint_has_time_to_be_heard() {
        check(&[(0, false, None), (9, false, None), (10, false, Some(News::Stale)), (11, false, None)]);
    }

    #[test]
    fn few_endpoints_are_named_at_once() {
        let (start, mut lines) = (Instant::now(), Lines::default());
        let mut named = |now| {
            let silent = || Freshness { heard: Some(true), ..Freshness::new(start) };
            (0..100).filter_map(|_| silent().note(false, STALENESS, now, &mut lines)).count()
        };
        assert_eq!(named(start), 5);
        assert_eq!(named(start + GAP / 2), 0);
        assert_eq!(named(start + GAP), 5);
    }
}
