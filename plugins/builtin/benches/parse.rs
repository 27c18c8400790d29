//! How long it takes to read a request body, and a response's events.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use epp_plugin_api::{Headers, Parser, ResponseKind};
use epp_plugins::parsers::openai::OpenAi;
use epp_plugins::parsers::vllmhttp::VllmHttp;

/// A chat whose messages hold this much text, with a line break every 80 characters.
fn chat(n_messages: usize, letters: usize) -> String {
    let line = format!("{}\\n", "Call me Ishmael. ".repeat(5));
    let text = line.repeat(letters / line.len() + 1);
    let messages: Vec<String> = (0..n_messages)
        .map(|i| format!(r#"{{"role":"{}","content":"{text}"}}"#, if i % 2 == 0 { "user" } else { "assistant" }))
        .collect();
    format!(
        r#"{{"model":"meta-llama/Llama-3.1-8B-Instruct","temperature":0.7,"stream":true,"messages":[{}],"max_tokens":256}}"#,
        messages.join(",")
    )
}

fn ids(key: &str, n: u32) -> String {
    let mut rng = fastrand::Rng::with_seed(7);
    let ids: Vec<String> = (0..n).map(|_| rng.u32(0..150_000).to_string()).collect();
    format!(r#"{{"model":"m","{key}":[{}],"sampling_params":{{"max_tokens":256}}}}"#, ids.join(","))
}

fn requests(c: &mut Criterion) {
    let plain = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(440_000));
    let cases: [(&str, &dyn Parser, &str, String); 6] = [
        ("chat of 200 tokens", &OpenAi, "/v1/chat/completions", chat(2, 400)),
        ("chat of 440 KB, 20 messages", &OpenAi, "/v1/chat/completions", chat(20, 22_000)),
        ("prompt of 440 KB without escapes", &OpenAi, "/v1/completions", plain),
        ("100,000 token ids, completions", &OpenAi, "/v1/completions", ids("prompt", 100_000)),
        ("100,000 token ids, generate", &VllmHttp, "/inference/v1/generate", ids("token_ids", 100_000)),
        ("responses of 440 KB", &OpenAi, "/v1/responses", chat(20, 22_000).replace("\"messages\"", "\"input\"")),
    ];
    let headers = Headers::default();
    let mut group = c.benchmark_group("request");
    for (name, parser, path, body) in &cases {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(*name, |b| b.iter(|| parser.parse(path, &headers, black_box(body.as_bytes()))));
    }
    group.finish();
}

fn responses(c: &mut Criterion) {
    let chunk = r#"data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let chunk = format!("{chunk}\n\n");
    let mut group = c.benchmark_group("response");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("1,000 events, a chunk each", |b| {
        b.iter_batched(
            || OpenAi.response("", ResponseKind::Events),
            |mut response| {
                for _ in 0..1000 {
                    black_box(response.feed(black_box(chunk.as_bytes())));
                }
                response.finish()
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();
}

criterion_group!(benches, requests, responses);
criterion_main!(benches);
