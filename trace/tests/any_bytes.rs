//! Whatever bytes a reader gets, it gives records within bounds or says what is wrong, and comes to an end.

use std::io::Cursor;

use epp_trace::bad::OnBad;
use epp_trace::format::Format;
use epp_trace::reader::Reader;
use epp_trace::summary::Summary;
use epp_trace::trace::Trace;
use proptest::prelude::*;

/// Good records of a format, to be cut and mixed.
fn pieces(format: Format) -> &'static str {
    match format {
        Format::Mooncake => include_str!("../../tests/data/traces/mooncake.jsonl"),
        Format::Weka => include_str!("../../tests/data/traces/weka/trace_0282.json"),
        Format::Azure => include_str!("../../tests/data/traces/azure-code.csv"),
        Format::Bailian => include_str!("../../tests/data/traces/bailian.jsonl"),
        Format::BurstGpt => include_str!("../../tests/data/traces/burstgpt.csv"),
        Format::Generator => include_str!("../../tests/data/traces/generator.json"),
        Format::Rollout => include_str!("../../tests/data/traces/rollout.jsonl"),
        Format::RequestLog => include_str!("../../tests/data/traces/request-log.jsonl"),
        Format::Batch => include_str!("../../tests/data/traces/batch.jsonl"),
        Format::Decisions => include_str!("../../tests/data/traces/decisions.jsonl"),
        Format::Recording => include_str!("../../tests/data/traces/recording.jsonl"),
    }
}

/// Reads at most 1,000 records, and then the whole trace if that was all.
fn survives(format: Option<Format>, bytes: Vec<u8>) {
    let open = || Reader::new(Box::new(Cursor::new(bytes.clone())), format);
    let Ok(reader) = open() else { return };
    let mut n_records = 0;
    for record in reader.take(1000) {
        match record {
            Ok(record) => {
                let turn = record.turn.as_ref();
                assert!(turn.is_none_or(|turn| turn.after.iter().all(|earlier| *earlier < n_records)));
                assert!(record.prompt.view().tokens().is_none_or(|tokens| tokens <= 20_000_000));
                n_records += 1;
            }
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }
    if n_records < 1000
        && let Ok(trace) = Trace::read(open().expect("it opened before"), OnBad::Skip)
    {
        let summary = Summary::of(&trace);
        assert_eq!(summary.requests, n_records as usize);
        assert!(summary.reuse.is_none_or(|reuse| reuse.reusable_tokens <= reuse.prompt_tokens));
        for (i, request) in trace.requests.iter().enumerate() {
            let waits = request.turn.map(|turn| trace.after(&turn).to_vec()).unwrap_or_default();
            assert!(waits.iter().all(|earlier| (*earlier as usize) < i));
        }
    }
}

fn a_format() -> impl Strategy<Value = Format> {
    (0..Format::ALL.len()).prop_map(|i| Format::ALL[i])
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(format in a_format(), bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives(Some(format), bytes.clone());
        survives(None, bytes);
    }

    #[test]
    fn good_records_with_a_part_exchanged_are_read_or_refused(
        format in a_format(),
        at in any::<prop::sample::Index>(),
        len in 0..12_usize,
        with in prop_oneof![
            "[-0-9eE.,:{}\"\\[\\]]{0,8}",
            Just("-1".to_owned()),
            Just("1e308".to_owned()),
            Just("18446744073709551615".to_owned()),
            Just("null".to_owned()),
            Just("\n".to_owned()),
        ],
    ) {
        let mut bytes = pieces(format).as_bytes().to_vec();
        let at = at.index(bytes.len());
        let end = (at + len).min(bytes.len());
        bytes.splice(at..end, with.into_bytes());
        survives(Some(format), bytes);
    }
}
