//! How fast a backlog is let go where the pool's saturation is only known by what engines say, which is late.
//!
//! A first window lets so many go; while the pool stays open, each window lets twice as many go as the one before, and a
//! pool that was seen to be full begins anew. So an idle pool takes up a backlog in a few windows, and one that fills up
//! is not given thousands of requests before it can say so.

use std::time::Duration;

use tokio::time::Instant;

/// About as often there is news of engines.
const WINDOW: Duration = Duration::from_millis(50);
/// The first window lets so many go, or so many for each endpoint if that is more.
const FIRST: u64 = 50;
const FIRST_PER_ENDPOINT: u64 = 8;
/// More than this is no limit.
const MOST: u64 = 1 << 20;

/// The state of one queue.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    began: Instant,
    window: u64,
    left: u64,
}

impl Pace {
    /// Begins with a first window.
    pub fn new(now: Instant) -> Self {
        Self { began: now, window: FIRST, left: FIRST }
    }

    /// Lets one go to a pool of so many endpoints.
    ///
    /// # Errors
    /// When to ask again if it may not go now.
    pub fn take(&mut self, endpoints: usize, now: Instant) -> Result<(), Instant> {
        let first = FIRST.max(FIRST_PER_ENDPOINT * endpoints as u64);
        let windows = now.saturating_duration_since(self.began).as_millis() / WINDOW.as_millis();
        if windows > 0 {
            self.window = match windows {
                1 if self.left == 0 => (self.window * 2).min(MOST),
                1 => self.window,
                _ => first,
            };
            (self.began, self.left) = (now, self.window.max(first));
        }
        if self.left == 0 {
            return Err(self.began + WINDOW);
        }
        self.left -= 1;
        Ok(())
    }

    /// One more has come; for each that comes one may go.
    pub fn arrived(&mut self) {
        self.left += 1;
    }

    /// The pool was seen to be full.
    pub fn full(&mut self) {
        self.window = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a backlog without end go in each window.
    fn drained(windows: &[bool]) -> Vec<u64> {
        let zero = Instant::now();
        let mut pace = Pace::new(zero);
        let mut now = zero;
        let window = |full: &bool| {
            let mut gone = 0;
            while pace.take(1, now).is_ok() {
                gone += 1;
            }
            if *full {
                pace.full();
            }
            now += WINDOW;
            gone
        };
        windows.iter().map(window).collect()
    }

    #[test]
    fn an_open_pool_takes_twice_as_many_each_window() {
        assert_eq!(drained(&[false; 4]), [50, 100, 200, 400]);
    }

    #[test]
    fn a_full_pool_begins_anew() {
        assert_eq!(drained(&[false, false, true, false]), [50, 100, 200, 100]);
    }

    #[test]
    fn for_each_that_comes_one_may_go() {
        let zero = Instant::now();
        let mut pace = Pace::new(zero);
        while pace.take(1, zero).is_ok() {}
        assert_eq!(pace.take(1, zero), Err(zero + WINDOW));
        pace.arrived();
        assert_eq!(pace.take(1, zero), Ok(()));
    }

    #[test]
    fn many_endpoints_take_more_at_once() {
        let zero = Instant::now();
        let mut pace = Pace::new(zero);
        let later = zero + 2 * WINDOW;
        let gone = (0..).take_while(|_| pace.take(100, later).is_ok()).count();
        assert_eq!(gone, 800);
    }
}
