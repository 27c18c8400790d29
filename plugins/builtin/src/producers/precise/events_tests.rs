//! Tests of the decoding of events.

use proptest::prelude::*;

use super::super::testing::{Pack, batch, frames};
use super::*;

fn decoded(dialect: Dialect, payload: &[u8]) -> Result<Batch, Undecodable> {
    let mut batch = Batch::default();
    batch.decode(dialect, payload).map(|()| batch)
}

fn vllm(events: Vec<Pack>) -> Result<Batch, Undecodable> {
    decoded(Dialect::Vllm, &batch(events))
}

fn sglang(events: Vec<Pack>) -> Result<Batch, Undecodable> {
    decoded(Dialect::Sglang, &batch(events))
}

fn ids(tokens: &[u8]) -> Vec<u32> {
    tokens.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect()
}

/// Hashes, parent, tokens, block size, tier, adapter, group, kind.
type Said<'a> = (Vec<u64>, Option<u64>, Vec<u32>, i64, &'a str, &'a str, Option<u32>, &'a str);

/// What the only event of a batch says.
fn stored(batch: &Batch) -> Said<'_> {
    let [Event::Stored(event)] = batch.events() else { panic!("{:?}", batch.events()) };
    (
        batch.stored_hashes(event).to_vec(),
        event.parent,
        ids(batch.tokens(event)),
        event.block_tokens,
        batch.stored_tier(event),
        batch.lora(event),
        event.group,
        batch.kind(event),
    )
}

fn removed(batch: &Batch) -> (Vec<u64>, &str, Option<u32>) {
    let [Event::Removed(event)] = batch.events() else { panic!("{:?}", batch.events()) };
    (batch.removed_hashes(event).to_vec(), batch.removed_tier(event), event.group)
}

fn extras(batch: &Batch) -> Vec<Vec<&str>> {
    let [Event::Stored(event)] = batch.events() else { panic!("{:?}", batch.events()) };
    batch.extras(event).map(|block| block.iter().map(|&at| batch.text(at)).collect()).collect()
}

/// A stored event as an array of so many fields.
fn array(n: usize) -> Pack {
    let mut fields = vec![
        Pack::from("BlockStored"),
        Pack::ints(&[100, 101]),
        Pack::from(99),
        Pack::ints(&[1, 2, 3]),
        Pack::from(16),
        Pack::Null,
        Pack::from("gpu"),
        Pack::from("adapter"),
        Pack::Null,
        Pack::from(2),
        Pack::from("full_attention"),
        Pack::Null,
        Pack::from("x"),
    ];
    fields.truncate(n);
    Pack::List(fields)
}

#[test]
fn a_stored_event_is_an_array() {
    let (hashes, tokens) = (vec![100, 101], vec![1, 2, 3]);
    let told = |tier, lora, group, kind| (hashes.clone(), Some(99), tokens.clone(), 16, tier, lora, group, kind);
    for (n, expected) in [
        (5, told("", "", None, "")),
        (7, told("gpu", "", None, "")),
        (9, told("gpu", "adapter", None, "")),
        (12, told("gpu", "adapter", Some(2), "full_attention")),
        (13, told("gpu", "adapter", Some(2), "full_attention")),
    ] {
        assert_eq!(stored(&vllm(vec![array(n)]).unwrap()), expected, "{n} fields");
    }
}

#[test]
fn a_stored_event_is_a_map_with_members_in_any_order() {
    let map = Pack::map(&[
        ("token_ids", Pack::ints(&[1, 70_000])),
        ("colour", Pack::List(vec![Pack::from("red")])),
        ("block_size", Pack::from(16)),
        ("medium", Pack::from("CPU")),
        ("parent_block_hash", Pack::Bytes(vec![0; 8])),
        ("block_hashes", Pack::List(vec![Pack::Bytes(vec![1; 32]), Pack::from(-1)])),
        ("type", Pack::from("BlockStored")),
        ("lora_id", Pack::from(1)),
    ]);
    let expected = (vec![0x0101_0101_0101_0101, u64::MAX], None, vec![1, 70_000], 16, "CPU", "", None, "");
    assert_eq!(stored(&vllm(vec![map]).unwrap()), expected);
    let bare = Pack::map(&[("type", Pack::from("BlockStored")), ("block_hashes", Pack::ints(&[7]))]);
    assert_eq!(stored(&vllm(vec![bare]).unwrap()), (vec![7], None, vec![], 0, "", "", None, ""));
}

#[test]
fn a_removed_event_is_an_array_or_a_map() {
    let map = [("type", Pack::from("BlockRemoved")), ("block_hashes", Pack::ints(&[100])), ("medium", "CPU".into())];
    assert_eq!(removed(&vllm(vec![Pack::map(&map)]).unwrap()), (vec![100], "CPU", None));
    let array = Pack::List(vec!["BlockRemoved".into(), Pack::ints(&[1, 2]), Pack::Null, 3.into(), "x".into()]);
    assert_eq!(removed(&vllm(vec![array]).unwrap()), (vec![1, 2], "", Some(3)));
}

#[test]
fn a_cleared_event_may_say_more() {
    for event in [
        Pack::List(vec!["AllBlocksCleared".into()]),
        Pack::List(vec!["AllBlocksCleared".into(), 5.into()]),
        Pack::map(&[("type", "AllBlocksCleared".into()), ("medium", "CPU".into())]),
    ] {
        assert_eq!(vllm(vec![event]).unwrap().events(), [Event::Cleared]);
    }
}

#[test]
fn extra_keys_are_texts_and_the_first_texts_of_arrays() {
    let pair = Pack::List(vec!["old".into(), 3.into()]);
    let other = Pack::List(vec![3.into(), "no".into()]);
    for (keys, expected) in [
        (
            vec![Pack::Null, Pack::List(vec!["a".into(), pair]), Pack::List(vec![])],
            vec![vec![], vec!["a", "old"], vec![]],
        ),
        (vec![Pack::List(vec![7.into(), "a".into(), Pack::Null, other])], vec![vec!["a"]]),
        (vec![Pack::Null, Pack::List(vec![7.into()])], vec![]),
        (vec![], vec![]),
    ] {
        let Pack::List(mut fields) = array(8) else { unreachable!() };
        fields.push(Pack::List(keys));
        assert_eq!(extras(&vllm(vec![Pack::List(fields)]).unwrap()), expected);
    }
}

#[test]
fn a_batch_has_two_fields_or_more() {
    let event = || Pack::List(vec![Pack::List(vec!["AllBlocksCleared".into()])]);
    for (fields, n) in [
        (vec![1.into(), event()], Some(1)),
        (vec![Pack::Float(1.5), event(), Pack::Null], Some(1)),
        (vec![Pack::Null, event(), 7.into(), "more".into()], Some(1)),
        (vec![Pack::Float(1.5), Pack::List(vec![])], Some(0)),
        (vec![Pack::Float(1.5)], None),
        (vec![], None),
        (vec![Pack::Float(1.5), "x".into()], None),
        (vec![Pack::Float(1.5), Pack::Null], None),
    ] {
        let batch = decoded(Dialect::Vllm, &Pack::List(fields.clone()).bytes());
        assert_eq!(batch.ok().map(|batch| batch.events().len()), n, "{fields:?}");
    }
}

#[test]
fn one_bad_event_costs_its_batch() {
    let with = |key: &str, value: Pack| {
        let mut members = vec![("type", Pack::from("BlockStored")), ("block_hashes", Pack::ints(&[1]))];
        members.push((key, value));
        Pack::map(&members)
    };
    for (event, why) in [
        (with("block_hashes", Pack::List(vec!["abc".into()])), "expected a block hash, found a text"),
        (with("block_hashes", Pack::List(vec![Pack::Bytes(vec![])])), "expected a block hash, found no bytes"),
        (with("token_ids", "text".into()), "expected a list of token ids, found a text"),
        (with("token_ids", Pack::ints(&[-1])), "expected a token id, found a number outside of 0 to 2^32 - 1"),
        (with("group_idx", (-1).into()), "expected the index of a group, found a number outside of 0 to 2^32 - 1"),
        (with("kv_cache_spec_kind", 123.into()), "expected a kind of cache, found an integer"),
        (with("kv_cache_spec_sliding_window", "bad".into()), "expected the size of a window, found a text"),
        (with("block_size", "16".into()), "expected a block size, found a text"),
        (with("type", 7.into()), "expected the name of an event, found an integer"),
        (with("type", "SomethingNew".into()), "found another kind of event"),
        (with("extra_keys", Pack::List(vec!["text".into()])), "expected the extra keys of a block, found a text"),
        (Pack::map(&[("block_hashes", Pack::ints(&[1]))]), "expected the member type, found none"),
        (Pack::map(&[("type", "BlockRemoved".into())]), "expected the member block_hashes, found none"),
        (Pack::List(vec!["SomethingNew".into()]), "found another kind of event"),
        (array(4), "expected BlockStored with at least 5 fields, found 4"),
        (Pack::List(vec!["BlockRemoved".into()]), "expected BlockRemoved with at least 2 fields, found 1"),
        (5.into(), "expected an event, found an integer"),
        (Pack::Null, "expected an event, found null"),
        (Pack::List(vec![]), "expected the member type, found none"),
    ] {
        let refused = vllm(vec![array(9), event.clone()]).unwrap_err().to_string();
        assert!(refused.contains(why), "{event:?}: {refused}");
    }
}

#[test]
fn sglang_sends_arrays_of_known_length() {
    for (n, good) in [(4, false), (5, true), (7, true), (9, true), (10, false)] {
        assert_eq!(sglang(vec![array(n)]).is_ok(), good, "{n} fields");
    }
    let removed = |n: usize| {
        let mut fields = vec![Pack::from("BlockRemoved"), Pack::ints(&[1]), "GPU".into(), Pack::Null];
        fields.truncate(n);
        sglang(vec![Pack::List(fields)])
    };
    assert_eq!([1, 2, 3, 4].map(|n| removed(n).is_ok()), [false, true, true, false]);
    assert!(sglang(vec![Pack::map(&[("type", "AllBlocksCleared".into())])]).is_err());
    assert!(sglang(vec![Pack::List(vec!["AllBlocksCleared".into()])]).is_ok());
}

#[test]
fn what_a_real_engine_sent_is_read() {
    let frames = frames();
    let batch = decoded(Dialect::Vllm, &frames[0].payload).unwrap();
    let (hashes, parent, tokens, block_tokens, tier, lora, group, kind) = stored(&batch);
    assert_eq!((hashes.len(), parent, tokens.len(), block_tokens), (2, None, 256, 128));
    assert_eq!((tier, lora, group, kind), ("GPU", "", Some(0), "full_attention"));
    assert_eq!(tokens[..3], [5, 12, 19]);
    assert_eq!(decoded(Dialect::Vllm, &frames[1].payload).unwrap().events(), [Event::Cleared]);
}

#[test]
fn a_batch_that_cannot_be_read_leaves_nothing_behind() {
    let mut batch = Batch::default();
    batch.decode(Dialect::Vllm, &super::super::testing::batch(vec![array(9)])).unwrap();
    assert!(batch.decode(Dialect::Vllm, b"\x93\xcb").is_err());
    assert!(batch.events().is_empty() && batch.hashes.is_empty() && batch.tokens.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for dialect in [Dialect::Vllm, Dialect::Sglang] {
            let mut batch = Batch::default();
            if batch.decode(dialect, &bytes).is_err() {
                prop_assert!(batch.events().is_empty());
            }
        }
    }

    /// Every length of a good message but the whole is refused, and a changed byte is read or refused.
    #[test]
    fn a_damaged_message_is_read_or_refused(at in 0usize..700, byte in any::<u8>()) {
        let mut payload = frames()[0].payload.clone();
        let at = at % payload.len();
        prop_assert!(decoded(Dialect::Vllm, &payload[..at]).is_err());
        payload[at] = byte;
        drop(decoded(Dialect::Vllm, &payload));
    }
}
