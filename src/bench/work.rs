//! The requests of a trace as a picker is asked them: when, and with which body.

use std::fmt::Write as _;
use std::time::Duration;

use epp_trace::prompt::{PromptRef, Rows};
use epp_trace::trace::{Request, Trace};

use crate::bench::client::{Question, Usage};

/// Tokens of a prompt of which the trace says nothing, and of a response.
const TOKENS_IF_UNKNOWN: u32 = 256;
/// A token of text: three of these, or more for ids past 32,768, and a blank. About as many bytes as a token of English.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// How prompts are sent of which the trace has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// To `/inference/v1/generate`.
    Ids,
    /// To `/v1/completions`: a word for each token, the same for the same id.
    Text,
}

/// When the requests of a round begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the trace's own times, so many times as fast.
    Scaled(f64),
    /// As the trace has them, but so many a second on average; one after the other if they all came at once.
    Rate(f64),
    /// So many are under way at any time.
    AtOnce(usize),
}

/// What is sent in each round.
#[derive(Debug)]
pub struct Work {
    trace: Trace,
    prompts: Prompts,
    /// Takes the place of the models that the trace names.
    model: Option<String>,
    /// The first ones are sent to warm up, and not counted.
    pub warm_up: usize,
    n_requests: usize,
}

impl Work {
    /// Takes the first requests of a trace, `warm_up` of them to warm up.
    pub fn new(trace: Trace, prompts: Prompts, model: Option<String>, n_requests: usize, warm_up: usize) -> Self {
        let n_requests = n_requests.min(trace.requests.len());
        Self { trace, prompts, model, warm_up: warm_up.min(n_requests.saturating_sub(1)), n_requests }
    }

    /// All requests of a round.
    pub fn len(&self) -> usize {
        self.n_requests
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n_requests == 0
    }

    /// When each request begins, since the beginning of the round; nothing if that depends on when others end.
    pub fn starts(&self, pace: Pace) -> Option<Vec<Duration>> {
        let requests = &self.trace.requests[..self.n_requests];
        let span = requests.last().map_or(Duration::ZERO, |last| last.arrival);
        match pace {
            Pace::AtOnce(_) => None,
            Pace::Scaled(scale) => Some(requests.iter().map(|r| r.arrival.div_f64(scale)).collect()),
            Pace::Rate(rate) if span.is_zero() => {
                Some((0..requests.len()).map(|i| Duration::from_secs_f64(i as f64 / rate)).collect())
            }
            Pace::Rate(rate) => {
                let scale = rate * span.as_secs_f64() / (requests.len() - 1).max(1) as f64;
                Some(requests.iter().map(|r| r.arrival.div_f64(scale)).collect())
            }
        }
    }

    /// The question of the request at this place.
    pub fn question(&self, at: usize) -> Question {
        let request = &self.trace.requests[at];
        let who = self.trace.who(request);
        let model = self.model.as_deref().or(who.lora.as_deref()).or(who.model.as_deref()).unwrap_or("model");
        let mut headers = vec![("x-request-id", format!("bench-{at}"))];
        let named =
            [("x-gateway-inference-fairness-id", &who.tenant), ("x-gateway-inference-objective", &who.objective)];
        headers.extend(named.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?.to_owned()))));
        if let PromptRef::Text { path, body, .. } = self.trace.prompt(request) {
            return Question { path: path.to_owned(), body: body.to_vec().into(), headers };
        }
        let ids = self.ids(request, at);
        let model = serde_json::Value::from(model);
        let (path, body) = match self.prompts {
            Prompts::Ids => ("/inference/v1/generate", ids_body(&model, &ids)),
            Prompts::Text => ("/v1/completions", text_body(&model, &ids)),
        };
        Question { path: path.into(), body: body.into(), headers }
    }

    /// What the response to this request says of its tokens.
    pub fn usage(&self, at: usize) -> Usage {
        let request = &self.trace.requests[at];
        Usage {
            prompt_tokens: self.trace.prompt(request).tokens().unwrap_or(TOKENS_IF_UNKNOWN),
            completion_tokens: request.output_tokens.unwrap_or(TOKENS_IF_UNKNOWN),
        }
    }

    fn ids(&self, request: &Request, at: usize) -> Vec<u32> {
        let mut ids = Vec::new();
        if !self.trace.prompt(request).token_ids(&mut ids) {
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            PromptRef::Rows(Rows::alone(number, TOKENS_IF_UNKNOWN)).token_ids(&mut ids);
        }
        ids
    }
}

fn ids_body(model: &serde_json::Value, ids: &[u32]) -> String {
    let mut body = format!(r#"{{"model":{model},"token_ids":["#);
    for (i, id) in ids.iter().enumerate() {
        let _ = write!(body, "{}{id}", if i > 0 { "," } else { "" });
    }
    body.push_str("]}");
    body
}

fn text_body(model: &serde_json::Value, ids: &[u32]) -> String {
    let mut body = format!(r#"{{"model":{model},"prompt":""#);
    for &id in ids {
        let mut left = id;
        for place in 0.. {
            if place >= 3 && left == 0 {
                break;
            }
            body.push(char::from(LETTERS[(left % 32) as usize]));
            left /= 32;
        }
        body.push(' ');
    }
    body.push_str("\"}");
    body
}

#[cfg(test)]
pub mod tests {
    use epp_trace::bad::OnBad;
    use epp_trace::reader::Reader;

    use super::*;

    const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 10, \"hash_ids\": [1]}\n\
                            {\"timestamp\": 1000, \"input_length\": 4, \"output_length\": 0, \"hash_ids\": [1]}\n\
                            {\"timestamp\": 4000, \"input_length\": 3, \"output_length\": 7, \"hash_ids\": [2]}\n";

    pub fn work(text: &'static str, prompts: Prompts, n_requests: usize, warm_up: usize) -> Work {
        let trace = Trace::read(Reader::new(Box::new(text.as_bytes()), None).unwrap(), OnBad::Stop).unwrap();
        Work::new(trace, prompts, None, n_requests, warm_up)
    }

    fn body(prompts: Prompts, at: usize) -> serde_json::Value {
        serde_json::from_slice(&work(MOONCAKE, prompts, 10, 0).question(at).body).unwrap()
    }

    #[test]
    fn requests_begin_at_the_times_of_the_trace_or_faster() {
        let work = work(MOONCAKE, Prompts::Ids, 10, 0);
        let starts = |pace| work.starts(pace).unwrap().iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(starts(Pace::Scaled(1.0)), [0, 1000, 4000]);
        assert_eq!(starts(Pace::Scaled(10.0)), [0, 100, 400]);
        assert_eq!(starts(Pace::Rate(2.0)), [0, 250, 1000]);
        assert_eq!(work.starts(Pace::AtOnce(4)), None);
    }

    #[test]
    fn requests_of_one_moment_are_spread_if_a_rate_is_asked_for() {
        let work = work(
            "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}\n\
                         {\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}\n",
            Prompts::Ids,
            10,
            0,
        );
        let millis = |pace| work.starts(pace).unwrap().iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!((millis(Pace::Rate(4.0)), millis(Pace::Scaled(2.0))), (vec![0, 250], vec![0, 0]));
    }

    #[test]
    fn prompts_that_begin_alike_are_sent_alike() {
        let ids = |at| body(Prompts::Ids, at)["token_ids"].as_array().unwrap().clone();
        assert_eq!((ids(0).len(), ids(1).len()), (3, 4));
        assert_eq!(ids(0), ids(1)[..3]);
        assert_ne!(ids(0), ids(2));
        let text = |at| body(Prompts::Text, at)["prompt"].as_str().unwrap().to_owned();
        assert!(text(1).starts_with(&text(0)) && text(1).len() == 16 && text(2) != text(0), "{:?}", text(1));
    }

    #[test]
    fn responses_have_the_tokens_of_the_trace() {
        let usage = work(MOONCAKE, Prompts::Ids, 10, 0).usage(2);
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 7));
    }

    #[test]
    fn a_round_has_at_least_one_request_that_counts() {
        let of = |n, warm_up| {
            let work = work(MOONCAKE, Prompts::Ids, n, warm_up);
            (work.len(), work.warm_up)
        };
        assert_eq!((of(2, 1), of(10, 10)), ((2, 1), (3, 2)));
    }
}
