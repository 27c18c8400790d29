//! Feeds any bytes to what reads an engine's rendered prompts, and to what makes a chat of messages.

#![no_main]

use epp_plugin_api::{Headers, Parser};
use epp_plugins::parsers::{anthropic::Anthropic, openai::OpenAi};
use epp_plugins::producers::token::messages::as_chat;
use epp_plugins::producers::token::rendered::Rendered;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for rendered in [Rendered::of_chat(bytes), Rendered::of_completions(bytes)].into_iter().flatten() {
        assert!(rendered.prompts().all(|tokens| tokens.len() % 4 == 0));
        // Every token took at least one byte and a comma or a bracket.
        assert!(rendered.prompts().map(<[u8]>::len).sum::<usize>() <= 2 * bytes.len());
    }
    if let Ok(chat) = as_chat(bytes, "the/model")
        && Anthropic.parse("/v1/messages", &Headers::default(), bytes).is_ok()
    {
        let parsed = OpenAi.parse("/v1/chat/completions", &Headers::default(), &chat);
        assert_ne!(parsed.map(|parsed| parsed.model), Ok(None));
    }
});
