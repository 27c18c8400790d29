//! Fuzzes recordings of decisions: they are replayed or refused with a word.
#![no_main]

use std::io::Cursor;

use epp::recording::read::Reader;
use epp::replay::{Wish, replay};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // What is in force is always the same, so that the bytes go into the cycles.
    let head = "{\"config\":1,\"text\":\"plugins: [{type: queue-scorer}]\\n\"}\n\
                {\"endpoints\":[\"a:1\",\"b:1\"],\"names\":[\"default/a\",\"default/b\"]}\n";
    let text = [head.as_bytes(), data].concat();
    let wish = Wish { config: None, last: None, n_shown: 3 };
    match replay(Reader::new(Box::new(Cursor::new(text))), 0, &wish, epp::app::registry(), &mut |_| {}) {
        Ok(report) => assert!(report.differ <= report.judged && report.judged <= report.cycles),
        Err(why) => assert!(!format!("{why:#}").is_empty()),
    }
});
