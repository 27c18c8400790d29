//! A tokenizer and a chat template in this process.

mod chat;
mod files;
mod python;
mod template;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use epp_plugin_api::{Api, BuildError, InferenceRequest, Job};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokenizers::Tokenizer;

use self::template::Template;
use super::cache::{Key, Prompts};
use super::config::{Local, patience};
use super::engine::{Asked, NOT_RENDERED};
use super::messages;
use super::rendered::Rendered;

/// The tokenizer and the template of one model.
pub struct Model {
    inside: Arc<Inside>,
    known: Arc<Prompts>,
    timeout: Duration,
}

struct Inside {
    tokenizer: Tokenizer,
    template: Option<Template>,
}

impl Model {
    /// Reads the files.
    ///
    /// # Errors
    /// If one is missing or broken, with its path.
    pub fn load(local: &Local, known: Arc<Prompts>) -> Result<Self, BuildError> {
        let timeout = patience(&local.timeout).map_err(|why| BuildError::at("local.timeout", why))?;
        if local.tokenizer.is_empty() {
            let message = "expected the path of a tokenizer.json, found nothing";
            return Err(BuildError::at("local.tokenizer", message));
        }
        let path = files::tokenizer_path(Path::new(&local.tokenizer));
        let tokenizer = files::tokenizer(&path).map_err(|why| BuildError::at("local.tokenizer", why))?;
        let template =
            files::template(&path, &local.chat_template).map_err(|why| BuildError::at("local.chatTemplate", why))?;
        Ok(Self { inside: Arc::new(Inside { tokenizer, template }), known, timeout })
    }

    /// What to encode for this request.
    ///
    /// # Errors
    /// If its kind has no text to be encoded.
    pub fn asked(request: &InferenceRequest) -> Result<Asked, String> {
        match request.parsed.api {
            Api::Other => Err(NOT_RENDERED.into()),
            api => Ok(Asked { api, body: request.body.clone(), has_parts: false }),
        }
    }

    /// Encodes that, unless the same has become known while the job waited for its turn.
    pub fn job(&self, key: Key, asked: &Asked) -> Job {
        let (inside, known, asked) = (self.inside.clone(), self.known.clone(), asked.clone());
        let run = move |now: SystemTime| match known.find(key) {
            Some(found) => Ok(found.to_frame().into()),
            None => inside.encode(&asked, now).map(|rendered| Bytes::from(rendered.to_frame())),
        };
        Job { run: Box::new(run), timeout: self.timeout }
    }
}

#[derive(Deserialize)]
struct Completions<'a> {
    #[serde(borrow)]
    prompt: &'a RawValue,
    add_special_tokens: Option<bool>,
}

impl Inside {
    fn encode(&self, asked: &Asked, now: SystemTime) -> Result<Rendered, String> {
        let mut rendered = Rendered::default();
        match asked.api {
            Api::Completions => {
                let request: Completions<'_> = read(&asked.body)?;
                let prompt = request.prompt.get();
                let several = prompt.starts_with('[');
                let texts: Vec<String> =
                    if several { read(prompt.as_bytes())? } else { vec![read(prompt.as_bytes())?] };
                for text in texts {
                    self.push(&mut rendered, &text, request.add_special_tokens.unwrap_or(true))?;
                }
            }
            Api::Chat => self.push_chat(&mut rendered, &asked.body, now)?,
            Api::Messages => self.push_chat(&mut rendered, &messages::as_chat(&asked.body, "")?, now)?,
            Api::Other => return Err(NOT_RENDERED.into()),
        }
        Ok(rendered)
    }

    fn push_chat(&self, rendered: &mut Rendered, body: &[u8], now: SystemTime) -> Result<(), String> {
        let template = self.template.as_ref().ok_or("expected a chat template, found none beside the tokenizer")?;
        let chat: chat::Chat = read(body)?;
        let add_special_tokens = chat.add_special_tokens;
        let text = template.render(chat, now)?;
        self.push(rendered, &text, add_special_tokens)
    }

    fn push(&self, rendered: &mut Rendered, text: &str, add_special_tokens: bool) -> Result<(), String> {
        let encoding =
            self.tokenizer.encode_fast(text, add_special_tokens).map_err(|e| format!("cannot encode: {e}"))?;
        rendered.push(|into| encoding.get_ids().iter().for_each(|id| into.extend_from_slice(&id.to_le_bytes())));
        Ok(())
    }
}

/// Reads JSON. Says where it is not what was expected, and nothing of what it holds.
fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    let why = |e: serde_json::Error| format!("cannot encode the request: line {} column {}", e.line(), e.column());
    serde_json::from_slice(json).map_err(why)
}
