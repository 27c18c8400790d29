//! Tests of frames and of fields on the wire.

use proptest::prelude::*;

use super::testing::{Put, frame, message};
use super::wire::{Fields, Malformed, Value};
use super::{Frames, first_message};

fn fields(bytes: &[u8]) -> Result<Vec<(u32, Value)>, Malformed> {
    let mut found = Vec::new();
    Fields::new(bytes, 0..bytes.len()).each(|number, value| {
        found.push((number, value));
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn a_length_is_believed_only_as_far_as_bytes_are_there() {
    assert_eq!(first_message(b"\0\0\0\0\x02ab"), Ok(5..7));
    assert_eq!(first_message(b"\0\0\0\0\x02abc"), Ok(5..7));
    assert_eq!(first_message(b"\0\0\0\0\0"), Ok(5..5));
    for body in [&b"\0\0\0\0\x03ab"[..], b"\0\xff\xff\xff\xff0123456789", b"\0\xff\xff\xff\xfb0123456789"] {
        assert_eq!(first_message(body), Err("expected as many bytes as the frame announces"));
    }
}

#[test]
fn fields_of_every_type_are_told_apart() {
    let read = fields(b"\x08\x96\x01\x12\x02hi\x19\0\0\0\0\0\0\0\0\x25\0\0\0\0\x2b\x08\x01\x2b\x2c\x2c\x30\x05");
    let want = vec![
        (1, Value::Varint(150)),
        (2, Value::Bytes(5..7)),
        (3, Value::Other),
        (4, Value::Other),
        (5, Value::Other),
        (6, Value::Varint(5)),
    ];
    assert_eq!(read, Ok(want));
}

#[test]
fn refuses_what_is_malformed() {
    for (bytes, at, wanted) in [
        (&b"\x08"[..], 1, "a number"),
        (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 1, "a number"),
        (b"\x00\x01", 0, "the number of a field"),
        (b"\xff\xff\xff\xff\xff\x0f", 0, "the number of a field"),
        (b"\x0c", 1, "the type of a field"),
        (b"\x0e", 1, "the type of a field"),
        (b"\x12\x03ab", 2, "as many bytes as a field announces"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "as many bytes as a field announces"),
        (b"\x19\0\0\0\0\0\0\0", 1, "as many bytes as a field announces"),
        (b"\x0b", 1, "a number"),
        (b"\x0b\x14", 2, "the end of the group that is open"),
    ] {
        assert_eq!(fields(bytes), Err(Malformed { at, wanted }), "{bytes:?}");
    }
}

#[test]
fn groups_are_read_to_a_bounded_depth() {
    let nested = |n| [vec![0x0b; n], vec![0x0c; n]].concat();
    assert_eq!(fields(&nested(100)), Ok(vec![(1, Value::Other)]));
    assert!(fields(&nested(101)).is_err());
    assert!(fields(&vec![0x0b; 1 << 20]).is_err());
}

#[test]
fn a_message_outside_of_the_body_is_empty() {
    let read = |at| Fields::new(b"\x08\x01", at).each(|_, _| Err(Malformed { at: 0, wanted: "nothing" }));
    assert_eq!(read(7..9), Ok(()));
    assert_eq!(read(2..9), Ok(()));
}

fn messages(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut frames, mut found) = (Frames::default(), Vec::new());
    chunks.iter().for_each(|chunk| frames.feed(chunk, |message| found.push(message.to_vec())));
    found
}

proptest! {
    #[test]
    fn takes_any_bytes(bytes: Vec<u8>) {
        let mut ranges = vec![];
        for (_, value) in fields(&bytes).unwrap_or_default() {
            if let Value::Bytes(at) = value {
                ranges.push(at);
            }
        }
        prop_assert!(ranges.iter().all(|at| at.start <= at.end && at.end <= bytes.len()));
        prop_assert!(first_message(&bytes).is_ok_and(|at| at.end <= bytes.len()) || first_message(&bytes).is_err());
    }

    #[test]
    fn numbers_come_back_as_they_went_in(n: u64, number in 1..1u64 << 29) {
        prop_assert_eq!(fields(&message(&[(number, Put::Number(n))])), Ok(vec![(number as u32, Value::Varint(n))]));
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut(sent: Vec<Vec<u8>>, at in 1..9usize) {
        let whole: Vec<u8> = sent.iter().flat_map(|message| frame(message)).collect();
        prop_assert_eq!(&messages(&[&whole]), &sent);
        let chunks: Vec<&[u8]> = whole.chunks(at).collect();
        prop_assert_eq!(&messages(&chunks), &sent);
    }
}
