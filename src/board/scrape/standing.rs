//! Board, scraping: says in the log when an endpoint stops being readable, and not again and again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How a source stands with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Unknown,
    /// Pages come and show what is wanted.
    Good,
    /// Pages come and lack something.
    Lacking,
    /// No pages come.
    Failing,
}

/// Bounds the warnings of all endpoints together: so many within a while; the rest is left out.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Option<(Instant, u32)>>);

impl Warnings {
    const MOST: u32 = 5;
    const WHILE: Duration = Duration::from_secs(10);

    /// Whether there may be one more warning at `now`; counts it.
    pub fn one_more(&self, now: Instant) -> bool {
        let mut since = self.0.lock();
        match since.as_mut() {
            Some((start, n)) if now.saturating_duration_since(*start) < Self::WHILE => {
                *n += 1;
                *n <= Self::MOST
            }
            Some(_) | None => {
                *since = Some((now, 1));
                true
            }
        }
    }
}

/// Remembers how an endpoint stands, to tell of changes for the worse.
#[derive(Debug)]
pub struct Record {
    standing: Standing,
    warned: Option<Instant>,
}

impl Default for Record {
    fn default() -> Self {
        Self { standing: Standing::Unknown, warned: None }
    }
}

impl Record {
    /// How long one endpoint is not warned of again.
    const GAP: Duration = Duration::from_secs(60);

    /// Whether the last scrape gave a page.
    pub fn is_proven(&self) -> bool {
        matches!(self.standing, Standing::Good | Standing::Lacking)
    }

    /// Takes note of a scrape; whether its end is worth a warning.
    pub fn note(&mut self, standing: Standing, now: Instant, all: &Warnings) -> bool {
        let before = std::mem::replace(&mut self.standing, standing);
        let is_bad = matches!(standing, Standing::Lacking | Standing::Failing);
        let was_warned = self.warned.is_some_and(|at| now.saturating_duration_since(at) < Self::GAP);
        let warn = is_bad && standing != before && !was_warned && all.one_more(now);
        if warn {
            self.warned = Some(now);
        }
        warn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_of_a_change_for_the_worse_once_a_minute() {
        let (all, start) = (Warnings::default(), Instant::now());
        let mut record = Record::default();
        for (second, standing, expected) in [
            (0, Standing::Good, false),
            (1, Standing::Failing, true),
            (2, Standing::Failing, false),
            (3, Standing::Good, false),
            (4, Standing::Lacking, false),
            (61, Standing::Lacking, false),
            (62, Standing::Good, false),
            (63, Standing::Lacking, true),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(record.note(standing, now, &all), expected, "after {second} s");
        }
    }

    #[test]
    fn many_endpoints_together_do_not_flood_the_log() {
        let (all, start) = (Warnings::default(), Instant::now());
        let warned = |now| (0..1000).filter(|_| Record::default().note(Standing::Failing, now, &all)).count();
        assert_eq!(warned(start), 5);
        assert_eq!(warned(start + Duration::from_secs(9)), 0);
        assert_eq!(warned(start + Duration::from_secs(10)), 5);
    }
}
