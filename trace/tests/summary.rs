//! What is said of whole traces: their order, their lengths, and what a cache could reuse.

use std::path::Path;
use std::time::Duration;

use epp_trace::bad::{Error, OnBad};
use epp_trace::format::Format;
use epp_trace::prompt::PromptRef;
use epp_trace::reader::Reader;
use epp_trace::summary::Summary;
use epp_trace::trace::Trace;

fn slice(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces").join(name);
    Trace::read(Reader::open(&path, None).unwrap(), OnBad::Stop).unwrap()
}

fn read(text: &str, on_bad: OnBad) -> Result<Trace, Error> {
    Trace::read(Reader::new(Box::new(std::io::Cursor::new(text.to_owned())), None)?, on_bad)
}

/// A request of Mooncake's format of so many whole blocks.
fn line(milliseconds: u32, ids: &[u32]) -> String {
    let tokens = ids.len() * 512;
    format!(
        "{{\"timestamp\": {milliseconds}, \"input_length\": {tokens}, \"output_length\": 7, \"hash_ids\": {ids:?}}}\n"
    )
}

#[test]
fn requests_are_in_the_order_of_their_arrival_and_begin_at_0() {
    let trace = read(&[line(5000, &[1]), line(2000, &[2]), line(9000, &[3])].concat(), OnBad::Stop).unwrap();
    let arrivals: Vec<u64> = trace.requests.iter().map(|request| request.arrival.as_secs()).collect();
    assert_eq!((arrivals.as_slice(), trace.n_out_of_order), (&[0, 3, 7][..], 1));
    assert_eq!(trace.prompt(&trace.requests[0]).blocks().collect::<Vec<_>>(), [(2, 512)]);
}

#[test]
fn prompts_are_the_same_without_their_trace() {
    let trace = read(&[line(5000, &[1, 2]), line(2000, &[2]), line(9000, &[3])].concat(), OnBad::Stop).unwrap();
    let tokens: Vec<_> = trace.requests.iter().map(|request| trace.prompt(request).tokens()).collect();
    let prompts = trace.into_prompts();
    assert_eq!((0..3).map(|place| prompts.at(place).tokens()).collect::<Vec<_>>(), tokens);
    assert_eq!(prompts.at(1).blocks().collect::<Vec<_>>(), [(1, 512), (2, 512)]);
    assert_eq!(prompts.at(3), PromptRef::Unknown);
}

#[test]
fn turns_wait_for_the_same_requests_after_sorting() {
    let trace = slice("weka");
    let (mut n_waits, mut n_joins) = (0, 0);
    for request in &trace.requests {
        let Some(turn) = request.turn else { panic!("every request of a session is a turn") };
        let waits = trace.after(&turn);
        n_waits += waits.len();
        n_joins += usize::from(waits.len() == 4);
        for earlier in waits {
            let earlier = &trace.requests[*earlier as usize];
            assert!(earlier.arrival + turn.gap <= request.arrival);
        }
    }
    // Three sub-agents begin, the parent waits for them and itself, and three requests have one before them.
    assert_eq!((n_waits, n_joins), (3 + 4 + 3, 1));
}

#[test]
fn bad_records_stop_or_are_counted() {
    let text = format!("{}{{}}\n{}[]\n", line(0, &[1]), line(1, &[1]));
    let stopped = read(&text, OnBad::Stop).unwrap_err();
    assert_eq!(stopped.to_string(), "line 2: timestamp: expected a number from 0 on, found nothing");
    let trace = read(&text, OnBad::Skip).unwrap();
    assert_eq!((trace.requests.len(), trace.skipped.n_records, trace.skipped.first.len()), (2, 2, 2));
    assert_eq!(trace.skipped.first[1].to_string(), "line 4: expected a JSON object, found []");
}

#[test]
fn a_trace_of_nothing_but_bad_records_says_so() {
    let text = "{\"timestamp\": 0, \"input_length\": -3}\n";
    assert_eq!(
        read(text, OnBad::Skip).unwrap_err().to_string(),
        "expected at least one request, found none; 1 bad, the first of them: line 1: input_length: expected 0 or more, \
         found -3"
    );
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    assert_eq!(read(azure, OnBad::Stop).unwrap_err().to_string(), "expected at least one request, found none");
}

#[test]
fn reuse_is_what_stands_at_the_beginning_of_an_earlier_prompt() {
    let text = [line(0, &[1, 2]), line(10, &[1, 2, 3]), line(20, &[3, 1]), line(400_000, &[1, 9])].concat();
    let reuse = Summary::of(&read(&text, OnBad::Stop).unwrap()).reuse.unwrap();
    assert_eq!((reuse.prompt_tokens, reuse.reusable_tokens), (9 * 512, 3 * 512));
    assert_eq!((reuse.unique_blocks, reuse.unique_tokens), (Some(6), 6 * 512));
    // Five minutes hold the first three, another five the last.
    assert_eq!((reuse.working_set.tokens_max, reuse.working_set.tokens_mean), (5 * 512, 7 * 512 / 2));
}

#[test]
fn lengths_and_arrivals_are_counted() {
    let text: String = (0..100).map(|i| line(i * 1000, &vec![1; (i as usize % 10) + 1])).collect();
    let summary = Summary::of(&read(&text, OnBad::Stop).unwrap());
    let prompts = summary.prompt_tokens.unwrap();
    assert_eq!((prompts.p50, prompts.p90, prompts.p99, prompts.max), (2560, 4608, 5120, 5120));
    assert_eq!(prompts.by_power_of_two.iter().sum::<u32>(), 100);
    assert_eq!((summary.duration_seconds, summary.burstiness), (99.0, Some(0.0)));
    assert_eq!(summary.arrivals.requests.iter().sum::<u32>(), 100);
    assert!(summary.arrivals.requests.iter().all(|n| (1..=2).contains(n)), "{:?}", summary.arrivals);
}

#[test]
fn sessions_and_models_are_counted() {
    let summary = Summary::of(&slice("weka"));
    let sessions = summary.sessions.unwrap();
    assert_eq!((sessions.sessions, sessions.turns.max, sessions.turns.total), (6, 3, 10));
    let models: Vec<(&str, u64)> = summary.models.iter().map(|m| (m.model.as_str(), m.requests)).collect();
    assert_eq!(
        models,
        [("claude-haiku-4-5-20251001", 4), ("claude-opus-4-5-20251101", 3), ("claude-sonnet-4-5-20250929", 3)]
    );
}

#[test]
fn sessions_share_tools_and_the_system_prompt_after_tools_of_one_length() {
    let session = |tools: u32, system: u32| {
        format!(
            "{{\"block_size\":64,\"tool_tokens\":{tools},\"system_tokens\":{system},\"requests\":\
             [{{\"t\":0,\"in\":640,\"out\":1,\"hash_ids\":[1,2,3,4,5,6,7,8,9,10]}}]}}"
        )
    };
    let folder = std::env::temp_dir().join(format!("epp-trace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, tools, system) in [("a", 256, 128), ("b", 256, 64), ("c", 384, 64)] {
        std::fs::write(folder.join(format!("{name}.json")), session(tools, system)).unwrap();
    }
    let trace = Trace::read(Reader::open(&folder, None).unwrap(), OnBad::Stop).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let ids: Vec<Vec<u64>> =
        trace.requests.iter().map(|request| trace.prompt(request).blocks().map(|(id, _)| id).collect()).collect();
    let common = |a: usize, b: usize| ids[a].iter().zip(&ids[b]).take_while(|(a, b)| a == b).count();
    assert_eq!((common(0, 1), common(0, 2), common(1, 2)), (5, 4, 4));
}

#[test]
fn what_the_trace_does_not_say_stays_unknown() {
    let summary = Summary::of(&slice("decisions.jsonl"));
    assert_eq!((summary.prompt_tokens, summary.output_tokens, summary.reuse), (None, None, None));
    assert_eq!(summary.format, Format::Decisions.name());
    assert_eq!(slice("decisions.jsonl").duration(), Duration::from_millis(1250));
}

#[test]
fn a_million_requests_fit() {
    // What the lists of a trace take for one more request of three runs of blocks.
    let bytes = std::mem::size_of::<epp_trace::trace::Request>() + 3 * std::mem::size_of::<epp_trace::prompt::Run>();
    assert!(bytes <= 250, "{bytes} bytes a request");
}
