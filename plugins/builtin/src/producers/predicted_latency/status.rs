//! How the prediction services say they are: asked beside a request's predictions, once in a while.

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// What is known of the services.
#[derive(Debug, Default)]
pub struct Status(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    asked: Option<Instant>,
    last: Option<Result<Said, String>>,
}

/// What a service says of itself; what it leaves out is not known.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Said {
    is_ready: Option<bool>,
    model_type: Option<String>,
    quantile: Option<f64>,
}

/// What the debug page shows.
#[derive(Serialize)]
struct Shown<'a> {
    service: Option<&'a Said>,
    error: Option<&'a str>,
}

impl Status {
    /// Whether a service should be asked at `now`, by a request that then does so.
    pub fn is_due(&self, now: Instant, every: Duration) -> bool {
        let mut known = self.0.lock();
        let due = known.asked.is_none_or(|at| now.saturating_duration_since(at) >= every);
        if due {
            known.asked = Some(now);
        }
        due
    }

    /// Takes note of an answer.
    pub fn heard(&self, answer: &Result<&[u8], String>) {
        let said = match answer {
            Ok(body) => serde_json::from_slice(body).map_err(|e| format!("expected a status, found {e}")),
            Err(why) => Err(why.clone()),
        };
        self.0.lock().last = Some(said);
    }

    /// The last answer as JSON, or why there is none; both are null before the first.
    pub fn shown(&self) -> String {
        let known = self.0.lock();
        let last = known.last.as_ref().map(Result::as_ref);
        let shown = Shown { service: last.and_then(Result::ok), error: last.and_then(Result::err).map(String::as_str) };
        serde_json::to_string(&shown).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_a_while_asks() {
        let (status, start, every) = (Status::default(), Instant::now(), Duration::from_secs(60));
        for (second, expected) in [(0, true), (0, false), (59, false), (60, true), (61, false), (500, true)] {
            assert_eq!(status.is_due(start + Duration::from_secs(second), every), expected, "{second}");
        }
    }

    #[test]
    fn the_last_answer_is_shown() {
        let status = Status::default();
        assert_eq!(status.shown(), r#"{"service":null,"error":null}"#);
        status.heard(&Ok(br#"{"is_ready":true,"model_type":"xgboost","last_load":"x"}"#));
        let said = r#"{"is_ready":true,"model_type":"xgboost","quantile":null}"#;
        assert_eq!(status.shown(), format!(r#"{{"service":{said},"error":null}}"#));
        status.heard(&Err("no answer".into()));
        assert_eq!(status.shown(), r#"{"service":null,"error":"no answer"}"#);
        status.heard(&Ok(b"["));
        assert!(status.shown().contains("expected a status"));
    }
}
