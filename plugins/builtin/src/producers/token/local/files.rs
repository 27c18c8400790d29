//! Reads what a model directory holds: the tokenizer, the chat template, and the names of special tokens.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use minijinja::Value;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokenizers::Tokenizer;

use super::template::{DEFAULT, Template};

/// What `tokenizer_config.json` says that matters here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerConfig {
    chat_template: Value,
    bos_token: Value,
    eos_token: Value,
    unk_token: Value,
    pad_token: Value,
}

/// The file of a tokenizer that is named by it or by its directory.
pub fn tokenizer_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() }
}

/// Reads a tokenizer.
///
/// # Errors
/// Says what is wrong with the file, with its path.
pub fn tokenizer(path: &Path) -> Result<Tokenizer, String> {
    let bytes = fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let broken = |e| format!("expected a tokenizer in {}, found {e}", path.display());
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(broken)?;
    // A prompt counts as it is, however long.
    tokenizer.with_padding(None).with_truncation(None).map_err(broken)?;
    Ok(tokenizer)
}

/// Reads the template: the given file, or else what is beside the tokenizer. `None` if there is nothing.
///
/// # Errors
/// Says what is wrong with a file, with its path.
pub fn template(tokenizer: &Path, given: &str) -> Result<Option<Template>, String> {
    let beside = |name| tokenizer.with_file_name(name);
    let config_path = beside("tokenizer_config.json");
    let config: TokenizerConfig = if config_path.exists() { json(&config_path)? } else { TokenizerConfig::default() };
    let own = beside("chat_template.jinja");
    let given = if given.is_empty() { Some(own).filter(|own| own.exists()) } else { Some(PathBuf::from(given)) };
    let (path, sources) = match given {
        Some(path) => {
            let text = fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            (path, BTreeMap::from([(DEFAULT.to_owned(), text)]))
        }
        None => (config_path, named(&config.chat_template)),
    };
    if sources.is_empty() {
        return Ok(None);
    }
    let special = [
        ("bos_token", config.bos_token),
        ("eos_token", config.eos_token),
        ("unk_token", config.unk_token),
        ("pad_token", config.pad_token),
    ];
    let special =
        special.into_iter().filter_map(|(name, token)| Some((name.to_owned(), Value::from(text_of(&token)?))));
    Template::new(sources, special.collect()).map(Some).map_err(|why| format!("{}: {why}", path.display()))
}

/// One template, or several with names.
fn named(templates: &Value) -> BTreeMap<String, String> {
    if let Some(text) = templates.as_str() {
        return BTreeMap::from([(DEFAULT.to_owned(), text.to_owned())]);
    }
    let entries = templates.try_iter().into_iter().flatten();
    let text = |entry: &Value, key| Some(entry.get_attr(key).ok()?.as_str()?.to_owned());
    entries.filter_map(|entry| Some((text(&entry, "name")?, text(&entry, "template")?))).collect()
}

/// A token, which is a text or an object that has it as its content.
fn text_of(token: &Value) -> Option<String> {
    let inside = token.get_attr("content").ok().filter(|content| content.as_str().is_some());
    inside.as_ref().unwrap_or(token).as_str().map(str::to_owned)
}

fn json<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let bytes = fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| format!("expected the config of a tokenizer in {}, found {e}", path.display()))
}
