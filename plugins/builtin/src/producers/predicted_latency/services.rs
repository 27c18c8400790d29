//! Where the prediction and training services are, by the environment.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Waiting longer for a prediction would cost more than it saves.
const LONGEST_WAIT: Duration = Duration::from_millis(400);
/// The services take no more rows in one call.
const MOST_ROWS: usize = 100;

/// Where the services are and how they are asked.
#[derive(Debug)]
pub struct Services {
    prediction: Vec<String>,
    pub training: String,
    /// How long a prediction is waited for.
    pub wait: Duration,
    /// How long a training call may take.
    pub timeout: Duration,
    /// Most endpoints of one prediction.
    pub most_rows: usize,
    next: AtomicUsize,
}

impl Services {
    /// Reads what `variable` says of each name. What makes no sense counts as its default.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let clean = |url: &str| url.trim().trim_end_matches('/').to_owned();
        let text = |name: &str, usual: &str| variable(name).filter(|v| !v.is_empty()).unwrap_or(usual.into());
        let prediction = text("PREDICTION_SERVER_URL", "http://localhost:8001");
        let seconds = variable("LATENCY_HTTP_TIMEOUT_SEC").and_then(|text| text.trim().parse().ok());
        let timeout = Duration::from_secs(seconds.filter(|&seconds: &u64| seconds > 0).unwrap_or(10));
        let rows = variable("LATENCY_MAX_BULK_SIZE").and_then(|text| text.trim().parse().ok());
        Self {
            prediction: prediction.split(',').map(clean).filter(|url| !url.is_empty()).collect(),
            training: clean(&text("TRAINING_SERVER_URL", "http://localhost:8000")),
            wait: timeout.min(LONGEST_WAIT),
            timeout,
            most_rows: rows.filter(|rows| (1..=MOST_ROWS).contains(rows)).unwrap_or(MOST_ROWS),
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
    }
}
