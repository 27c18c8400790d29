//! Drives the prefix index and its slow models with the same operations, guessed or said by engines; they must agree.

#![no_main]

use epp_prefix_index::Limits;
use epp_prefix_index::model::{Op, run};
use epp_prefix_index::said_ops::{Say, run_said};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte says which use is tried and whether memory is scarce, so that eviction is reached, too.
    let Some((&first, rest)) = bytes.split_first() else { return };
    let (said, first) = (first & 1 == 1, first >> 1);
    let bytes = if first < 64 { Limits::default().bytes } else { 1200 + usize::from(first) * 64 };
    if said {
        let holders = if first & 3 == 3 { Some(usize::from(first >> 2 & 3)) } else { None };
        let mut says = Say::decode(rest);
        says.truncate(32);
        run_said(&says, Limits { bytes, holders, ..Limits::default() });
    } else {
        let mut ops = Op::decode(rest);
        ops.truncate(64);
        run(&ops, Limits { bytes, ..Limits::default() });
    }
});
