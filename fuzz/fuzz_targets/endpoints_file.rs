//! Fuzzes the reading of an endpoints file: any bytes are read or refused, names are there once, mistakes have a reason.
#![no_main]

use std::collections::HashSet;

use epp::board::discovery::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(read) = file::parse(data, false) {
        let names: HashSet<_> = read.entries.iter().map(|entry| &entry.name).collect();
        assert_eq!(names.len(), read.entries.len());
        assert!(read.entries.iter().all(|entry| entry.port > 0));
        assert!(read.bad.iter().all(|bad| !bad.reason.is_empty()));
    }
});
