//! Tests what engines tell of their caches, and requests whose prompts were computed elsewhere.

use std::collections::{HashMap, HashSet};

use super::tests::{model, request, run};
use super::*;

const START: Duration = Duration::ZERO;

/// What somebody who listens believes to be cached: by the name of a block, its tokens and those before it.
#[derive(Default)]
struct Listener(HashMap<u64, Vec<u32>>);

impl Listener {
    fn hear(&mut self, changes: Vec<CacheChange>, block_size: usize) {
        for change in changes {
            match change {
                CacheChange::Stored { blocks, parent, tokens, .. } => {
                    assert_eq!(tokens.len(), blocks.len() * block_size);
                    let mut so_far = parent.map_or_else(Vec::new, |parent| self.0[&parent].clone());
                    for (block, tokens) in blocks.iter().zip(tokens.chunks(block_size)) {
                        so_far.extend(tokens);
                        assert!(self.0.insert(*block, so_far.clone()).is_none(), "a block is stored once");
                    }
                }
                CacheChange::Removed { blocks } => {
                    blocks
                        .iter()
                        .for_each(|block| assert!(self.0.remove(block).is_some(), "what is removed was there"));
                }
                CacheChange::Cleared => self.0.clear(),
            }
        }
    }
}

#[test]
fn who_listens_knows_what_is_cached() {
    let mut model = model(|s| s.blocks = 12);
    model.tell_of_cache();
    let mut listener = Listener::default();
    for at in 0..20 {
        let prompt = (0..8).chain(at * 100..at * 100 + 6);
        model.arrive(model.now, &request(prompt, 5)).unwrap();
        run(&mut model);
        listener.hear(model.take_cache_changes(), 4);
        assert_eq!(listener.0.len(), model.load().cached_blocks);
        assert!(listener.0.values().any(|tokens| *tokens == [0, 1, 2, 3, 4, 5, 6, 7]));
    }
    let tokens: HashSet<&Vec<u32>> = listener.0.values().collect();
    assert_eq!(tokens.len(), listener.0.len(), "equal tokens have one name");
    assert!(model.reset_prefix_cache());
    listener.hear(model.take_cache_changes(), 4);
    assert!(listener.0.is_empty());
}

#[test]
fn nothing_is_told_before_the_step_is_over() {
    let mut model = model(|_| ());
    model.tell_of_cache();
    model.arrive(START, &request(0..8, 1)).unwrap();
    model.advance(START);
    assert_eq!(model.take_cache_changes(), []);
    run(&mut model);
    assert_eq!(model.take_cache_changes().len(), 1);
}

#[test]
fn who_does_not_ask_is_told_nothing() {
    let mut model = model(|_| ());
    model.arrive(START, &request(0..8, 1)).unwrap();
    run(&mut model);
    assert_eq!(model.take_cache_changes(), []);
}

#[test]
fn an_answer_takes_as_long_whoever_listens() {
    let ends = |listens: bool| {
        let mut model = Model::brief(super::tests::settings()).unwrap();
        if listens {
            model.tell_of_cache();
        }
        model.arrive(START, &request(0..9, 40)).unwrap();
        model.arrive(START, &request(20..26, 30)).unwrap();
        run(&mut model)
    };
    assert_eq!(ends(true), ends(false));
}

#[test]
fn a_prompt_that_was_computed_elsewhere_costs_its_last_token() {
    let mut model = model(|_| ());
    let id = model.arrive_computed(START, &request(0..20, 2)).unwrap();
    let events = run(&mut model);
    // One prompt token of 1 ms, then a step of 100 ms and 10 ms for the request.
    assert_eq!(super::tests::token_times(&events, id), [1, 111]);
    assert_eq!(model.load().used_blocks, 0);
    assert_eq!(model.load().cached_blocks, 5);
}

#[test]
fn blocks_that_come_with_a_request_need_room() {
    let mut model = model(|s| s.blocks = 8);
    model.arrive(START, &request(0..20, 8)).unwrap();
    model.arrive_computed(START, &request(100..120, 4)).unwrap();
    model.advance(START);
    assert_eq!((model.load().running, model.load().waiting), (1, 1));
    assert_eq!(super::tests::reports(&run(&mut model)).len(), 2);
}

#[test]
fn changed_costs_count_from_the_next_step_on() {
    let mut model = model(|_| ());
    let id = model.arrive(START, &request(0..10, 3)).unwrap();
    model.advance(START);
    let slow = super::tests::settings().sped_up(0.5).unwrap();
    model.change_costs(Duration::from_millis(5), &slow);
    assert_eq!(super::tests::token_times(&run(&mut model), id), [10, 230, 450]);
}
