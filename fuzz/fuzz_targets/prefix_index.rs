//! Drives the prefix index and its slow model with the same operations; they must agree.

#![no_main]

use epp_prefix_index::Limits;
use epp_prefix_index::model::{Op, run};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte says whether memory is scarce, so that eviction across owners is reached, too.
    let Some((&first, rest)) = bytes.split_first() else { return };
    let limits =
        Limits { bytes: if first < 128 { 1 << 30 } else { 1200 + usize::from(first) * 16 }, ..Limits::default() };
    let mut ops = Op::decode(rest);
    ops.truncate(64);
    run(&ops, limits);
});
