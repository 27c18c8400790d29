//! Behaviour of the index: against the slow model, and at its limits.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::matches::Matches;
use crate::model::{Op, run};
use crate::{Limits, Owner, PrefixIndex};

fn op() -> impl Strategy<Value = Op> {
    let prompt = || vec((any::<u8>(), any::<u8>()), 0..5);
    let capacity = prop_oneof![0..20u16, 20..120u16, Just(10_000)];
    let late = prop_oneof![9 => Just(0u8), 1 => 1..3u8];
    prop_oneof![
        20 => (any::<u8>(), late.clone(), prompt(), capacity)
            .prop_map(|(slot, age, prompt, capacity)| Op::Store { slot, age, prompt, capacity }),
        1 => (any::<u8>(), late.clone()).prop_map(|(slot, age)| Op::Clear { slot, age }),
        1 => (any::<u8>(), late).prop_map(|(slot, age)| Op::Forget { slot, age }),
        1 => any::<u8>().prop_map(|slot| Op::Replace { slot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_the_slow_model_does(ops in vec(op(), 1..60)) {
        run(&ops, Limits::default());
    }

    #[test]
    fn evicts_the_oldest_of_all_when_memory_is_full(ops in vec(op(), 1..60), bytes in 1000..6000usize) {
        run(&ops, Limits { bytes, ..Limits::default() });
    }

    #[test]
    fn never_panics_or_loses_count_on_keys_that_are_not_chained(
        stores in vec((0..4u32, vec(0..6u64, 1..12), 0..30usize), 1..60)
    ) {
        let (index, mut matches) = (PrefixIndex::new(Limits::default()), Matches::default());
        for (slot, keys, capacity) in stores {
            index.store(Owner { slot, serial: 1 }, &keys, capacity);
            index.check();
            index.matches(&keys, &mut matches);
            assert!(matches.longest() <= keys.len());
        }
    }
}

const A: Owner = Owner { slot: 0, serial: 1 };
const B: Owner = Owner { slot: 1, serial: 2 };

/// Keys of a prompt that shares its first `shared` blocks with all others.
fn prompt(id: u64, shared: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|at| if at < shared { at + 1 } else { (id << 32) + at + 1 }).collect()
}

fn counts(index: &PrefixIndex, keys: &[u64]) -> (usize, usize) {
    let mut matches = Matches::default();
    index.matches(keys, &mut matches);
    assert_eq!(matches.longest(), matches.of(A).max(matches.of(B)));
    (matches.of(A), matches.of(B))
}

#[test]
fn counts_leading_blocks_of_every_owner() {
    let index = PrefixIndex::new(Limits::default());
    index.store(A, &prompt(1, 4, 10), 100);
    index.store(B, &prompt(2, 4, 10), 100);
    for (keys, expected) in [
        (prompt(1, 4, 10), (10, 4)),
        (prompt(2, 4, 7), (4, 7)),
        (prompt(3, 4, 7), (4, 4)),
        (prompt(1, 4, 20), (10, 4)),
        (prompt(1, 0, 9), (0, 0)),
        (vec![], (0, 0)),
    ] {
        assert_eq!(counts(&index, &keys), expected, "{keys:?}");
    }
    assert_eq!((index.blocks(), index.blocks_of(A)), (20, 10));
}

#[test]
fn evicts_an_old_prompt_from_its_end() {
    let index = PrefixIndex::new(Limits::default());
    index.store(A, &prompt(1, 0, 10), 12);
    index.store(A, &prompt(2, 0, 5), 12);
    assert_eq!((counts(&index, &prompt(1, 0, 10)).0, counts(&index, &prompt(2, 0, 5)).0), (7, 5));
}

#[test]
fn keeps_a_prompt_beyond_the_capacity_whole() {
    let index = PrefixIndex::new(Limits::default());
    index.store(A, &prompt(1, 0, 3), 4);
    index.store(A, &prompt(2, 0, 10), 4);
    assert_eq!((counts(&index, &prompt(1, 0, 3)).0, counts(&index, &prompt(2, 0, 10)).0), (0, 10));
    assert_eq!(index.blocks(), 10);
}

#[test]
fn one_prompt_too_many_takes_the_oldest_from_its_owner_only() {
    let index = PrefixIndex::new(Limits::default());
    for id in 0..10 {
        index.store(A, &prompt(id, 0, 1), 10);
        index.store(B, &prompt(id, 0, 1), 10);
    }
    index.store(A, &prompt(10, 0, 1), 10);
    assert_eq!((counts(&index, &prompt(0, 0, 1)), counts(&index, &prompt(10, 0, 1))), ((0, 1), (1, 0)));
    index.forget(B);
    assert_eq!(counts(&index, &prompt(0, 0, 1)), (0, 0));
    assert!((1..=10).all(|id| counts(&index, &prompt(id, 0, 1)) == (1, 0)));
    assert_eq!((index.blocks(), index.blocks_of(A)), (10, 10));
}

#[test]
fn a_lookup_makes_nothing_more_recent() {
    let index = PrefixIndex::new(Limits::default());
    index.store(A, &prompt(1, 0, 5), 10);
    index.store(A, &prompt(2, 0, 5), 10);
    counts(&index, &prompt(1, 0, 5));
    index.store(A, &prompt(3, 0, 5), 10);
    assert_eq!((counts(&index, &prompt(1, 0, 5)).0, counts(&index, &prompt(2, 0, 5)).0), (0, 5));
}

#[test]
fn an_owner_that_left_stores_no_more() {
    let index = PrefixIndex::new(Limits::default());
    index.store(A, &prompt(1, 0, 5), 10);
    index.forget(A);
    index.store(A, &prompt(1, 0, 5), 10);
    assert_eq!((counts(&index, &prompt(1, 0, 5)), index.refused(), index.bytes()), ((0, 0), 1, 0));
}

#[test]
fn a_new_owner_of_a_slot_starts_empty() {
    let index = PrefixIndex::new(Limits::default());
    let next = Owner { slot: A.slot, serial: 3 };
    index.store(A, &prompt(1, 0, 5), 10);
    let mut matches = Matches::default();
    index.matches(&prompt(1, 0, 5), &mut matches);
    assert_eq!((matches.of(A), matches.of(next)), (5, 0));
    index.store(next, &prompt(2, 0, 5), 10);
    index.matches(&prompt(1, 0, 5), &mut matches);
    assert_eq!((matches.of(A), matches.of(next), index.blocks()), (0, 0, 5));
}

#[test]
fn refuses_what_is_beyond_the_limits() {
    let index = PrefixIndex::new(Limits { bytes: 4000, slots: 2, ..Limits::default() });
    for (owner, keys) in [
        (Owner { slot: 2, serial: 1 }, prompt(1, 0, 5)),
        (Owner { slot: u32::MAX, serial: 1 }, prompt(1, 0, 5)),
        (Owner { slot: 0, serial: 0 }, prompt(1, 0, 5)),
        (A, prompt(1, 0, 500)),
    ] {
        let before = index.refused();
        index.store(owner, &keys, 10);
        assert_eq!((index.refused(), index.blocks()), (before + 1, 0), "{owner:?}");
    }
}

#[test]
fn memory_stays_within_the_limit_and_goes_when_all_leave() {
    let limit = 400_000;
    let index = PrefixIndex::new(Limits { bytes: limit, ..Limits::default() });
    let mut rng = fastrand::Rng::with_seed(3);
    for id in 0..5000 {
        let slot = rng.u32(..100);
        index.store(Owner { slot, serial: 1 }, &prompt(id, rng.u64(..20), rng.u64(1..40)), 31_250);
        assert!(index.bytes() <= limit, "{} bytes", index.bytes());
    }
    assert!(index.blocks() > 1000);
    index.check();
    (0..100).for_each(|slot| index.forget(Owner { slot, serial: 1 }));
    assert_eq!((index.bytes(), index.blocks()), (0, 0));
    index.check();
}

#[test]
fn clears_more_runs_than_one_turn_takes() {
    let index = PrefixIndex::new(Limits::default());
    for id in 0..1000 {
        index.store(A, &prompt(id, 1, 3), 31_250);
        index.store(B, &prompt(id, 1, 3), 31_250);
    }
    index.clear(A);
    assert_eq!((index.blocks_of(A), index.blocks_of(B)), (0, 2001));
    index.check();
    index.store(A, &prompt(1, 1, 3), 31_250);
    assert_eq!(index.blocks_of(A), 3);
}

#[test]
fn threads_that_store_clear_and_look_up_leave_it_whole() {
    let index = PrefixIndex::new(Limits { bytes: 100_000, ..Limits::default() });
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let index = &index;
            scope.spawn(move || {
                let (mut rng, mut matches) = (fastrand::Rng::with_seed(thread.into()), Matches::default());
                for _ in 0..3000 {
                    let owner = Owner { slot: rng.u32(..6), serial: 1 + rng.u32(..2) };
                    let keys = prompt(rng.u64(..50), rng.u64(..6), rng.u64(1..30));
                    match rng.u8(..20) {
                        0 => index.clear(owner),
                        1 if owner.serial == 1 => index.forget(owner),
                        _ => index.store(owner, &keys, 200),
                    }
                    index.matches(&keys, &mut matches);
                    assert!(matches.longest() <= keys.len());
                }
            });
        }
    });
    index.check();
}
