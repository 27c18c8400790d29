//! The requests of a trace as a picker is asked them: when, and with which body.

use std::fmt::Write as _;
use std::time::Duration;

use epp_trace::prompt::{PromptRef, Rows};
use epp_trace::record::Since;
use epp_trace::trace::{Request, Trace};

use crate::bench::client::{Question, Usage};
use crate::bench::schedule::Wait;

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

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wants {
    /// An endpoint.
    Endpoint,
    /// A streamed response of as many tokens as the trace says.
    Response,
}

/// When the turns of a session come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// After the answers that they wait for, and the gap.
    Waiting,
    /// At the trace's times, whoever has been answered.
    Timed,
}

/// How the requests of a trace are sent.
#[derive(Clone, Debug)]
pub struct Manner {
    pub prompts: Prompts,
    pub wants: Wants,
    pub turns: Turns,
    /// Takes the place of the models that the trace names.
    pub model: Option<String>,
}

/// What is sent in each round.
#[derive(Debug)]
pub struct Work {
    trace: Trace,
    manner: Manner,
    /// Places in the trace. Samples of one request are requests of their own.
    jobs: Vec<u32>,
    /// The first ones are sent to warm up, and not counted.
    pub warm_up: usize,
}

impl Work {
    /// Takes the first requests of a trace, and the first requests that come of them to warm up; a tenth unless said.
    pub fn new(trace: Trace, manner: Manner, n_requests: usize, warm_up: Option<usize>) -> Self {
        let taken = trace.requests.iter().zip(0..).take(n_requests);
        let jobs: Vec<u32> =
            taken.flat_map(|(request, at)| std::iter::repeat_n(at, request.samples.max(1) as usize)).collect();
        let warm_up = warm_up.unwrap_or(jobs.len() / 10).min(jobs.len().saturating_sub(1));
        Self { trace, manner, jobs, warm_up }
    }

    /// All requests of a round.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// When each request is due; nothing if that depends on when others end.
    pub fn waits(&self, pace: Pace) -> Option<Vec<Wait>> {
        let span = self.jobs.last().map_or(Duration::ZERO, |last| self.trace.requests[*last as usize].arrival);
        let (scale, each) = match pace {
            Pace::AtOnce(_) => return None,
            Pace::Scaled(scale) => (scale, Duration::ZERO),
            Pace::Rate(rate) if span.is_zero() => (1.0, Duration::from_secs_f64(1.0 / rate)),
            Pace::Rate(rate) => (rate * span.as_secs_f64() / (self.jobs.len() - 1).max(1) as f64, Duration::ZERO),
        };
        // The first sample stands for all: who waits for a request waits for that.
        let mut first = vec![0; self.trace.requests.len()];
        let all = self.jobs.iter().zip(0..).map(|(&of, at)| {
            if at == 0 || self.jobs[at as usize - 1] != of {
                first[of as usize] = at;
            }
            let request = &self.trace.requests[of as usize];
            let turn = request.turn.as_ref().filter(|_| self.manner.turns == Turns::Waiting);
            Wait {
                start: request.arrival.div_f64(scale) + each.saturating_mul(at),
                after: turn.map_or_else(Vec::new, |turn| {
                    self.trace.after(turn).iter().map(|of| first[*of as usize]).collect()
                }),
                gap: turn.map_or(Duration::ZERO, |turn| turn.gap.div_f64(scale)),
                since: turn.map_or(Since::End, |turn| turn.since),
            }
        });
        Some(all.collect())
    }

    /// The question of the request at this place.
    pub fn question(&self, at: usize) -> Question {
        let request = &self.trace.requests[self.jobs[at] as usize];
        let who = self.trace.who(request);
        let model = self.manner.model.as_deref().or(who.lora.as_deref()).or(who.model.as_deref()).unwrap_or("model");
        let mut headers = vec![("x-request-id", format!("bench-{at}"))];
        headers.extend(request.turn.map(|turn| ("x-session-id", format!("s{}", turn.session))));
        let named =
            [("x-gateway-inference-fairness-id", &who.tenant), ("x-gateway-inference-objective", &who.objective)];
        headers.extend(named.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?.to_owned()))));
        if let PromptRef::Text { path, body, .. } = self.trace.prompt(request) {
            let body = match self.manner.wants {
                Wants::Endpoint => body.to_vec(),
                Wants::Response => streamed(body),
            };
            return Question { path: path.to_owned(), body: body.into(), headers };
        }
        let ids = self.ids(request, at);
        let model = serde_json::Value::from(model);
        let limits = self.limits(at);
        let (path, body) = match self.manner.prompts {
            Prompts::Ids => ("/inference/v1/generate", ids_body(&model, &ids, &limits)),
            Prompts::Text => ("/v1/completions", text_body(&model, &ids, &limits)),
        };
        Question { path: path.into(), body: body.into(), headers }
    }

    /// What a body says of the response that is wanted, after the prompt.
    fn limits(&self, at: usize) -> String {
        let tokens = self.usage(at).completion_tokens.max(1);
        // So that samples of one prompt differ.
        let seed = at + 1;
        let sampling = format!(r#""max_tokens":{tokens},"ignore_eos":true,"seed":{seed}"#);
        let stream = r#""stream":true,"stream_options":{"include_usage":true}"#;
        match (self.manner.wants, self.manner.prompts) {
            (Wants::Endpoint, _) => String::new(),
            (Wants::Response, Prompts::Ids) => format!(r#","sampling_params":{{{sampling}}},{stream}"#),
            (Wants::Response, Prompts::Text) => format!(",{sampling},{stream}"),
        }
    }

    /// What the response to this request says of its tokens, if nobody generates one.
    pub fn usage(&self, at: usize) -> Usage {
        let request = &self.trace.requests[self.jobs[at] as usize];
        Usage {
            prompt_tokens: self.trace.prompt(request).tokens().unwrap_or(TOKENS_IF_UNKNOWN),
            completion_tokens: request.output_tokens.unwrap_or(TOKENS_IF_UNKNOWN),
            cached_tokens: None,
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

/// A body of the trace that asks for one streamed response.
fn streamed(body: &[u8]) -> Vec<u8> {
    match serde_json::from_slice(body) {
        Ok(serde_json::Value::Object(mut fields)) => {
            fields.insert("stream".into(), true.into());
            fields.insert("stream_options".into(), serde_json::json!({"include_usage": true}));
            fields.remove("n");
            serde_json::Value::from(fields).to_string().into_bytes()
        }
        // The reader has taken it for an object; whoever is asked may say why it is none.
        _ => body.to_vec(),
    }
}

fn ids_body(model: &serde_json::Value, ids: &[u32], limits: &str) -> String {
    let mut body = format!(r#"{{"model":{model},"token_ids":["#);
    for (i, id) in ids.iter().enumerate() {
        let _ = write!(body, "{}{id}", if i > 0 { "," } else { "" });
    }
    let _ = write!(body, "]{limits}}}");
    body
}

fn text_body(model: &serde_json::Value, ids: &[u32], limits: &str) -> String {
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
    let _ = write!(body, "\"{limits}}}");
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
        Work::new(trace, manner(prompts, Wants::Endpoint), n_requests, Some(warm_up))
    }

    pub fn manner(prompts: Prompts, wants: Wants) -> Manner {
        Manner { prompts, wants, turns: Turns::Waiting, model: None }
    }

    pub fn wanting(text: &'static str, wants: Wants) -> Work {
        let trace = Trace::read(Reader::new(Box::new(text.as_bytes()), None).unwrap(), OnBad::Stop).unwrap();
        Work::new(trace, manner(Prompts::Ids, wants), 100, Some(0))
    }

    fn body(prompts: Prompts, at: usize) -> serde_json::Value {
        serde_json::from_slice(&work(MOONCAKE, prompts, 10, 0).question(at).body).unwrap()
    }

    #[test]
    fn requests_begin_at_the_times_of_the_trace_or_faster() {
        let work = work(MOONCAKE, Prompts::Ids, 10, 0);
        let starts = |pace| work.waits(pace).unwrap().iter().map(|w| w.start.as_millis()).collect::<Vec<_>>();
        assert_eq!(starts(Pace::Scaled(1.0)), [0, 1000, 4000]);
        assert_eq!(starts(Pace::Scaled(10.0)), [0, 100, 400]);
        assert_eq!(starts(Pace::Rate(2.0)), [0, 250, 1000]);
        assert_eq!(work.waits(Pace::AtOnce(4)), None);
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
        let millis = |pace| work.waits(pace).unwrap().iter().map(|w| w.start.as_millis()).collect::<Vec<_>>();
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

    #[test]
    fn turns_wait_for_answers_unless_they_are_to_come_at_their_times() {
        let trace = "{\"conv_id\": \"a\", \"turns\": [{\"input_tokens\": 8, \"output_tokens\": 4, \"pre_gap_s\": 0.0}, \
                     {\"input_tokens\": 20, \"output_tokens\": 4, \"pre_gap_s\": 3.0}]}\n";
        let mut work = wanting(trace, Wants::Endpoint);
        let second = |work: &Work| work.waits(Pace::Scaled(2.0)).unwrap().remove(1);
        assert_eq!((second(&work).after, second(&work).gap), (vec![0], Duration::from_millis(1500)));
        work.manner.turns = Turns::Timed;
        assert_eq!((second(&work).after, second(&work).gap), (vec![], Duration::ZERO));
        assert_eq!(work.question(1).headers[1], ("x-session-id", "s0".to_owned()));
    }

    #[test]
    fn a_request_for_samples_is_as_many_requests() {
        let trace = "{\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\", \"n\": 3, \"max_tokens\": 5}}\n";
        let work = wanting(trace, Wants::Response);
        assert_eq!((work.len(), work.waits(Pace::Scaled(1.0)).unwrap().len()), (3, 3));
        let body: serde_json::Value = serde_json::from_slice(&work.question(2).body).unwrap();
        assert_eq!(
            (&body["n"], &body["stream"], &body["max_tokens"]),
            (&serde_json::Value::Null, &true.into(), &5.into())
        );
    }

    #[test]
    fn a_response_is_asked_for_as_long_as_the_traces() {
        let body: serde_json::Value =
            serde_json::from_slice(&wanting(MOONCAKE, Wants::Response).question(2).body).unwrap();
        assert_eq!((&body["sampling_params"]["max_tokens"], &body["stream"]), (&7.into(), &true.into()));
    }
}
