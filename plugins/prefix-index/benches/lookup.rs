//! Speed of the index at the size that matters: prompts of 100,000 tokens, 1,000 endpoints.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use epp_prefix_index::keys::{chain_keys, chain_seed};
use epp_prefix_index::matches::Matches;
use epp_prefix_index::{Limits, Owner, PrefixIndex};

const OWNERS: u32 = 1000;
const TOKENS: usize = 100_000;
const BLOCKS: usize = TOKENS / 16;
const CAPACITY: usize = 31_250;

fn owner(slot: u32) -> Owner {
    Owner { slot, serial: slot + 1 }
}

fn tokens(seed: u64, n: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).flat_map(|_| rng.u32(..150_000).to_le_bytes()).collect()
}

fn keys(tokens: &[u8], block: usize) -> Vec<u64> {
    let mut keys = Vec::new();
    chain_keys(chain_seed("model", ""), tokens, block, usize::MAX, &mut keys);
    keys
}

/// An index in which every owner holds the prompt.
fn shared(prompt: &[u64]) -> PrefixIndex {
    let index = PrefixIndex::new(Limits::default());
    (0..OWNERS).for_each(|slot| index.store(owner(slot), prompt, CAPACITY));
    index
}

/// A session of an agent: each turn's prompt is the last one's and some more, with a short block at its end.
fn turns(session: u64, n: usize) -> Vec<Vec<u64>> {
    let all = tokens(session, 1_900 * n + 5);
    (1..=n).map(|turn| keys(&all[..(1_900 * turn + 5) * 4], 64)).collect()
}

fn lookup(c: &mut Criterion) {
    let prompt = keys(&tokens(1, TOKENS), 16);
    assert_eq!(prompt.len(), BLOCKS);
    let index = shared(&prompt);
    let mut matches = Matches::default();
    let mut counts = vec![0; OWNERS as usize];
    let mut group = c.benchmark_group("lookup");
    group.bench_function("6250_blocks_on_1000_owners", |b| b.iter(|| index.matches(black_box(&prompt), &mut matches)));
    group.bench_function("6250_blocks_on_1000_owners_and_fill", |b| {
        b.iter(|| {
            index.matches(black_box(&prompt), &mut matches);
            matches.fill((0..OWNERS).map(owner), black_box(&mut counts));
        })
    });
    let mut half = prompt.clone();
    half[BLOCKS / 2..].iter_mut().for_each(|k| *k ^= 1);
    group.bench_function("diverges_half_way", |b| b.iter(|| index.matches(black_box(&half), &mut matches)));
    group.bench_function("cold", |b| b.iter(|| index.matches(black_box(&half[BLOCKS / 2..]), &mut matches)));
    group.finish();

    for block in [64, 16] {
        let text = tokens(1, TOKENS);
        let index = shared(&keys(&text, block));
        let mut buffer = Vec::new();
        c.bench_function(&format!("hash_and_lookup/100k_tokens_in_blocks_of_{block}"), |b| {
            b.iter(|| {
                buffer.clear();
                chain_keys(chain_seed("model", ""), black_box(&text), block, usize::MAX, &mut buffer);
                index.matches(&buffer, &mut matches);
            })
        });
    }
}

/// An index as traffic leaves it: sessions of 50 turns, each turn at some owner.
fn store(c: &mut Criterion) {
    let prompt = keys(&tokens(1, TOKENS), 16);
    let index = shared(&prompt);
    c.bench_function("store/6250_blocks_already_there", |b| {
        b.iter(|| index.store(owner(7), black_box(&prompt), CAPACITY))
    });
    let mut fresh = prompt.clone();
    let mut round = 0;
    c.bench_function("store/6250_new_blocks_of_a_full_owner", |b| {
        b.iter(|| {
            round += 1;
            fresh.iter_mut().for_each(|k| *k = k.wrapping_add(round));
            index.store(owner(7), black_box(&fresh), CAPACITY);
        })
    });

    let index = PrefixIndex::new(Limits::default());
    let mut rng = fastrand::Rng::with_seed(5);
    let sessions: Vec<_> = (0..100).map(|session| turns(session, 50)).collect();
    for turn in 0..50 {
        sessions.iter().for_each(|s| index.store(owner(rng.u32(..OWNERS)), &s[turn], CAPACITY));
    }
    let mut matches = Matches::default();
    let mut at = 0;
    c.bench_function("lookup/last_of_50_turns", |b| {
        b.iter(|| {
            at = (at + 1) % sessions.len();
            index.matches(black_box(&sessions[at][49]), &mut matches);
        })
    });
}

/// A lookup while another thread stores new prompts at full owners without a pause.
fn contended(c: &mut Criterion) {
    let prompt = keys(&tokens(1, TOKENS), 16);
    let index = shared(&prompt);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rng, mut fresh) = (fastrand::Rng::with_seed(9), vec![0; 2048]);
            while !stop.load(Ordering::Relaxed) {
                let tail = 128 * (1 + rng.usize(..15));
                fresh[..2048 - tail].copy_from_slice(&prompt[..2048 - tail]);
                fresh[2048 - tail..].iter_mut().for_each(|k| *k = rng.u64(..));
                index.store(owner(rng.u32(..OWNERS)), &fresh, 8192);
            }
        });
        let mut matches = Matches::default();
        c.bench_function("lookup/beside_a_busy_writer", |b| b.iter(|| index.matches(black_box(&prompt), &mut matches)));
        stop.store(true, Ordering::Relaxed);
    });
}

/// What engines say: the same prompt by events of 128 blocks, at 1,000 places.
fn said(c: &mut Criterion) {
    let prompt = keys(&tokens(1, TOKENS), 16);
    let index = PrefixIndex::new(Limits::default());
    let say = |slot: u32, from: usize| {
        let parent = from.checked_sub(1).map(|at| prompt[at] ^ u64::from(slot));
        let keys = &prompt[from..(from + 128).min(BLOCKS)];
        let hashes: Vec<u64> = keys.iter().map(|key| key ^ u64::from(slot)).collect();
        index.store_blocks(owner(slot), &[], parent, &hashes, keys);
        hashes
    };
    for from in (0..BLOCKS).step_by(128) {
        (0..OWNERS).for_each(|slot| drop(say(slot, from)));
    }
    let (mut matches, mut at) = (Matches::default(), 0);
    let mut group = c.benchmark_group("said");
    group.bench_function("lookup_6250_blocks_at_1000_places", |b| {
        b.iter(|| index.matches(black_box(&prompt), &mut matches))
    });
    group.bench_function("store_128_blocks_and_remove_them", |b| {
        b.iter(|| {
            at = (at + 17) % OWNERS;
            // Once more, and twice less: the place loses them and gets them back in the end.
            let hashes = say(at, 1280);
            index.remove_blocks(owner(at), &hashes);
            index.remove_blocks(owner(at), &hashes);
            say(at, 1280)
        })
    });
    index.matches(&prompt, &mut matches);
    assert!((0..OWNERS).all(|slot| matches.of(owner(slot)) == BLOCKS), "all hold all again");
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700));
    targets = lookup, store, said, contended
}
criterion_main!(benches);
