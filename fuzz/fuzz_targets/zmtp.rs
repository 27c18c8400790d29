//! Feeds any bytes to the reader of ZMTP: it must not fail, must hold no more than has come, and must read alike whole and
//! cut in two.
#![no_main]

use epp::board::kv::zmtp::wire::{Decoder, Item, LONGEST_MESSAGE, MOST_FRAMES, WireError, check_greeting, check_ready};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (usize, &[u8])| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(cut % (bytes.len() + 1));
    let whole = read(&[bytes]);
    assert_eq!(whole, read(&[first, second]));
    for item in &whole.0 {
        match item {
            Item::Message(message) => {
                assert!(message.len() <= bytes.len() && (1..=MOST_FRAMES).contains(&message.frames().len()));
                assert_eq!(message.frames().map(<[u8]>::len).sum::<usize>(), message.len());
            }
            Item::Command(command) => {
                assert!(command.name.len() + command.data.len() < bytes.len());
                let _ = check_ready(command, &["PUB", "XPUB"]);
            }
            Item::TooLarge { bytes, frames } => assert!(*bytes > LONGEST_MESSAGE || *frames > MOST_FRAMES as u64),
        }
    }
    // What is wrong with a greeting stays wrong.
    if check_greeting(first).is_err() {
        assert!(check_greeting(bytes).is_err());
    }
});

fn read(pieces: &[&[u8]]) -> (Vec<Item>, Option<WireError>) {
    let (mut decoder, mut items) = (Decoder::default(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        loop {
            match decoder.feed(&mut rest) {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Some(error)),
            }
        }
    }
    (items, None)
}
