//! Where the prediction and training services are, by the environment.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Waiting longer for a prediction would cost more than it saves.
const LONGEST_WAIT: Duration = Duration::from_millis(400);
/// The services take no more rows in one call.
const MOST_ROWS: usize = 100;

/// So many samples wait at most to be taught, whatever the environment says.
const MOST_SAMPLES: u64 = 100_000;

/// Where the services are and how they are asked.
#[derive(Debug)]
pub struct Services {
    prediction: Vec<String>,
    pub training: String,
    /// How long a prediction is waited for.
    pub wait: Duration,
    /// How long a training call may take.
    pub timeout: Duration,
    /// Most endpoints of one call for predictions.
    pub most_rows: usize,
    /// How often a prediction service is asked how it is.
    pub status_every: Duration,
    /// How often samples are taught.
    pub teach_every: Duration,
    /// Most samples of one call that teaches.
    pub most_samples: usize,
    next: AtomicUsize,
}

impl Services {
    /// Reads what `variable` says of each name. What makes no sense counts as its default.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let clean = |url: &str| url.trim().trim_end_matches('/').to_owned();
        let text = |name: &str, usual: &str| variable(name).filter(|v| !v.is_empty()).unwrap_or(usual.into());
        let number = |name: &str, usual: u64| {
            let number = variable(name).and_then(|text| text.trim().parse().ok());
            number.filter(|&number: &u64| number > 0).unwrap_or(usual)
        };
        let prediction = text("PREDICTION_SERVER_URL", "http://localhost:8001");
        let timeout = Duration::from_secs(number("LATENCY_HTTP_TIMEOUT_SEC", 10));
        let rows = usize::try_from(number("LATENCY_MAX_BULK_SIZE", MOST_ROWS as u64)).unwrap_or(usize::MAX);
        Self {
            prediction: prediction.split(',').map(clean).filter(|url| !url.is_empty()).collect(),
            training: clean(&text("TRAINING_SERVER_URL", "http://localhost:8000")),
            wait: timeout.min(LONGEST_WAIT),
            timeout,
            most_rows: rows.min(MOST_ROWS),
            status_every: Duration::from_secs(number("LATENCY_METRICS_INTERVAL_SEC", 60)),
            teach_every: Duration::from_secs(number("LATENCY_FLUSH_INTERVAL_SEC", 1)),
            most_samples: number("LATENCY_MAX_SAMPLE_SIZE", 1000).min(MOST_SAMPLES) as usize,
            next: AtomicUsize::new(0),
        }
    }

    /// The prediction service whose turn it is.
    pub fn prediction(&self) -> Option<&str> {
        let turn = self.next.fetch_add(1, Relaxed);
        self.prediction.get(turn % self.prediction.len().max(1)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(set: &[(&str, &str)]) -> Services {
        Services::of(|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn prediction_services_take_turns() {
        let several = services(&[("PREDICTION_SERVER_URL", "http://a:1/, http://b:2")]);
        let turns: Vec<_> = (0..3).map(|_| several.prediction().map(str::to_owned)).collect();
        assert_eq!(turns, ["http://a:1", "http://b:2", "http://a:1"].map(|url| Some(url.to_owned())));
    }

    #[test]
    fn what_makes_no_sense_counts_as_its_default() {
        let odd = services(&[("LATENCY_HTTP_TIMEOUT_SEC", "soon"), ("LATENCY_MAX_BULK_SIZE", "1000")]);
        assert_eq!((odd.prediction(), odd.training.as_str()), (Some("http://localhost:8001"), "http://localhost:8000"));
        assert_eq!((odd.timeout, odd.wait, odd.most_rows), (Duration::from_secs(10), LONGEST_WAIT, 100));
        assert_eq!((odd.status_every, odd.teach_every), (Duration::from_secs(60), Duration::from_secs(1)));
        assert_eq!(services(&[("LATENCY_MAX_SAMPLE_SIZE", "-5")]).most_samples, 1000);
    }
}
