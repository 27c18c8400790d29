//! Feeds any bytes to the parsers, as a request body and as a response cut in two, and uses what they say of it.

#![no_main]

use epp_plugin_api::{Headers, Parser, ResponseKind, rewrite_model};
use epp_plugins::parsers::{anthropic::Anthropic, openai::OpenAi, sglanghttp::SglangHttp, vllmhttp::VllmHttp};
use libfuzzer_sys::fuzz_target;

const APIS: [(&dyn Parser, &str); 9] = [
    (&OpenAi, "/v1/chat/completions"),
    (&OpenAi, "/v1/completions"),
    (&OpenAi, "/v1/responses"),
    (&OpenAi, "/v1/conversations"),
    (&OpenAi, "/v1/embeddings"),
    (&OpenAi, "/v1/images/generations"),
    (&Anthropic, "/v1/messages"),
    (&VllmHttp, "/inference/v1/generate"),
    (&SglangHttp, "/generate"),
];

fuzz_target!(|input: (u8, usize, &[u8])| {
    let (api, cut, body) = input;
    let (parser, path) = APIS[usize::from(api) % APIS.len()];
    if let Ok(parsed) = parser.parse(path, &Headers::default(), body)
        && parsed.model_aware
    {
        let rewritten = rewrite_model(body, &parsed, "target");
        let again = parser.parse(path, &Headers::default(), &rewritten).expect("a rewritten body is as good");
        assert_eq!(again.model.as_deref(), Some("target").filter(|_| parsed.insert_at.is_some()));
        assert_eq!(again.ids, parsed.ids);
    }
    for kind in [ResponseKind::Whole, ResponseKind::Events] {
        let mut response = parser.response(path, kind);
        let (first, second) = body.split_at(cut % (body.len() + 1));
        response.feed(first);
        response.feed(second);
        response.finish();
    }
});
