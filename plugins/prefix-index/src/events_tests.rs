//! Behaviour of the index towards what engines say.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::matches::Matches;
use crate::outcome::{Combined, RemovedBlocks, StoredBlocks};
use crate::said_ops::{Say, run_said};
use crate::{Limits, Owner, PrefixIndex};

fn say() -> impl Strategy<Value = Say> {
    let slot = || 0..8u8;
    let from = || prop_oneof![3 => Just(0u8), 1 => 0..200u8];
    let per = || prop_oneof![4 => Just(1u8), 1 => 0..4u8];
    let late = || prop_oneof![9 => Just(0u8), 1 => 1..3u8];
    let chunk = prop_oneof![1..4u8, 20..60u8, Just(255)];
    prop_oneof![
        10 => (slot(), 0..64u16, from(), any::<u8>(), chunk, per(), per())
            .prop_map(|(slot, prompt, from, blocks, chunk, per, of)| Say::Store { slot, prompt, from, blocks, chunk, per, of }),
        3 => (slot(), slot(), 0..64u16, from(), any::<u8>(), per())
            .prop_map(|(slot, like, prompt, from, blocks, per)| Say::Known { slot, like, prompt, from, blocks, per }),
        6 => (slot(), 0..64u16, from(), prop_oneof![1..4u8, any::<u8>()], per(), any::<bool>())
            .prop_map(|(slot, prompt, from, blocks, per, backwards)| Say::Remove { slot, prompt, from, blocks, per, backwards }),
        1 => (slot(), late()).prop_map(|(slot, age)| Say::Clear { slot, age }),
        1 => (slot(), late()).prop_map(|(slot, age)| Say::Forget { slot, age }),
        1 => slot().prop_map(|slot| Say::Replace { slot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn answers_as_the_slow_model_does(says in vec(say(), 1..24)) {
        run_said(&says, Limits::default());
    }

    #[test]
    fn lets_the_least_recent_holder_lose_a_block_as_the_slow_model_does(says in vec(say(), 1..24), most in 0..4usize) {
        run_said(&says, Limits { holders: Some(most), ..Limits::default() });
    }

    #[test]
    fn stays_whole_and_within_its_limit_when_memory_is_scarce(says in vec(say(), 1..24), bytes in 1000..30_000usize) {
        run_said(&says, Limits { bytes, ..Limits::default() });
    }
}

const A: Owner = Owner { slot: 0, serial: 1 };
const A_CPU: Owner = Owner { slot: 1, serial: 2 };
const B: Owner = Owner { slot: 70, serial: 3 };

fn stored(new_blocks: usize) -> StoredBlocks {
    StoredBlocks::Stored { new_blocks }
}

fn removed(forwarded: usize, suppressed: usize, blocks: usize) -> RemovedBlocks {
    RemovedBlocks { forwarded, suppressed, blocks }
}

fn leading(index: &PrefixIndex, place: Owner, keys: &[u64]) -> usize {
    let mut matches = Matches::default();
    index.matches(keys, &mut matches);
    assert!(matches.longest() >= matches.of(place));
    matches.of(place)
}

fn index() -> PrefixIndex {
    PrefixIndex::new(Limits::default())
}

#[test]
fn blocks_after_a_hole_count_again_once_it_is_filled() {
    let (index, keys) = (index(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(index.store_blocks(A, &[], None, &[11, 12, 13, 14, 15, 16], &keys), stored(6));
    assert_eq!(index.store_blocks(B, &[], None, &[11, 12, 13, 14, 15, 16], &keys), stored(6));
    assert_eq!(index.remove_blocks(A, &[13, 15]), removed(2, 0, 2));
    assert_eq!((leading(&index, A, &keys), leading(&index, B, &keys)), (2, 6));
    assert_eq!(index.store_blocks(A, &[], Some(12), &[13], &[3]), stored(1));
    assert_eq!((leading(&index, A, &keys), index.blocks_of(A)), (4, 5));
    assert_eq!(index.store_blocks(A, &[], Some(14), &[15], &[5]), stored(1));
    assert_eq!(leading(&index, A, &keys), 6);
    index.check();
}

#[test]
fn several_hashes_of_one_block_take_it_along_with_the_first_that_goes() {
    let (index, keys) = (index(), [1, 2]);
    index.store_blocks(A, &[], None, &[100, 101, 102, 103, 104, 105, 106, 107], &keys);
    assert_eq!((index.key_of(103, &[A]), index.key_of(104, &[A]), index.blocks_of(A)), (Some(1), Some(2), 2));
    assert_eq!(index.remove_blocks(A, &[100]), removed(1, 0, 1));
    assert_eq!((leading(&index, A, &keys), index.blocks_of(A), index.key_of(100, &[A])), (0, 1, None));
    assert_eq!(index.remove_blocks(A, &[101, 102, 103]), removed(3, 0, 0));
    assert_eq!(index.remove_blocks(A, &[104, 105, 106, 107]), removed(4, 0, 1));
    index.check();
}

#[test]
fn one_hash_of_several_blocks_stands_for_the_last_of_them() {
    let (index, keys) = (index(), [1, 2, 3, 4]);
    index.store_blocks(A, &[], None, &[200, 201], &keys);
    assert_eq!((index.key_of(200, &[]), index.key_of(201, &[])), (Some(2), Some(4)));
    assert_eq!(index.remove_blocks(A, &[200]), removed(1, 0, 2));
    assert_eq!((leading(&index, A, &keys), index.blocks_of(A)), (0, 2));
    index.check();
}

#[test]
fn stored_twice_needs_removing_twice_and_each_hash_is_counted_apart() {
    let (index, keys) = (index(), [1, 2]);
    index.store_blocks(A, &[], None, &[11, 12], &keys);
    index.store_blocks(A, &[], None, &[11], &keys[..1]);
    assert_eq!(index.remove_blocks(A, &[11, 12, 13]), removed(2, 1, 1));
    assert_eq!(leading(&index, A, &keys), 1);
    assert_eq!(index.remove_blocks(A, &[11]), removed(1, 0, 1));
    index.store_blocks(A, &[], None, &[11], &keys[..1]);
    index.store_blocks(A, &[], None, &[11], &keys[..1]);
    index.clear(A);
    index.store_blocks(A, &[], None, &[11], &keys[..1]);
    assert_eq!((index.remove_blocks(A, &[11]), index.blocks()), (removed(1, 0, 1), 0));
    index.check();
}

#[test]
fn a_child_of_an_unknown_parent_is_not_noted() {
    let index = index();
    assert_eq!(index.store_blocks(A, &[], Some(9), &[11], &[1]), StoredBlocks::UnknownParent);
    index.store_blocks(B, &[], None, &[9], &[1]);
    assert_eq!(index.store_blocks(A, &[], Some(9), &[11], &[2]), stored(1));
    assert_eq!((leading(&index, A, &[1, 2]), leading(&index, B, &[1, 2])), (0, 1));
    index.store_blocks(A, &[], None, &[9], &[1]);
    assert_eq!(leading(&index, A, &[1, 2]), 2);
    index.check();
}

#[test]
fn a_parent_is_looked_for_nearby_first() {
    let index = index();
    index.store_blocks(A, &[], None, &[9], &[1]);
    index.store_blocks(B, &[], None, &[9], &[2]);
    assert_eq!((index.key_of(9, &[B]), index.key_of(9, &[A, B]), index.key_of(9, &[])), (Some(2), Some(1), Some(1)));
    let next = Owner { slot: 5, serial: 9 };
    index.store_blocks(next, &[B], Some(9), &[10], &[3]);
    index.store_blocks(next, &[], None, &[9], &[2]);
    assert_eq!(leading(&index, next, &[2, 3]), 2);
    index.check();
}

#[test]
fn known_blocks_are_noted_at_another_place_and_leave_each_place_apart() {
    let (index, keys) = (index(), [1, 2, 3, 4]);
    assert_eq!(index.store_known(A_CPU, &[A], &[11, 12]), 0);
    index.store_blocks(A, &[], None, &[11, 12, 13, 14], &keys);
    assert_eq!(index.store_known(A_CPU, &[A], &[11, 12, 13, 14, 15]), 4);
    let weights = [(A, 1.0), (A_CPU, 0.5)];
    assert_eq!(index.combined(&keys, &weights), Combined { blocks: 4, weight: 4.0 });
    assert_eq!(index.remove_blocks(A, &[11, 12, 13, 14]), removed(4, 0, 4));
    assert_eq!(index.combined(&keys, &weights), Combined { blocks: 4, weight: 2.0 });
    assert_eq!(index.remove_blocks(A_CPU, &[11, 12, 13, 14]), removed(4, 0, 4));
    assert_eq!((index.combined(&keys, &weights), index.blocks()), (Combined::default(), 0));
    index.check();
}

#[test]
fn the_best_place_of_each_block_counts() {
    let (index, keys) = (index(), [1, 2, 3, 4, 5, 6]);
    index.store_blocks(B, &[], None, &[11, 12, 13, 14, 15, 16], &keys);
    index.store_known(A, &[B], &[11, 12, 13, 16]);
    index.store_known(A_CPU, &[B], &[13]);
    assert_eq!(index.combined(&keys, &[(A, 1.0), (A_CPU, 0.5)]), Combined { blocks: 3, weight: 3.0 });
    index.remove_blocks(A, &[13]);
    assert_eq!(index.combined(&keys, &[(A, 1.0), (A_CPU, 0.5)]), Combined { blocks: 3, weight: 2.5 });
    assert_eq!(index.combined(&keys, &[(A_CPU, 0.5)]), Combined::default());
    assert_eq!(index.combined(&[], &[(A, 1.0)]), Combined::default());
    index.check();
}

#[test]
fn the_least_recent_of_too_many_holders_loses_the_block() {
    let index = PrefixIndex::new(Limits { holders: Some(2), ..Limits::default() });
    let c = Owner { slot: 9, serial: 1 };
    let counts = || [A, B, c].map(|place| leading(&index, place, &[1, 2]));
    index.store_blocks(A, &[], None, &[11, 12], &[1, 2]);
    index.store_blocks(B, &[], None, &[11], &[1]);
    index.store_blocks(A, &[], None, &[11], &[1]);
    index.store_blocks(c, &[], None, &[11, 12], &[1, 2]);
    assert_eq!((counts(), index.blocks()), ([2, 0, 2], 4));
    index.store_blocks(B, &[], None, &[11], &[1]);
    assert_eq!(counts(), [0, 1, 2]);
    index.check();
}

#[test]
fn places_that_left_say_no_more_and_later_ones_start_empty() {
    let index = index();
    index.store_blocks(A, &[], None, &[11], &[1]);
    let next = Owner { slot: A.slot, serial: 8 };
    assert_eq!(index.store_blocks(next, &[], None, &[12], &[2]), stored(1));
    assert_eq!((leading(&index, A, &[1]), leading(&index, next, &[2]), index.blocks()), (0, 1, 1));
    assert_eq!(index.store_blocks(A, &[], None, &[11], &[1]), StoredBlocks::Refused);
    assert_eq!((index.store_known(A, &[], &[12]), index.remove_blocks(A, &[12])), (0, removed(1, 0, 0)));
    index.forget(next);
    assert_eq!(index.store_blocks(next, &[], None, &[12], &[2]), StoredBlocks::Refused);
    assert_eq!((index.blocks(), index.bytes()), (0, 0));
    assert_eq!(index.store_blocks(Owner { slot: 1 << 16, serial: 1 }, &[], None, &[1], &[1]), StoredBlocks::Refused);
    assert_eq!(index.store_blocks(Owner { slot: 1, serial: 0 }, &[], None, &[1], &[1]), StoredBlocks::Refused);
    assert_eq!(index.refused(), 5, "counted");
    index.check();
}

#[test]
fn a_hash_that_comes_to_stand_for_other_blocks_lets_the_old_ones_go() {
    let index = index();
    index.store_blocks(A, &[], None, &[11], &[1]);
    index.store_blocks(A, &[], None, &[11], &[2]);
    assert_eq!((leading(&index, A, &[1]), leading(&index, A, &[2]), index.key_of(11, &[])), (0, 1, Some(2)));
    assert_eq!(index.remove_blocks(A, &[11, 11]), removed(1, 1, 1));
    assert_eq!(index.blocks(), 0);
    index.check();
}

#[test]
fn nothing_comes_of_nothing() {
    let index = index();
    for (hashes, keys) in [(&[][..], &[1][..]), (&[1], &[]), (&[], &[])] {
        assert_eq!(index.store_blocks(A, &[], None, hashes, keys), stored(0));
    }
    assert_eq!((index.key_of(1, &[A]), index.blocks_of(A)), (None, 0));
    assert_eq!(index.remove_blocks(A, &[1]), removed(1, 0, 0));
    index.check();
}

#[test]
fn an_index_is_for_what_is_guessed_or_for_what_is_said() {
    let (guessed, said) = (index(), index());
    guessed.store(A, &[1, 2], 10);
    assert_eq!(guessed.store_blocks(B, &[], None, &[11], &[1]), StoredBlocks::Refused);
    assert_eq!((guessed.store_known(B, &[], &[11]), guessed.refused(), leading(&guessed, A, &[1, 2])), (0, 1, 2));
    said.store_blocks(A, &[], None, &[11], &[1]);
    said.store(B, &[1, 2], 10);
    assert_eq!((said.refused(), said.blocks(), leading(&said, A, &[1, 2])), (1, 1, 1));
}

#[test]
fn engines_that_go_through_one_prompt_side_by_side_make_one_run() {
    let (index, keys) = (index(), (1..=1280).collect::<Vec<u64>>());
    for (n, chunk) in keys.chunks(128).enumerate() {
        for slot in 0..100 {
            let name = |key: u64| key << 8 | u64::from(slot);
            let parent = (n > 0).then(|| name(chunk[0] - 1));
            let hashes: Vec<u64> = chunk.iter().map(|&key| name(key)).collect();
            assert_eq!(index.store_blocks(Owner { slot, serial: 1 }, &[], parent, &hashes, chunk), stored(128));
        }
    }
    let (bytes, holds) = (index.bytes(), 100 * 1280 * 14);
    assert!(bytes < holds + 1280 * 24, "{bytes} bytes, {holds} of them for what engines call the blocks");
    index.check();
}

#[test]
fn a_large_event_is_taken_in_whole_whatever_the_proportion() {
    for (n_hashes, n_keys) in [(1000, 1000), (3000, 750), (700, 2800), (1000, 3), (3, 1000), (1001, 640)] {
        let (index, keys) = (index(), (1..=n_keys).collect::<Vec<u64>>());
        let hashes: Vec<u64> = (0..n_hashes).collect();
        assert_eq!(index.store_blocks(A, &[], None, &hashes, &keys), stored(n_keys as usize), "{n_hashes}, {n_keys}");
        assert_eq!((leading(&index, A, &keys), index.key_of(n_hashes - 1, &[])), (n_keys as usize, Some(n_keys)));
        index.check();
        let removed = index.remove_blocks(A, &hashes);
        assert_eq!((removed.blocks, index.bytes()), (n_keys as usize, 0), "{n_hashes}, {n_keys}");
        index.check();
    }
}

#[test]
fn threads_that_say_clear_and_look_up_leave_it_whole() {
    let index = PrefixIndex::new(Limits { bytes: 200_000, ..Limits::default() });
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let index = &index;
            scope.spawn(move || {
                let (mut rng, mut matches) = (fastrand::Rng::with_seed(thread.into()), Matches::default());
                for _ in 0..1000 {
                    let place = Owner { slot: rng.u32(..6), serial: 1 + rng.u32(..2) };
                    let shared = rng.u64(..6);
                    let branch = rng.u64(..20) << 32;
                    let keys: Vec<u64> = (1..=300).map(|at| if at < shared { at } else { branch + at }).collect();
                    let from = rng.usize(..150);
                    let parent = from.checked_sub(1).map(|at| keys[at]);
                    match rng.u8(..20) {
                        0 => index.clear(place),
                        1 if place.serial == 1 => index.forget(place),
                        2..8 => _ = index.remove_blocks(place, &keys[from..]),
                        8..10 => _ = index.store_known(place, &[], &keys[from..]),
                        _ => _ = index.store_blocks(place, &[], parent, &keys[from..], &keys[from..]),
                    }
                    index.matches(&keys, &mut matches);
                    assert!(matches.longest() <= keys.len());
                }
            });
        }
    });
    index.check();
    assert!(index.bytes() <= 200_000);
}
