//! Reads the bodies of generation requests. Errors say where a body is wrong and never repeat what it says.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use serde::Deserialize;
use serde_json::Value;

use super::given::Given;
use super::words::tokenize;
use crate::model::{Prompt, Request};

/// Tokens of an answer if the request sets no limit: of a completion, and of anything else.
const DEFAULT_COMPLETION: i64 = 16;
const DEFAULT_OUTPUT: i64 = 128;
/// Answers that one request can ask for.
const MOST_CHOICES: usize = 128;

/// The dialect of a request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Completions,
    Chat,
    /// Token-in generation of vLLM.
    VllmGenerate,
    SglangGenerate,
}

/// A generation request that has been understood.
#[derive(Debug, PartialEq)]
pub(super) struct Ask {
    /// The model that was asked for, if one was.
    pub(super) model: Option<String>,
    /// What the engine is asked for, in the order of the answer's choices.
    pub(super) requests: Vec<Request>,
    /// How many choices in a row share a prompt.
    pub(super) choices_per_prompt: usize,
    pub(super) stream: bool,
    /// Whether a stream ends with a chunk that tells the usage.
    pub(super) stream_usage: bool,
}

/// Every field that some dialect reads.
#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Given>,
    messages: Option<Vec<Message>>,
    tools: Option<Value>,
    token_ids: Option<Given>,
    input_ids: Option<Given>,
    text: Option<Given>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n: Option<i64>,
    seed: Option<i64>,
    sampling_params: Option<Sampling>,
    cache_salt: Option<String>,
    extra_key: Option<String>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Value>,
    tool_calls: Option<Value>,
}

#[derive(Deserialize)]
struct Sampling {
    max_tokens: Option<i64>,
    max_new_tokens: Option<i64>,
    n: Option<i64>,
    seed: Option<i64>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// Reads a body.
///
/// # Errors
/// A message for the client.
pub(super) fn read(dialect: Dialect, body: &[u8]) -> Result<Ask, String> {
    let body: Body = serde_json::from_slice(body).map_err(|e| {
        let what = if e.is_data() { "another type or a missing field" } else { "no valid JSON" };
        format!("expected a request object, found {what} at line {} column {}", e.line(), e.column())
    })?;
    let prompts = prompts(dialect, &body)?;
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err("expected a prompt of at least 1 token, found an empty one".to_owned());
    }
    let sampling = |field: fn(&Sampling) -> Option<i64>| body.sampling_params.as_ref().and_then(field);
    let (limit, default, n) = match dialect {
        Dialect::Completions => (body.max_tokens, DEFAULT_COMPLETION, body.n),
        Dialect::Chat => (body.max_completion_tokens.or(body.max_tokens), DEFAULT_OUTPUT, body.n),
        Dialect::VllmGenerate => (sampling(|s| s.max_tokens), DEFAULT_COMPLETION, sampling(|s| s.n)),
        Dialect::SglangGenerate => (sampling(|s| s.max_new_tokens), DEFAULT_OUTPUT, None),
    };
    let output_tokens = at_least_one("the limit of output tokens", limit.unwrap_or(default))?;
    let choices_per_prompt = at_least_one("n", n.unwrap_or(1))?;
    if choices_per_prompt.saturating_mul(prompts.len()) > MOST_CHOICES {
        return Err(format!("expected at most {MOST_CHOICES} choices, found more"));
    }
    let salt = salt(&[body.model.as_deref(), body.cache_salt.as_deref(), body.extra_key.as_deref()]);
    // Requests for one prompt with other seeds get other answers.
    let sample = body.seed.or(sampling(|s| s.seed)).map_or(0, i64::cast_unsigned);
    let requests = prompts.into_iter().flat_map(|tokens| {
        let request = Request { prompt: Prompt::Tokens(tokens.into()), salt, sample, output_tokens };
        std::iter::repeat_n(request, choices_per_prompt)
    });
    Ok(Ask {
        requests: requests.collect(),
        choices_per_prompt,
        stream: body.stream.unwrap_or(false),
        stream_usage: body.stream_options.and_then(|o| o.include_usage).unwrap_or(true),
        model: body.model,
    })
}

fn prompts(dialect: Dialect, body: &Body) -> Result<Vec<Vec<u32>>, String> {
    let wrong = |wanted: &str| format!("expected {wanted}, found something else");
    match dialect {
        Dialect::Completions => {
            let prompts = body.prompt.as_ref().and_then(Given::prompts);
            prompts.ok_or_else(|| wrong("prompt to be a text, token ids or a list of either"))
        }
        Dialect::Chat => {
            let messages = body.messages.as_ref().ok_or_else(|| wrong("messages to be a list"))?;
            Ok(vec![chat_tokens(body.tools.as_ref(), messages)])
        }
        Dialect::VllmGenerate => {
            let ids = body.token_ids.as_ref().and_then(Given::ids);
            Ok(vec![ids.ok_or_else(|| wrong("token_ids to be a list of token ids"))?])
        }
        Dialect::SglangGenerate => {
            let tokens = match (&body.input_ids, &body.text) {
                (Some(ids), _) => ids.ids(),
                (None, Some(text @ Given::Text(_))) => text.tokens(),
                (None, _) => None,
            };
            Ok(vec![tokens.ok_or_else(|| wrong("input_ids to be a list of token ids, or text to be a text"))?])
        }
    }
}

/// Lays a conversation out as tokens: each message by itself, then the role of the answer, so that a conversation that
/// goes on after the engine's answer starts with the tokens that the engine has cached.
fn chat_tokens(tools: Option<&Value>, messages: &[Message]) -> Vec<u32> {
    let mut tokens = Vec::new();
    let other = |tokens: &mut Vec<u32>, value: Option<&Value>| match value {
        None | Some(Value::Null) => (),
        Some(value) => tokenize(&value.to_string(), tokens),
    };
    other(&mut tokens, tools);
    for message in messages {
        tokenize(&message.role, &mut tokens);
        match &message.content {
            Some(Value::String(text)) => tokenize(text, &mut tokens),
            Some(Value::Array(parts)) => {
                for part in parts {
                    match part.get("text").and_then(Value::as_str) {
                        Some(text) => tokenize(text, &mut tokens),
                        None => other(&mut tokens, Some(part)),
                    }
                }
            }
            content => other(&mut tokens, content.as_ref()),
        }
        other(&mut tokens, message.tool_calls.as_ref());
    }
    tokenize("assistant", &mut tokens);
    tokens
}

fn at_least_one(name: &str, n: i64) -> Result<usize, String> {
    usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| format!("expected {name} to be at least 1, found {n}"))
}

fn salt(parts: &[Option<&str>]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    for part in parts {
        hasher.write(part.unwrap_or_default().as_bytes());
        hasher.write_u8(0xFF);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A dialect, a body, and the tokens of prompt and answer of each request in it.
    type Case = (Dialect, &'static str, &'static [(usize, usize)]);

    fn asked(dialect: Dialect, body: &str) -> Ask {
        read(dialect, body.as_bytes()).unwrap()
    }

    fn sizes(ask: &Ask) -> Vec<(usize, usize)> {
        ask.requests.iter().map(|r| (r.prompt.tokens(), r.output_tokens)).collect()
    }

    #[test]
    fn every_dialect_has_its_fields() {
        use Dialect::{Chat, Completions, SglangGenerate, VllmGenerate};
        let cases: &[Case] = &[
            (Completions, r#"{"model":"m","prompt":"abcdefgh"}"#, &[(2, 16)]),
            (Completions, r#"{"prompt":["abcd","abcde"],"max_tokens":3,"n":2}"#, &[(1, 3), (1, 3), (2, 3), (2, 3)]),
            (Completions, r#"{"prompt":[1,2,3],"max_tokens":null,"stream":null}"#, &[(3, 16)]),
            (Chat, r#"{"messages":[{"role":"user","content":"abcd"}]}"#, &[(5, 128)]),
            (Chat, r#"{"messages":[],"max_tokens":9,"max_completion_tokens":8}"#, &[(3, 8)]),
            (Chat, r#"{"messages":[{"role":"user","content":[{"type":"text","text":"abcd"}]}]}"#, &[(5, 128)]),
            (Chat, r#"{"messages":[{"role":"user","content":null}],"text":{},"prompt":{}}"#, &[(4, 128)]),
            (VllmGenerate, r#"{"token_ids":[1,2],"sampling_params":{"max_tokens":5,"top_p":0.5}}"#, &[(2, 5)]),
            (SglangGenerate, r#"{"input_ids":[1,2],"sampling_params":{"max_new_tokens":5}}"#, &[(2, 5)]),
            (SglangGenerate, r#"{"text":"abcdefgh"}"#, &[(2, 128)]),
        ];
        for (dialect, body, want) in cases {
            assert_eq!(sizes(&asked(*dialect, body)), *want, "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_without_repeating_it() {
        use Dialect::{Chat, Completions, SglangGenerate, VllmGenerate};
        let cases = [
            (Completions, "SECRET"),
            (Completions, "[]"),
            (Completions, r#"{"prompt":"SECRET"#),
            (Completions, r#"{"prompt":"SECRET","stream":"SECRET"}"#),
            (Completions, r#"{"prompt":{"a":"SECRET"}}"#),
            (Completions, r#"{"prompt":""}"#),
            (Completions, r#"{"prompt":["a",""]}"#),
            (Completions, r#"{"prompt":"a","max_tokens":0}"#),
            (Completions, r#"{"prompt":"a","n":-1}"#),
            (Completions, r#"{"prompt":"a","n":9223372036854775807}"#),
            (Completions, "{}"),
            (Chat, r#"{"messages":"SECRET"}"#),
            (Chat, r#"{"messages":[{"content":"SECRET"}]}"#),
            (VllmGenerate, r#"{"token_ids":["SECRET"]}"#),
            (VllmGenerate, r#"{"token_ids":[]}"#),
            (SglangGenerate, r#"{"input_ids":[[1],[2]]}"#),
            (SglangGenerate, r#"{"text":["SECRET"]}"#),
            (SglangGenerate, "\u{0}\u{ff}"),
        ];
        for (dialect, body) in cases {
            let error = read(dialect, body.as_bytes()).unwrap_err();
            assert!(!error.contains("SECRET") && error.starts_with("expected "), "{body}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_spoilt_body_is_read_or_refused(
            body in prop::sample::select(vec![
                r#"{"model":"m","prompt":["abc",[1,2]],"n":2,"max_tokens":5,"stream":true}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"abc"}]}],"tools":[{}]}"#,
                r#"{"token_ids":[1,2,3],"sampling_params":{"max_tokens":1e3},"stream_options":{}}"#,
                r#"{"input_ids":[1,4294967295],"sampling_params":{"max_new_tokens":-1},"text":"x"}"#,
            ]),
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = body.as_bytes().to_vec();
            spoilt.iter().for_each(|(at, byte)| bytes[at.index(body.len())] = *byte);
            for dialect in [Dialect::Completions, Dialect::Chat, Dialect::VllmGenerate, Dialect::SglangGenerate] {
                match read(dialect, &bytes) {
                    Ok(ask) => prop_assert!(ask.requests.iter().all(|r| r.prompt.tokens() > 0 && r.output_tokens > 0)),
                    Err(error) => prop_assert!(error.starts_with("expected "), "{}", error),
                }
            }
        }
    }

    #[test]
    fn an_answer_is_a_prefix_of_the_next_turn() {
        let first = r#"{"messages":[{"role":"user","content":"hello"}]}"#;
        let next = r#"{"messages":[{"role":"user","content":"hello"},{"role":"assistant","content":"abc def "},
                      {"role":"user","content":"more"}]}"#;
        let tokens = |body| match asked(Dialect::Chat, body).requests.remove(0).prompt {
            Prompt::Tokens(tokens) => tokens.to_vec(),
            Prompt::Named { .. } => Vec::new(),
        };
        let mut said = tokens(first);
        tokenize("abc def ", &mut said);
        assert_eq!(tokens(next)[..said.len()], said);
    }

    #[test]
    fn a_seed_tells_samples_apart() {
        for (dialect, body, sample) in [
            (Dialect::Completions, r#"{"prompt":"a","seed":7}"#, 7),
            (Dialect::VllmGenerate, r#"{"token_ids":[1],"sampling_params":{"seed":8}}"#, 8),
            (Dialect::VllmGenerate, r#"{"token_ids":[1]}"#, 0),
        ] {
            assert_eq!(asked(dialect, body).requests[0].sample, sample, "{body}");
        }
    }

    #[test]
    fn model_and_salt_keep_prompts_apart() {
        let bodies = [
            r#"{"prompt":"a"}"#,
            r#"{"prompt":"a","model":"m"}"#,
            r#"{"prompt":"a","cache_salt":"m"}"#,
            r#"{"prompt":"a","model":"m","cache_salt":"m"}"#,
        ];
        let salts = bodies.map(|body| asked(Dialect::Completions, body).requests[0].salt);
        assert_eq!(salts.iter().collect::<std::collections::HashSet<_>>().len(), bodies.len());
    }
}
