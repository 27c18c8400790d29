//! A stopwatch for what runs one after another: each lap begins where the one before ended, so the clock is read once a
//! lap and not twice.

use std::time::{Duration, Instant};

/// Measures laps.
#[derive(Clone, Copy, Debug)]
pub struct Laps(Instant);

impl Laps {
    /// Begins the first lap.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Ends a lap, and begins the next. Returns how long it was.
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }

    /// How long ago `earlier` was when this lap began.
    pub fn since(&self, earlier: Self) -> Duration {
        self.0 - earlier.0
    }
}
