//! The parameters of the token producer: which backend makes tokens, and how it is reached.

use std::time::Duration;

use epp_plugin_api::{BuildError, NodeError};
use schemars::JsonSchema;
use serde::Deserialize;

use super::estimate::Estimate;
use crate::duration;

/// Which backend makes tokens. Without any of these keys it is the estimate.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Estimate tokens from text.
    estimate: Option<Estimate>,
    /// The model that an engine is asked to render prompts for, whatever the client asks for. Needed for `vllm`, which it
    /// chooses if it stands alone.
    model_name: String,
    /// An engine that renders prompts into tokens.
    vllm: Option<Vllm>,
    /// A tokenizer in this process.
    local: Option<Local>,
    /// A tokenizer behind a Unix socket. Is refused: use `vllm` or `local`.
    uds_tokenizer_config: Option<Uds>,
}

/// An engine of vLLM that renders prompts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Vllm {
    /// The address of the engine; `http` only. Slashes at its end do not count. Default `http://localhost:8000`.
    url: String,
    /// How long to wait for the tokens of a prompt, as `5s`; above 0. A request without an answer goes on without tokens.
    /// Default `5s`.
    timeout: String,
    /// The same for chats in which the content of a message is a list, as it is with media. Default `30s`.
    mm_timeout: String,
    /// The prompts that are remembered, so that equal ones are asked for once.
    cache: Cache,
}

impl Default for Vllm {
    fn default() -> Self {
        Self {
            url: "http://localhost:8000".into(),
            timeout: "5s".into(),
            mm_timeout: "30s".into(),
            cache: Cache::default(),
        }
    }
}

/// A tokenizer and a chat template, read from files when the config is loaded.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Local {
    /// The path of a `tokenizer.json`, or of the directory that it is in.
    pub tokenizer: String,
    /// The path of the chat template, a file of Jinja. Default: what `chat_template.jinja`, or else
    /// `tokenizer_config.json`, beside the tokenizer says. Without any, chats have no tokens.
    pub chat_template: String,
    /// How long a request waits for its tokens, as `5s`; above 0. After that it goes on without. Default `5s`.
    pub timeout: String,
    /// The prompts that are remembered, so that equal ones are encoded once.
    pub cache: Cache,
}

impl Default for Local {
    fn default() -> Self {
        Self { tokenizer: String::new(), chat_template: String::new(), timeout: "5s".into(), cache: Cache::default() }
    }
}

/// How much is remembered. What was used longest ago is forgotten first.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Cache {
    /// So many request bodies at most. 0: nothing is remembered. Default 1024.
    pub max_prompts: usize,
    /// So many megabytes of tokens at most. 0: nothing is remembered. Default 64.
    pub max_megabytes: usize,
}

impl Default for Cache {
    fn default() -> Self {
        Self { max_prompts: 1024, max_megabytes: 64 }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Uds {
    /// The path of the socket.
    socket_file: String,
    /// Whether to connect over TCP instead.
    #[serde(rename = "useTCP")]
    _use_tcp: bool,
    /// The tokenizer of each model.
    #[serde(rename = "modelTokenizerMap")]
    _model_tokenizer_map: std::collections::BTreeMap<String, String>,
}

/// The backend that the parameters choose.
pub enum Backend {
    Estimate(Estimate),
    Vllm(Engine),
    Local(Local),
}

/// An engine that is asked for tokens.
#[derive(Debug)]
pub struct Engine {
    /// Its address without a slash at the end.
    pub base: String,
    pub model: String,
    pub timeout: Duration,
    /// For chats with lists of contents.
    pub mm_timeout: Duration,
    pub cache: Cache,
}

impl Config {
    /// Says which backend is chosen.
    ///
    /// # Errors
    /// If it is more than one, or a parameter is missing or out of range.
    pub fn backend(self) -> Result<Backend, BuildError> {
        let vllm = self.vllm.is_some() || !self.model_name.is_empty();
        let uds = self.uds_tokenizer_config.is_some_and(|uds| !uds.socket_file.is_empty());
        let chosen = [vllm, uds, self.local.is_some(), self.estimate.is_some()];
        if chosen.into_iter().filter(|chosen| *chosen).count() > 1 {
            let message = "expected at most one backend of estimate, vllm, local and udsTokenizerConfig; modelName \
                           counts as vllm";
            return Err(BuildError::new(message));
        }
        if uds {
            let message = "a tokenizer behind a socket is not supported, expected vllm.url or local.tokenizer";
            return Err(BuildError::at("udsTokenizerConfig", message));
        }
        if let Some(local) = self.local {
            return Ok(Backend::Local(local));
        }
        if vllm {
            return self.vllm.unwrap_or_default().engine(self.model_name).map(Backend::Vllm);
        }
        let estimate = self.estimate.unwrap_or_default();
        let mistakes = estimate.video.mistakes();
        if mistakes.is_empty() { Ok(Backend::Estimate(estimate)) } else { Err(BuildError(mistakes)) }
    }
}

impl Vllm {
    fn engine(self, model: String) -> Result<Engine, BuildError> {
        let mut mistakes = Vec::new();
        let mut say = |path: &str, message: String| {
            mistakes.push(NodeError { place: None, path: path.to_owned(), message });
        };
        if model.is_empty() {
            say("modelName", "expected the name of a model for the vllm backend, found nothing".into());
        }
        if let Err(message) = check_address(&self.url) {
            say("vllm.url", message);
        }
        let mut wait = |path, text: &str| {
            let read = patience(text);
            read.unwrap_or_else(|message| {
                say(path, message);
                Duration::ZERO
            })
        };
        let timeout = wait("vllm.timeout", &self.timeout);
        let mm_timeout = wait("vllm.mmTimeout", &self.mm_timeout);
        if !mistakes.is_empty() {
            return Err(BuildError(mistakes));
        }
        let base = self.url.trim_end_matches('/').to_owned();
        Ok(Engine { base, model, timeout, mm_timeout, cache: self.cache })
    }
}

fn check_address(url: &str) -> Result<(), String> {
    let expected = "expected an address such as http://localhost:8000";
    if url.starts_with("https://") {
        return Err(format!("{expected}, found {url:?}: engines are not asked over TLS"));
    }
    let host = url.strip_prefix("http://").unwrap_or_default();
    let odd = |c: char| c.is_ascii_whitespace() || c.is_control() || matches!(c, '?' | '#');
    if host.is_empty() || host.starts_with(['/', ':']) || host.contains(odd) {
        return Err(format!("{expected}, found {url:?}"));
    }
    Ok(())
}

/// Reads how long a request waits.
///
/// # Errors
/// If it is no duration, or none at all.
pub fn patience(text: &str) -> Result<Duration, String> {
    let read = duration::parse(text)?;
    if read.is_zero() { Err(format!("expected a duration above 0, found {text:?}")) } else { Ok(read) }
}
