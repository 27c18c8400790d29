//! Small models in files of their own: tokens, templates of the well-known kinds, and what is refused.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use epp_plugin_api::{BuildError, Headers, Parser};
use serde_json::{Value, json};

use super::super::config::Cache;
use super::*;
use crate::parsers::anthropic::Anthropic;
use crate::parsers::openai::OpenAi;
use crate::testing::request;

/// A directory of a model; gone with it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Directory {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("epp-tokenizer-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        files.iter().for_each(|(file, text)| fs::write(path.join(file), text).unwrap());
        Self(path)
    }

    fn load(&self, tokenizer: &str, chat_template: &str) -> Result<Model, String> {
        let within = |file: &str| if file.is_empty() { String::new() } else { self.0.join(file).display().to_string() };
        let tokenizer = self.0.join(tokenizer).display().to_string();
        let local = Local { tokenizer, chat_template: within(chat_template), ..Local::default() };
        let known = Arc::new(Prompts::new(Cache::default()));
        Model::load(&local, known).map_err(|BuildError(mistakes)| mistakes[0].to_string())
    }
}

/// Words and signs, one token each; 0 is what is not known, 7 begins a text.
fn words() -> String {
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [{"id": 7, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}},
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "hello": 1, "world": 2, "user": 3, ":": 4, "é": 5, "<s>": 7}},
    })
    .to_string()
}

const PLAIN: &str = r#"{"chat_template": "{% for m in messages %}{{ m.role + ': ' + m.content }} {% endfor %}"}"#;

fn prompts(model: &Model, path: &str, body: &Value) -> Result<Vec<Vec<u32>>, String> {
    let body = body.to_string().into_bytes();
    let parser: &dyn Parser = if path.ends_with("messages") { &Anthropic } else { &OpenAi };
    let parsed = parser.parse(path, &Headers::default(), &body).unwrap();
    let asked = Model::asked(&request(&body, parsed))?;
    let answer = (model.job(1, &asked).run)(UNIX_EPOCH)?;
    let id = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    Ok(Rendered::of_frame(&answer)?.prompts().map(|tokens| tokens.chunks(4).map(id).collect()).collect())
}

#[test]
fn texts_and_chats_become_tokens() {
    let directory = Directory::new("texts", &[("tokenizer.json", &words()), ("tokenizer_config.json", PLAIN)]);
    for tokenizer in ["tokenizer.json", ""] {
        let model = directory.load(tokenizer, "").unwrap();
        let one = |prompt: Value| prompts(&model, "/v1/completions", &json!({"prompt": prompt}));
        assert_eq!(one(json!("hello \u{e9} moon")), Ok(vec![vec![7, 1, 5, 0]]));
        assert_eq!(one(json!(["hello", "world hello"])), Ok(vec![vec![7, 1], vec![7, 2, 1]]));
        let bare = json!({"prompt": "hello", "add_special_tokens": false});
        assert_eq!(prompts(&model, "/v1/completions", &bare), Ok(vec![vec![1]]));
        let chat = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1});
        assert_eq!(prompts(&model, "/v1/chat/completions", &chat), Ok(vec![vec![3, 4, 1]]));
        assert_eq!(prompts(&model, "/v1/messages", &chat), Ok(vec![vec![3, 4, 1]]));
        let media =
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]});
        assert_eq!(
            prompts(&model, "/v1/chat/completions", &media),
            Err("expected texts in a message, found media".into())
        );
        assert!(prompts(&model, "/v1/embeddings", &json!({"input": "hello"})).is_err());
    }
}

#[test]
fn pairs_are_merged_as_the_tokenizer_says() {
    let tokenizer = json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null, "added_tokens": [], "normalizer": null, "post_processor": null, "decoder": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġab": 4}, "merges": [["a", "b"], ["Ġ", "ab"]]},
    });
    let directory = Directory::new("pairs", &[("tokenizer.json", &tokenizer.to_string())]);
    let model = directory.load("tokenizer.json", "").unwrap();
    // All of it, though the file says to cut it off.
    assert_eq!(prompts(&model, "/v1/completions", &json!({"prompt": "ab abb ba"})), Ok(vec![vec![2, 4, 1, 3, 1, 0]]));
    let chat = json!({"messages": [{"role": "user", "content": "ab"}]});
    assert!(prompts(&model, "/v1/chat/completions", &chat).unwrap_err().contains("found none beside the tokenizer"));
}

#[test]
fn what_is_known_by_then_is_not_encoded_again() {
    let directory = Directory::new("known", &[("tokenizer.json", &words())]);
    let model = directory.load("", "").unwrap();
    let mut known = Rendered::default();
    known.push(|into| into.extend_from_slice(&9u32.to_le_bytes()));
    model.known.insert(1, Arc::new(known));
    assert_eq!(prompts(&model, "/v1/completions", &json!({"prompt": "hello"})), Ok(vec![vec![9]]));
}

#[test]
fn a_file_that_is_missing_or_broken_is_named() {
    let (good, broken) = (words(), "{% for x in y %}");
    let files = [("tokenizer.json", good.as_str()), ("broken.json", "{\"version\": 1}"), ("broken.jinja", broken)];
    let directory = Directory::new("broken", &files);
    for (tokenizer, template, why) in [
        ("none.json", "", "local.tokenizer: cannot read"),
        ("broken.json", "", "local.tokenizer: expected a tokenizer in"),
        ("tokenizer.json", "none.jinja", "local.chatTemplate: cannot read"),
        ("tokenizer.json", "broken.jinja", "expected a chat template, found"),
    ] {
        let message = directory.load(tokenizer, template).err().unwrap();
        let culprit = if template.is_empty() { tokenizer } else { template };
        assert!(message.contains(why) && message.contains(culprit) && !message.contains('\n'), "{message}");
    }
    let odd = Directory::new("odd", &[("tokenizer.json", &words()), ("tokenizer_config.json", "[")]);
    assert!(odd.load("", "").err().unwrap().contains("tokenizer_config.json"));
}
