//! A chat request as templates are shown it.

use std::collections::BTreeMap;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

/// What of the body of a chat goes into its prompt.
#[derive(Debug, Deserialize)]
pub struct Chat {
    pub messages: Vec<BTreeMap<String, Value>>,
    pub tools: Option<Value>,
    pub documents: Option<Value>,
    /// Whether the prompt ends where the model is to begin.
    #[serde(default = "yes")]
    pub add_generation_prompt: bool,
    #[serde(default)]
    pub continue_final_message: bool,
    /// Whether the tokenizer adds its special tokens; templates write their own.
    #[serde(default)]
    pub add_special_tokens: bool,
    pub chat_template_kwargs: Option<BTreeMap<String, Value>>,
}

fn yes() -> bool {
    true
}

/// How templates take the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// As one text; the texts of a list are lines of it.
    Text,
    /// As a list; a text alone is a list of one.
    List,
}

impl Contents {
    /// Tells by whether the template goes through the contents of messages one by one.
    pub fn of(source: &str) -> Self {
        let loops = source.split("for ").skip(1).filter_map(|rest| rest.split("%}").next());
        let over_contents = |head: &str| {
            let over = head.split(" in ").nth(1).unwrap_or_default().trim_end_matches('-').trim_end();
            over.ends_with(".content")
                || over.ends_with("['content']")
                || over.ends_with("[\"content\"]")
                || over == "content"
        };
        if loops.into_iter().any(over_contents) { Self::List } else { Self::Text }
    }
}

/// A message as templates are shown it: contents in the form that they take, arguments of tool calls as objects, and
/// reasoning under both names that are in use.
///
/// # Errors
/// If it holds anything but text.
pub fn shown(mut message: BTreeMap<String, Value>, contents: Contents) -> Result<Value, String> {
    let content = message.remove("content").unwrap_or_default();
    message.insert("content".into(), content_as(&content, contents)?);
    if let Some(calls) = message.remove("tool_calls").filter(|calls| calls.kind() == ValueKind::Seq) {
        let calls: Vec<Value> = calls.try_iter().into_iter().flatten().map(|call| with_arguments(&call)).collect();
        message.insert("tool_calls".into(), calls.into());
    }
    for (one, other) in [("reasoning", "reasoning_content"), ("reasoning_content", "reasoning")] {
        if let Some(reasoning) = message.get(one).cloned() {
            message.entry(other.into()).or_insert(reasoning);
        }
    }
    Ok(Value::from(message))
}

fn content_as(content: &Value, contents: Contents) -> Result<Value, String> {
    let texts = match content.kind() {
        ValueKind::String => vec![content.clone()],
        ValueKind::Seq => {
            content.try_iter().into_iter().flatten().map(|part| text_of(&part)).collect::<Result<_, _>>()?
        }
        ValueKind::None | ValueKind::Undefined => Vec::new(),
        _ => return Err("expected a text or a list as the content of a message, found something else".into()),
    };
    Ok(match contents {
        Contents::Text => {
            let lines: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
            Value::from(lines.join("\n"))
        }
        Contents::List => {
            let part = |text| Value::from(BTreeMap::from([("type", Value::from("text")), ("text", text)]));
            texts.into_iter().map(part).collect()
        }
    })
}

fn text_of(part: &Value) -> Result<Value, String> {
    let text = if part.kind() == ValueKind::String { part.clone() } else { part.get_attr("text").unwrap_or_default() };
    if text.kind() == ValueKind::String { Ok(text) } else { Err("expected texts in a message, found media".into()) }
}

/// A tool call whose arguments are an object, as templates write them anew; they stay as they are if they are no JSON.
fn with_arguments(call: &Value) -> Value {
    let function = call.get_attr("function").unwrap_or_default();
    let arguments = function.get_attr("arguments").unwrap_or_default();
    let Some(text) = arguments.as_str() else { return call.clone() };
    let text = if text.trim().is_empty() { "{}" } else { text };
    let Ok(read) = serde_json::from_str::<Value>(text) else { return call.clone() };
    with(call, "function", with(&function, "arguments", read))
}

/// The object with another value under this key.
fn with(object: &Value, key: &str, value: Value) -> Value {
    let keys = object.try_iter().into_iter().flatten();
    let entries = keys.map(|k| {
        let own = if k.as_str() == Some(key) { value.clone() } else { object.get_item(&k).unwrap_or_default() };
        (k, own)
    });
    Value::from_pairs(entries)
}
