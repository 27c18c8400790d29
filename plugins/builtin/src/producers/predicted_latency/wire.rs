//! What is said to the prediction and training services, and what they answer.

use epp_plugin_api::Call;
use serde::{Deserialize, Serialize};

use std::time::Duration;

/// What is told of one endpoint as it stands before the pick.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Features {
    /// 0 to 1.
    pub kv_cache_percentage: f64,
    pub input_token_length: u64,
    pub num_request_waiting: u64,
    pub num_request_running: u64,
    pub num_tokens_generated: u64,
    /// 0 to 1.
    pub prefix_cache_score: f64,
    pub encoder_input_size: u64,
    pub encoder_matched_size: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod_type: String,
    pub prefill_tokens_in_flight: u64,
    pub decode_tokens_in_flight: u64,
}

/// What came of a request; a time that is not known is 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    #[serde(flatten)]
    pub features: Features,
    pub actual_ttft_ms: f64,
    pub actual_tpot_ms: f64,
}

#[derive(Serialize)]
struct Question<'a> {
    requests: &'a [Features],
}

#[derive(Serialize)]
struct Lesson<'a> {
    entries: &'a [Sample],
}

#[derive(Deserialize)]
struct Answer {
    predictions: Vec<Prediction>,
}

/// What is predicted for one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Prediction {
    pub ttft_ms: f64,
    pub tpot_ms: f64,
}

/// Asks the service at `base` for a prediction for each of these.
pub fn ask(base: &str, requests: &[Features], timeout: Duration) -> Option<Call> {
    let body = serde_json::to_vec(&Question { requests }).ok()?;
    Some(Call { url: format!("{base}/predict/bulk/strict"), body, timeout })
}

/// Asks the service at `base` how it is.
pub fn ask_status(base: &str, timeout: Duration) -> Call {
    Call { url: format!("{base}/status"), body: Vec::new(), timeout }
}

/// Tells the service at `base` what came of requests.
pub fn teach(base: &str, entries: &[Sample], timeout: Duration) -> Option<Call> {
    let body = serde_json::to_vec(&Lesson { entries }).ok()?;
    Some(Call { url: format!("{base}/add_training_data_bulk"), body, timeout })
}

/// Reads the predictions for so many endpoints; what is more is left out.
///
/// # Errors
/// If there are fewer, or one is no time.
pub fn answered(body: &[u8], wanted: usize) -> Result<Vec<Prediction>, String> {
    let mut answer: Answer = serde_json::from_slice(body).map_err(|e| format!("expected predictions, found {e}"))?;
    let n = answer.predictions.len();
    if n < wanted {
        return Err(format!("expected {wanted} predictions, found {n}"));
    }
    answer.predictions.truncate(wanted);
    if answer.predictions.iter().any(|p| !p.ttft_ms.is_finite() || !p.tpot_ms.is_finite()) {
        return Err("expected times in milliseconds, found something else".into());
    }
    Ok(answer.predictions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_answer_is_none() {
        let one = br#"{"predictions":[{"ttft_ms":1.5,"tpot_ms":2,"model_type":"x"}],"total_requests":1}"#;
        assert_eq!(answered(one, 1), Ok(vec![Prediction { ttft_ms: 1.5, tpot_ms: 2.0 }]));
        assert_eq!(answered(one, 0), Ok(vec![]));
        assert_eq!(answered(one, 2), Err("expected 2 predictions, found 1".into()));
        assert!(answered(b"no", 0).is_err());
    }

    #[test]
    fn a_type_that_is_not_known_is_left_out() {
        let call = ask("http://h:1", &[Features::default()], Duration::from_secs(1)).unwrap();
        assert_eq!(call.url, "http://h:1/predict/bulk/strict");
        assert!(!String::from_utf8(call.body).unwrap().contains("pod_type"));
    }
}
