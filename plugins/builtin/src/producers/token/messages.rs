//! Messages of Anthropic as the chat that an engine makes of them before it fills in its template.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::python_json::dumps;

/// A block of the system text that begins so is for billing, and no model sees it.
const BILLING: &str = "x-anthropic-billing-header";
/// The id of a tool call that has none.
const NO_ID: &str = "call_0000000000";

/// The body of a chat for this model, made of the body of a messages request.
///
/// # Errors
/// If the body is not what the API asks for.
pub fn as_chat(body: &[u8], model: &str) -> Result<Vec<u8>, String> {
    let why =
        |e: serde_json::Error| format!("cannot make a chat of messages at line {} column {}", e.line(), e.column());
    let request: Request<'_> = serde_json::from_slice(body).map_err(why)?;
    let mut chat = Vec::with_capacity(request.messages.len() + 1);
    if let Some(system) = request.system {
        push_system(&mut chat, system).map_err(why)?;
    }
    for message in request.messages {
        push_message(&mut chat, message).map_err(why)?;
    }
    let tools = request.tools.unwrap_or_default().into_iter().map(ChatTool::of).collect();
    serde_json::to_vec(&Chat { model, messages: chat, tools }).map_err(why)
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    system: Option<&'a RawValue>,
    tools: Option<Vec<Tool<'a>>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    content: Option<&'a RawValue>,
}

/// A block of content; each type has some of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    source: Option<Source>,
    id: Option<String>,
    name: Option<String>,
    input: Option<&'a RawValue>,
    tool_use_id: Option<String>,
    content: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Source {
    media_type: Option<String>,
    data: Option<String>,
    url: Option<String>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    description: Option<String>,
    input_schema: Option<&'a RawValue>,
    strict: Option<bool>,
    defer_loading: Option<bool>,
}

/// What a message says: the one string, or blocks.
fn blocks(content: &RawValue) -> serde_json::Result<Vec<Block<'_>>> {
    match content.get().as_bytes().first() {
        Some(b'"') => {
            let text = Some(serde_json::from_str(content.get())?);
            Ok(vec![Block { kind: "text".into(), text, ..Block::default() }])
        }
        Some(b'n') => Ok(Vec::new()),
        _ => serde_json::from_str(content.get()),
    }
}

#[derive(Serialize)]
struct Chat<'a> {
    model: &'a str,
    messages: Vec<ChatMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatTool<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct ChatMessage {
    role: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Debug, Serialize)]
struct ToolCall {
    id: String,
    r#type: &'static str,
    function: Called,
}

#[derive(Debug, Serialize)]
struct Called {
    name: String,
    arguments: String,
}

#[derive(Serialize)]
struct ChatTool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    parameters: Schema<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    defer_loading: Option<bool>,
}

/// What a tool takes: as the client wrote it, or any object.
#[derive(Serialize)]
#[serde(untagged)]
enum Schema<'a> {
    Given(&'a RawValue),
    Any { r#type: &'static str },
}

impl<'a> ChatTool<'a> {
    fn of(tool: Tool<'a>) -> Self {
        let Tool { name, description, input_schema, strict, defer_loading } = tool;
        let parameters = input_schema.map_or(Schema::Any { r#type: "object" }, Schema::Given);
        Self { r#type: "function", function: Function { name, description, parameters, strict, defer_loading } }
    }
}

fn push_system(chat: &mut Vec<ChatMessage>, content: &RawValue) -> serde_json::Result<()> {
    let whole = content.get().starts_with('"');
    let texts = blocks(content)?.into_iter().filter(|block| block.kind == "text").filter_map(|block| block.text);
    let text: String = texts.filter(|text| whole || !text.starts_with(BILLING)).collect();
    if !text.is_empty() {
        chat.push(ChatMessage { role: "system".into(), content: Some(Content::Text(text)), ..ChatMessage::default() });
    }
    Ok(())
}

fn push_message(chat: &mut Vec<ChatMessage>, message: Message<'_>) -> serde_json::Result<()> {
    let Message { role, content } = message;
    let Some(content) = content else { return Ok(()) };
    if role == "system" {
        return push_system(chat, content);
    }
    let (mut said, mut parts) = (ChatMessage { role: role.into_owned(), ..ChatMessage::default() }, Vec::new());
    for block in blocks(content)? {
        match &*block.kind {
            "text" => parts.extend(block.text.map(|text| Part::Text { text })),
            "image" => parts.extend(block.source.map(image)),
            "thinking" => said.reasoning.push_str(&block.thinking.unwrap_or_default()),
            "tool_use" => said.tool_calls.push(tool_call(block)),
            "tool_result" => {
                let id = block.tool_use_id.or(block.id);
                let (text, images) = result(block.content)?;
                if said.role == "user" {
                    push_result(chat, id, text, images);
                } else {
                    parts.push(Part::Text { text: format!("Tool result: {text}") });
                }
            }
            _ => {}
        }
    }
    said.content = match parts.as_mut_slice() {
        [] => None,
        [Part::Text { text }] => Some(Content::Text(std::mem::take(text))),
        _ => Some(Content::Parts(parts)),
    };
    let says_nothing = said.content.is_none() && said.tool_calls.is_empty();
    if !(said.role == "user" && says_nothing) {
        chat.push(said);
    }
    Ok(())
}

fn image(source: Source) -> Part {
    let url = source.url.filter(|url| !url.is_empty()).unwrap_or_else(|| {
        let media_type = source.media_type.filter(|kind| !kind.is_empty());
        let (kind, data) = (media_type.as_deref().unwrap_or("image/jpeg"), source.data.unwrap_or_default());
        format!("data:{kind};base64,{data}")
    });
    Part::ImageUrl { image_url: ImageUrl { url } }
}

fn tool_call(block: Block<'_>) -> ToolCall {
    let input = block.input.map(RawValue::get).filter(|input| *input != "null").unwrap_or("{}");
    let id = block.id.filter(|id| !id.is_empty()).unwrap_or_else(|| NO_ID.to_owned());
    let function = Called { name: block.name.unwrap_or_default(), arguments: dumps(input) };
    ToolCall { id, r#type: "function", function }
}

/// What a tool gave back: its texts, a line each, and its images.
fn result(content: Option<&RawValue>) -> serde_json::Result<(String, Vec<Part>)> {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for block in content.map(blocks).transpose()?.unwrap_or_default() {
        match &*block.kind {
            "text" => texts.extend(block.text),
            "image" => images.extend(block.source.map(image)),
            _ => {}
        }
    }
    Ok((texts.join("\n"), images))
}

/// Puts what a tool gave back before the message that it came with.
fn push_result(chat: &mut Vec<ChatMessage>, id: Option<String>, text: String, images: Vec<Part>) {
    chat.push(ChatMessage {
        role: "tool".into(),
        content: Some(Content::Text(text)),
        tool_call_id: Some(id.unwrap_or_default()),
        ..ChatMessage::default()
    });
    if !images.is_empty() {
        let content = Some(Content::Parts(images));
        chat.push(ChatMessage { role: "user".into(), content, ..ChatMessage::default() });
    }
}

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
