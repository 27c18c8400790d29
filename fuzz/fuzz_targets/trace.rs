//! Fuzzes the readers of recorded traffic: the first byte chooses the format, the rest is read or refused, and what is read
//! can be summed up.
#![no_main]

use std::io::Cursor;

use epp_trace::bad::OnBad;
use epp_trace::format::Format;
use epp_trace::reader::Reader;
use epp_trace::summary::Summary;
use epp_trace::trace::Trace;
use libfuzzer_sys::fuzz_target;

/// Parameters of a few bytes may ask for endless traffic.
const MOST_RECORDS: usize = 1000;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let format = Format::ALL.get(usize::from(*first)).copied();
    let open = || Reader::new(Box::new(Cursor::new(rest.to_vec())), format);
    let Ok(reader) = open() else { return };
    let mut n_records = 0;
    for record in reader.take(MOST_RECORDS) {
        match record {
            Ok(record) => {
                let after = record.turn.map(|turn| turn.after).unwrap_or_default();
                assert!(after.iter().all(|earlier| (*earlier as usize) < n_records));
                n_records += 1;
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
    if n_records < MOST_RECORDS
        && let Ok(reader) = open()
        && let Ok(trace) = Trace::read(reader, OnBad::Skip)
    {
        let summary = Summary::of(&trace);
        assert!(summary.reuse.is_none_or(|reuse| reuse.reusable_tokens <= reuse.prompt_tokens));
    }
});
