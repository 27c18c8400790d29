//! One thing done many times: two runs of different length, under a tool that counts instructions, give the price of one.

use std::hint::black_box;

use epp_prefix_index::PrefixIndex;
use epp_prefix_index::keys::{chain_keys, chain_seed};
use epp_prefix_index::matches::Matches;

use super::{BLOCKS, CHUNK, hash, limits, place, prompt, shared, tokens};

/// So many engines hold the prompt: enough for the set of holders to have several words, few enough for a slow tool.
const ENGINES: u32 = 100;

/// Does what the arguments say: a case and a number.
pub fn repeat(args: &[String]) {
    let [case, times, ..] = args else { panic!("expected --repeat CASE N, found {args:?}") };
    let times: usize = times.parse().expect("the second one is a number");
    match case.as_str() {
        "lookup" => lookup(times),
        "hash-and-lookup" => hash_and_lookup(times),
        "event" => event(times),
        other => panic!("expected lookup, hash-and-lookup or event, found {other}"),
    }
}

fn lookup(times: usize) {
    let keys = prompt(1, BLOCKS);
    let (index, mut matches) = (shared(ENGINES, &keys), Matches::default());
    (0..times).for_each(|_| index.matches(black_box(&keys), &mut matches));
}

fn hash_and_lookup(times: usize) {
    let (tokens, keys) = (tokens(1, BLOCKS * 16), prompt(1, BLOCKS));
    let (index, mut matches, mut made) = (shared(ENGINES, &keys), Matches::default(), Vec::new());
    for _ in 0..times {
        made.clear();
        chain_keys(chain_seed("model", ""), black_box(&tokens), 16, usize::MAX, &mut made);
        index.matches(&made, &mut matches);
    }
}

/// Events of one engine that computes ever new prompts.
fn event(times: usize) {
    let index = PrefixIndex::new(limits());
    for n in 0..times {
        let keys: Vec<u64> = (0..CHUNK as u64).map(|i| hash(n as u64, i)).collect();
        index.store_blocks(place(0), &[], None, &keys, &keys);
    }
}
