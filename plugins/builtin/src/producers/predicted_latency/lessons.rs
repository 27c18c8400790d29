//! What waits to be taught: samples of many requests that go to the training service in one call.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::wire::Sample;

/// Samples since the last call. What is more than fits is thinned out evenly, so that each had the same chance to stay.
#[derive(Debug)]
pub struct Lessons {
    every: Duration,
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    samples: Vec<Sample>,
    /// How many came since the last call.
    came: usize,
    taught: Option<Instant>,
    /// From a fixed seed: which samples stay matters to nobody.
    rng: fastrand::Rng,
}

impl Lessons {
    /// Keeps at most `most` samples, and gives them away no more often than `every`.
    pub fn new(every: Duration, most: usize) -> Self {
        let waiting = Waiting { samples: Vec::new(), came: 0, taught: None, rng: fastrand::Rng::with_seed(0) };
        Self { every, most, waiting: Mutex::new(waiting) }
    }

    /// Keeps the samples of a request that ended at `now`. Gives back what to teach if it is time; else nothing.
    pub fn add(&self, samples: Vec<Sample>, now: Instant) -> Vec<Sample> {
        let mut waiting = self.waiting.lock();
        samples.into_iter().for_each(|sample| waiting.keep(sample, self.most));
        if waiting.taught.is_some_and(|at| now.saturating_duration_since(at) < self.every) {
            return Vec::new();
        }
        if !waiting.samples.is_empty() {
            waiting.taught = Some(now);
        }
        waiting.came = 0;
        std::mem::take(&mut waiting.samples)
    }
}

impl Waiting {
    fn keep(&mut self, sample: Sample, most: usize) {
        self.came += 1;
        if self.samples.len() < most {
            return self.samples.push(sample);
        }
        let at = self.rng.usize(..self.came);
        if let Some(place) = self.samples.get_mut(at) {
            *place = sample;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producers::predicted_latency::wire::Features;

    fn sample(actual_ttft_ms: f64) -> Sample {
        Sample { features: Features::default(), actual_ttft_ms, actual_tpot_ms: 0.0 }
    }

    #[test]
    fn samples_wait_for_their_time_and_go_together() {
        let (lessons, start) = (Lessons::new(Duration::from_secs(1), 10), Instant::now());
        let add = |ms: u64| {
            let taught = lessons.add(vec![sample(ms as f64)], start + Duration::from_millis(ms));
            taught.iter().map(|sample| sample.actual_ttft_ms).collect::<Vec<_>>()
        };
        for (ms, expected) in
            [(0, vec![0.0]), (1, vec![]), (999, vec![]), (1000, vec![1.0, 999.0, 1000.0]), (1001, vec![])]
        {
            assert_eq!(add(ms), expected, "{ms}");
        }
    }

    #[test]
    fn what_is_more_than_fits_is_thinned_out_evenly() {
        let (lessons, start) = (Lessons::new(Duration::from_secs(1), 100), Instant::now());
        assert_eq!(lessons.add(vec![sample(0.0)], start).len(), 1);
        for n in 0..10_000 {
            assert!(lessons.add(vec![sample(f64::from(n))], start).is_empty());
        }
        let taught = lessons.add(Vec::new(), start + Duration::from_secs(1));
        let late = taught.iter().filter(|sample| sample.actual_ttft_ms >= 5_000.0).count();
        assert_eq!(taught.len(), 100);
        assert!((25..=75).contains(&late), "{late} of 100 are from the later half");
    }
}
