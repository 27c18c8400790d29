//! What it costs to follow engines' KV caches: decoding their messages, taking them in, and looking a prompt up.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use epp_plugin_api::testing::{Rig, Row, cycle, request, snapshot};
use epp_plugin_api::{Columns, EndpointIdx, Instance, Parsed, Piece, Snapshot};
use epp_plugins::producers::precise::events::{Batch, Dialect};
use epp_plugins::registry::find;
use serde_json::json;

const BLOCK: usize = 16;
const ENDPOINTS: usize = 1000;
const PROMPT_BLOCKS: usize = 6250;

/// A message with one stored event, as vLLM writes it: hashes of 32 bytes, tokens of up to 18 bits.
fn message(hashes: &[u64], tokens: &[u32], parent: Option<u64>) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.5f64.to_be_bytes());
    out.extend([0x91, 0x86]);
    let text = |out: &mut Vec<u8>, text: &str| {
        out.push(0xa0 | text.len() as u8);
        out.extend(text.as_bytes());
    };
    let hash = |out: &mut Vec<u8>, hash: u64| {
        out.extend([0xc4, 32]);
        out.extend([7; 24]);
        out.extend(hash.to_be_bytes());
    };
    let list = |out: &mut Vec<u8>, n: usize| {
        out.push(0xdd);
        out.extend((n as u32).to_be_bytes());
    };
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    list(&mut out, hashes.len());
    hashes.iter().for_each(|&h| hash(&mut out, h));
    text(&mut out, "parent_block_hash");
    match parent {
        Some(parent) => hash(&mut out, parent),
        None => out.push(0xc0),
    }
    text(&mut out, "token_ids");
    list(&mut out, tokens.len());
    for &token in tokens {
        match token {
            0..=0x7f => out.push(token as u8),
            0x80..=0xffff => {
                out.push(0xcd);
                out.extend((token as u16).to_be_bytes());
            }
            _ => {
                out.push(0xce);
                out.extend(token.to_be_bytes());
            }
        }
    }
    text(&mut out, "block_size");
    out.push(BLOCK as u8);
    text(&mut out, "medium");
    text(&mut out, "GPU");
    out.push(0xc0);
    out
}

fn tokens(rng: &mut fastrand::Rng, n: usize) -> Vec<u32> {
    (0..n).map(|_| rng.u32(0..150_000)).collect()
}

/// Messages of one engine that prefills prompts of 64 blocks.
fn messages(n: usize) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut one = || {
        let hashes: Vec<u64> = (0..64).map(|_| rng.u64(..)).collect();
        message(&hashes, &tokens(&mut rng, 64 * BLOCK), None)
    };
    (0..n).map(|_| one()).collect()
}

fn build() -> (Rig, Instance) {
    let rig = Rig::default();
    let kind = find("precise-prefix-cache-producer").expect("it is in the registry");
    let instance = rig.build(kind, json!(null));
    (rig, instance)
}

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("kv_events");
    group.throughput(Throughput::Elements(64 * 64));
    let messages = messages(64);
    let mut batch = Batch::default();
    group.bench_function("decode_blocks", |b| {
        b.iter(|| {
            for message in &messages {
                assert!(batch.decode(Dialect::Vllm, black_box(message)).is_ok());
            }
        });
    });
    let board = snapshot(1, [Row::default()]);
    let id = board.id(EndpointIdx(0));
    group.bench_function("decode_and_index_blocks", |b| {
        b.iter_batched(
            build,
            |(rig, instance)| {
                let sink = &instance.kv.as_ref().expect("it listens").sink;
                messages.iter().for_each(|message| sink.message(id, b"kv@pod@m", black_box(message)));
                (rig, instance)
            },
            BatchSize::PerIteration,
        );
    });
}

/// Endpoints hold the first part of one prompt of 100,000 tokens, every tenth all of it; some have blocks in the host's
/// memory, too.
fn told(board: &Snapshot, instance: &Instance, prompt: &[u32], with_host: bool) {
    let sink = &instance.kv.as_ref().expect("it listens").sink;
    let hashes: Vec<u64> = (1..=PROMPT_BLOCKS as u64).collect();
    for (row, &id) in board.ids().iter().enumerate() {
        let n = if row % 10 == 0 { PROMPT_BLOCKS } else { row % 7 * 500 };
        if n > 0 {
            sink.message(id, b"kv@pod@m", &message(&hashes[..n], &prompt[..n * BLOCK], None));
        }
        if with_host && row % 10 == 0 {
            let mut payload = message(&hashes[..n], &[], None);
            let at = memchr::memmem::find(&payload, b"GPU").expect("the medium is there");
            payload[at..at + 3].copy_from_slice(b"CPU");
            sink.message(id, b"kv@pod@m", &payload);
        }
    }
}

fn produce(c: &mut Criterion) {
    let mut group = c.benchmark_group("precise_produce");
    let board = snapshot(1, vec![Row::default(); ENDPOINTS]);
    let prompt = tokens(&mut fastrand::Rng::with_seed(2), PROMPT_BLOCKS * BLOCK);
    let parsed = Parsed {
        ids: prompt.iter().flat_map(|token| token.to_le_bytes()).collect(),
        pieces: vec![Piece::Ids { at: 0..prompt.len() }],
        ..Parsed::default()
    };
    let request = request(b"", parsed);
    for (name, with_host) in [("one_tier", false), ("two_tiers_on_every_tenth", true)] {
        let (rig, instance) = build();
        told(&board, &instance, &prompt, with_host);
        let cx = cycle(&board, &request);
        let mut columns = Columns::default();
        columns.reset(ENDPOINTS);
        let tokens = find("token-producer").and_then(|kind| rig.build(kind, json!(null)).producer);
        assert_eq!(tokens.map(|tokens| tokens.produce(&cx, &mut columns)), Some(Ok(())));
        let producer = instance.producer.expect("it produces");
        group.bench_function(name, |b| b.iter(|| producer.produce(black_box(&cx), black_box(&mut columns))));
    }
}

criterion_group!(benches, events, produce);
criterion_main!(benches);
