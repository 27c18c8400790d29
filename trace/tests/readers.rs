//! Every reader, by its slice of recorded traffic and by records that are bad: text in, text out.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use epp_trace::bad::Error;
use epp_trace::format::Format;
use epp_trace::prompt::{OWN, PromptRef, Run};
use epp_trace::reader::Reader;
use epp_trace::record::{Record, Since};

fn slice(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces").join(name)
}

/// A record in a line.
fn told(record: &Record) -> String {
    let mut line = format!("{:.3}", record.arrival.as_secs_f64());
    match record.prompt.view() {
        PromptRef::Unknown => line.push_str(" unknown"),
        PromptRef::Blocks { runs, tokens, .. } => {
            write!(line, " {tokens} of").unwrap();
            runs.iter().for_each(|run| write!(line, " {}", told_run(run)).unwrap());
        }
        PromptRef::Rows(rows) => write!(line, " {} rows shared {}", rows.tokens, rows.shared.min(rows.tokens)).unwrap(),
        PromptRef::Ids(ids) => write!(line, " ids {ids:?}").unwrap(),
        PromptRef::Text { path, prompt, .. } => {
            write!(line, " {path} {}", String::from_utf8_lossy(prompt)).unwrap();
        }
    }
    match record.output_tokens {
        Some(output) => write!(line, " -> {output}").unwrap(),
        None => line.push_str(" -> unknown"),
    }
    if let Some(turn) = &record.turn {
        write!(line, ", session {} turn {}", turn.session, turn.number).unwrap();
        if !turn.after.is_empty() {
            let since = if turn.since == Since::End { "end" } else { "start" };
            write!(line, " {:.3} after {since} of {:?}", turn.gap.as_secs_f64(), turn.after).unwrap();
        }
    }
    if record.samples > 1 {
        write!(line, ", {} samples", record.samples).unwrap();
    }
    if let Some(group) = record.group {
        write!(line, ", group {group}").unwrap();
    }
    let who = &record.who;
    for (name, value) in [("model", &who.model), ("tenant", &who.tenant)] {
        if let Some(value) = value {
            write!(line, ", {name} {value}").unwrap();
        }
    }
    if let Some(priority) = who.priority {
        write!(line, ", priority {priority}").unwrap();
    }
    line
}

fn told_run(run: &Run) -> String {
    let (scope, first) = if run.first >= OWN {
        ("own".into(), run.first - OWN)
    } else {
        (if run.first >> 32 == 0 { String::new() } else { format!("{}:", run.first >> 32) }, run.first & 0xffff_ffff)
    };
    match run.len {
        _ if scope == "own" => format!("own*{}", run.len),
        1 => format!("{scope}{first}"),
        len => format!("{scope}{first}..{}", first + u64::from(len) - 1),
    }
}

fn all(reader: Reader) -> Vec<String> {
    reader
        .map(|record| match record {
            Ok(record) => told(&record),
            Err(why) => format!("! {why}"),
        })
        .collect()
}

fn of_file(name: &str) -> (Format, Vec<String>) {
    let reader = Reader::open(&slice(name), None).unwrap();
    (reader.format(), all(reader))
}

fn of_text(format: Format, text: &str) -> Vec<String> {
    all(Reader::new(Box::new(std::io::Cursor::new(text.to_owned())), Some(format)).unwrap())
}

#[track_caller]
fn begins(name: &str, format: Format, n_records: usize, want: &[&str]) {
    let (found_format, found) = of_file(name);
    assert_eq!((found_format, found.len()), (format, n_records), "{found:#?}");
    assert_eq!(found[..want.len()], *want, "{found:#?}");
}

#[test]
fn mooncake_has_blocks_of_512_of_which_the_last_may_be_partial() {
    begins(
        "mooncake.jsonl",
        Format::Mooncake,
        24,
        &["0.000 6758 of 0..13 -> 500", "0.000 7322 of 0 14..27 -> 490", "0.000 7236 of 0 28..41 -> 794"],
    );
}

#[test]
fn azure_has_lengths() {
    begins(
        "azure-code.csv",
        Format::Azure,
        16,
        &["1700158623.980 4808 rows shared 0 -> 10", "1700158624.032 3180 rows shared 0 -> 8"],
    );
    begins("azure-conv.csv", Format::Azure, 16, &["1700158546.681 374 rows shared 0 -> 44"]);
    let of_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n";
    assert_eq!(of_text(Format::Azure, of_2024), ["1715299200.010 2162 rows shared 0 -> 5"]);
}

#[test]
fn burstgpt_has_models_and_sessions_where_they_are_known() {
    begins(
        "burstgpt.csv",
        Format::BurstGpt,
        12,
        &[
            "5.000 472 rows shared 0 -> 18, model ChatGPT",
            "45.000 1087 rows shared 0 -> 230, model ChatGPT",
            "118.000 417 rows shared 0 -> 276, model GPT-4",
        ],
    );
    let with_sessions = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                         1,s,2.5,GPT-4,10,5,15,Conversation log\n\
                         2,,1,GPT-4,11,5,16,API log\n\
                         9,s,1,GPT-4,30,5,35,Conversation log\n";
    assert_eq!(
        of_text(Format::BurstGpt, with_sessions),
        [
            "1.000 10 rows shared 0 -> 5, session 0 turn 0, model GPT-4",
            "2.000 11 rows shared 0 -> 5, model GPT-4",
            "9.000 30 rows shared 0 -> 5, session 0 turn 1 5.500 after end of [0], model GPT-4",
        ]
    );
}

#[test]
fn bailian_chats_go_on_from_their_parents() {
    begins(
        "bailian.jsonl",
        Format::Bailian,
        4,
        &[
            "0.000 40 of 1..3 -> 20, session 0 turn 0",
            "0.500 52 of 1 4..6 -> 132, session 1 turn 0",
            "61.114 85 of 1..2 7..9 own*1 -> 7, session 0 turn 1 61.114 after start of [0]",
            "62.000 33 of 1 10 own*1 -> 7, session 2 turn 0",
        ],
    );
}

#[test]
fn weka_sessions_are_one_trace_with_common_ids_and_sub_agents() {
    begins(
        "weka",
        Format::Weka,
        10,
        &[
            // Scope 2 is tools, 3 and 5 are system prompts behind them, 6 and 7 those of sub-agents.
            "0.000 13135 of 2:0..167 3:168..202 1:204..205 own*1 -> 637, session 0 turn 0, model claude-sonnet-4-5-20250929",
            "27.000 13964 of 2:0..167 3:168..202 1:204..218 own*1 -> 275, session 0 turn 1 11.230 after end of [0], \
         model claude-sonnet-4-5-20250929",
            "2477.000 14993 of 2:0..167 3:168..202 1:204..234 own*1 -> 866, session 0 turn 2 2442.330 after end of [1], \
         model claude-sonnet-4-5-20250929",
            "0.000 16735 of 2:0..193 5:194..236 4:238..261 own*1 -> 746, session 1 turn 0, model claude-opus-4-5-20251101",
            "55.000 18371 of 2:0..193 5:194..236 4:238..287 own*1 -> 1017, session 1 turn 1 37.410 after end of [3], \
         model claude-opus-4-5-20251101",
            "78.257 9008 of 6:0..120 7:121..131 4:2746..2753 own*1 -> 196, session 2 turn 0 0.087 after end of [4], \
         model claude-haiku-4-5-20251001",
            "78.257 9072 of 6:0..120 7:121..131 4:2746..2751 4:3678..3680 own*1 -> 317, session 3 turn 0 \
         0.087 after end of [4], model claude-haiku-4-5-20251001",
            "78.257 9018 of 6:0..120 7:121..131 4:2746..2751 4:4633..4634 own*1 -> 409, session 4 turn 0 \
         0.087 after end of [4], model claude-haiku-4-5-20251001",
            "364.000 31830 of 2:0..193 5:194..236 4:238..497 own*1 -> 527, session 1 turn 2 \
         282.623 after end of [4, 5, 6, 7], model claude-opus-4-5-20251101",
            "0.000 11821 of 2:0..118 9:119..130 8:132..184 own*1 -> 290, session 5 turn 0, model claude-haiku-4-5-20251001",
        ],
    );
}

#[test]
fn rollouts_are_groups_of_conversations() {
    begins(
        "rollout.jsonl",
        Format::Rollout,
        4,
        &[
            "0.000 900 rows shared 900 -> 120, session 0 turn 0, group 0",
            "2.500 1100 rows shared 1100 -> 80, session 0 turn 1 2.500 after end of [0], group 0",
            "0.000 640 rows shared 640 -> 2000, session 1 turn 0, group 1",
            "0.000 900 rows shared 900 -> 120, session 2 turn 0, group 0",
        ],
    );
}

#[test]
fn a_conversation_has_the_ids_of_the_trace_player() {
    let mut ids = Vec::new();
    let first = Reader::open(&slice("rollout.jsonl"), None).unwrap().next().unwrap().unwrap();
    assert!(first.prompt.view().token_ids(&mut ids));
    assert_eq!((ids.len(), &ids[..4]), (900, &[1736, 17803, 25060, 1277][..]));
}

#[test]
fn a_request_log_has_trajectories_and_groups() {
    begins(
        "request-log.jsonl",
        Format::RequestLog,
        3,
        &[
            "1700000000.000 900 rows shared 900 -> 120, session 0 turn 0, group 0",
            "1700000000.000 900 rows shared 900 -> 200, session 1 turn 0, group 0",
            "1700000005.000 1100 rows shared 900 -> 80, session 0 turn 1 2.500 after end of [0], group 0",
        ],
    );
}

#[test]
fn batches_have_text_or_ids() {
    begins(
        "batch.jsonl",
        Format::Batch,
        2,
        &[
            "0.000 /v1/chat/completions [{\"role\": \"system\", \"content\": \"You are terse.\"}, {\"role\": \"user\", \
         \"content\": \"What is a prefix cache?\"}] -> 64, model m",
            "0.000 ids [11, 12, 13] -> unknown, 4 samples, model m, tenant anna",
        ],
    );
}

#[test]
fn decisions_have_moments_and_models() {
    begins(
        "decisions.jsonl",
        Format::Decisions,
        2,
        &["1735689600.000 unknown -> unknown, model m, priority 0", "1735689601.250 unknown -> unknown, priority -1"],
    );
    let list = "[{\"at\":\"2025-01-01T00:00:00Z\"},{\"at\":7}]";
    assert_eq!(
        of_text(Format::Decisions, list),
        ["1735689600.000 unknown -> unknown", "! line 1: [1].at: expected a text, found 7",]
    );
}

#[test]
fn recordings_have_moments_sessions_and_lengths() {
    begins(
        "recording.jsonl",
        Format::Recording,
        4,
        &[
            "1735689600.000 300 rows shared 0 -> unknown, session 0 turn 0, model m",
            "1735689600.500 unknown -> unknown, model m, tenant batch, priority -1",
            "1735689602.000 640 rows shared 0 -> unknown, session 0 turn 1 2.000 after start of [0], model m",
            "1735689603.000 20 rows shared 0 -> unknown",
        ],
    );
    let config = r#"{"config":1,"text":"","values":["TokenizedPrompt/token-producer"],"headers":["x-session-token","x-session-id"]}"#;
    let lines = [
        config,
        r#"{"cycle":2000000,"values":["many"]}"#,
        r#"{"cycle":2000000,"values":["5"],"headers":["t","s"]}"#,
        r#"{"cycle":-1}"#,
        r#"{"cycle":3000000,"values":5}"#,
        r#"{"wibble":5}"#,
        r#"{"cycle":4000000,"val"#,
    ];
    assert_eq!(
        of_text(Format::Recording, &lines.join("\n")),
        [
            "! line 2: values: expected a whole number from 0 on, found many",
            "2.000 5 rows shared 0 -> unknown, session 0 turn 0",
            "! line 4: cycle: expected 0 or more, found -1",
            "! line 5: values: expected a list of texts, found 5",
            "! line 6: expected a line with cycle, config, endpoints or observed, found none of them",
            "! line 7: expected a JSON object, found one that ends too early",
        ]
    );
}

#[test]
fn generated_traffic_is_the_same_again_and_in_order() {
    let records =
        || -> Vec<Record> { Reader::open(&slice("generator.json"), None).unwrap().collect::<Result<_, _>>().unwrap() };
    let found = records();
    assert_eq!(found, records());
    assert_eq!(found.len(), 500);
    assert!(found.is_sorted_by_key(|record| record.arrival));
    for (i, record) in found.iter().enumerate() {
        let turn = record.turn.as_ref().filter(|turn| turn.number > 0);
        let Some(turn) = turn else { continue };
        let earlier = &found[turn.after[0] as usize];
        let tokens = |record: &Record| record.prompt.view().tokens().unwrap();
        assert_eq!(earlier.turn.as_ref().unwrap().session, turn.session, "record {i}");
        assert!(tokens(record) > tokens(earlier) + earlier.output_tokens.unwrap(), "record {i}");
    }
}

#[test]
fn bad_records_name_their_line_and_field() {
    for (format, good, cases) in BAD {
        for (bad, want) in *cases {
            // The first line is a header, or a good record.
            let text = format!("{good}\r\n\n{bad}\n");
            let found = of_text(*format, &text);
            assert_eq!(found.last().unwrap(), &format!("! line 3: {want}"), "{format}");
        }
    }
}

const MOONCAKE_GOOD: &str = "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": [0]}";

/// A bad record and what is said of it.
type Case = (&'static str, &'static str);

const BAD: &[(Format, &str, &[Case])] = &[
    (
        Format::Mooncake,
        MOONCAKE_GOOD,
        &[
            (
                "{\"timestamp\": 0, \"input_length\": -3, \"output_length\": 5, \"hash_ids\": []}",
                "input_length: expected 0 or more, found -3",
            ),
            ("{\"timestamp\": -1, \"input_length\": 3}", "timestamp: expected 0 or more, found -1"),
            (
                "{\"timestamp\": 1, \"input_length\": 3}",
                "output_length: expected a whole number from 0 on, found nothing",
            ),
            (
                "{\"timestamp\": 1, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [1]}",
                "hash_ids: expected 2 blocks of 512 for input_length 1024, found 1",
            ),
            (
                "{\"timestamp\": 1, \"input_length\": 1e99, \"output_length\": 1, \"hash_ids\": [1]}",
                "input_length: expected at most 10000000, found 1e99",
            ),
            ("{\"timestamp\": 1, \"input_le", "expected a JSON object, found one that ends too early"),
            ("[7]", "expected a JSON object, found [7]"),
        ],
    ),
    (
        Format::Azure,
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        &[
            ("2023-11-16 18:17:03.97,-1,5", "ContextTokens: expected 0 or more, found -1"),
            ("2023-11-16 18:17:03.97,1", "GeneratedTokens: expected a whole number from 0 on, found nothing"),
            ("soon,1,2", "TIMESTAMP: expected a moment such as 2023-11-16 18:17:03.97, found soon"),
        ],
    ),
    (
        Format::Bailian,
        "{\"chat_id\":1,\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}",
        &[
            ("{\"chat_id\":\"x\"}", "chat_id: expected a whole number, found \"x\""),
            (
                "{\"chat_id\":1,\"timestamp\":0,\"input_length\":16,\"output_length\":1,\"hash_ids\":[1,2]}",
                "hash_ids: expected at most 1 blocks of 16 for input_length 16, found 2",
            ),
        ],
    ),
    (
        Format::BurstGpt,
        "Timestamp,Model,Request tokens,Response tokens",
        &[("1,GPT-4,many,5", "Request tokens: expected a whole number from 0 on, found many")],
    ),
    (
        Format::Rollout,
        "[{\"input_tokens\":1,\"output_tokens\":1}]",
        &[
            ("[]", "turns: expected at least one turn, found none"),
            ("{\"conv_id\":\"a\"}", "turns: expected a list of turns, found nothing"),
            ("{\"conv_id\":[],\"turns\":[]}", "conv_id: expected a text or a number, found []"),
            (
                "[{\"input_tokens\":1,\"output_tokens\":1},{\"input_tokens\":1,\"output_tokens\":1,\"pre_gap_s\":-2}]",
                "turns[1].pre_gap_s: expected 0 or more, found -2",
            ),
        ],
    ),
    (
        Format::RequestLog,
        "{\"ts\":5,\"request_id\":\"a\",\"prompt_hash\":\"b\",\"prompt_tokens\":1,\"output_tokens\":1,\"gen_s\":1}",
        &[
            ("{\"ts\":5,\"gen_s\":6}", "ts: expected at least gen_s and pick_s, 6, found 5"),
            (
                "{\"ts\":5,\"gen_s\":1,\"prompt_tokens\":1,\"output_tokens\":1}",
                "prompt_hash: expected a text, found nothing",
            ),
        ],
    ),
    (
        Format::Batch,
        "{\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}",
        &[
            ("{\"method\":\"GET\"}", "method: expected POST, found GET"),
            ("{\"url\":\"v1\"}", "url: expected a path that begins with /, found \"v1\""),
            ("{\"url\":\"/v1\",\"body\":{}}", "body.messages: expected messages, prompt or input, found none"),
            (
                "{\"url\":\"/v1\",\"body\":{\"prompt\":[1,\"a\"]}}",
                "body.prompt: expected a whole number from 0 on, found \"a\"",
            ),
        ],
    ),
    (
        Format::Decisions,
        "{\"at\":\"2025-01-01T00:00:00Z\"}",
        &[(
            "{\"at\":\"2025-01-01T00:00:00Z\",\"priority\":\"high\"}",
            "priority: expected a whole number, found \"high\"",
        )],
    ),
];

#[test]
fn a_bad_request_of_a_session_is_left_out_and_the_next_one_waits_for_the_one_before() {
    let session = "{\"block_size\":64,\"tool_tokens\":0,\"requests\":[\n\
                   {\"t\":0,\"in\":64,\"out\":1,\"hash_ids\":[1],\"api_time\":1},\n\
                   {\"t\":1,\"in\":-3,\"out\":1,\"hash_ids\":[1]},\n\
                   {\"t\":5,\"type\":\"subagent\",\"requests\":[{\"t\":0,\"in\":\"x\"}]},\n\
                   {\"t\":9,\"in\":64,\"out\":1,\"hash_ids\":[1],\"api_time\":1}]}";
    assert_eq!(
        of_text(Format::Weka, session),
        [
            "0.000 64 of 1:1 -> 1, session 0 turn 0",
            "! requests[1].in: expected 0 or more, found -3",
            "! requests[2].requests[0].in: expected a whole number from 0 on, found \"x\"",
            "9.000 64 of 1:1 -> 1, session 0 turn 1 8.000 after end of [0]",
        ]
    );
}

#[test]
fn sub_agents_are_not_inside_of_each_other_without_end() {
    let mut inner = "[]".to_owned();
    for _ in 0..200 {
        inner = format!("[{{\"t\":0,\"type\":\"subagent\",\"requests\":{inner}}}]");
    }
    let found = of_text(Format::Weka, &format!("{{\"block_size\":64,\"requests\":{inner}}}"));
    assert!(found[0].ends_with("expected at most 8 sub-agents in each other, found more"), "{found:?}");
}

#[test]
fn parameters_that_make_no_traffic_are_refused() {
    let client = |fields: &str| format!("{{\"requests\":1,\"clients\":[{{{fields}}}]}}");
    let lengths = "\"input\":{\"fixed\":1},\"output\":{\"fixed\":1}";
    for (text, want) in [
        ("{\"requests\":0,\"clients\":[]}".to_owned(), "! requests: expected 1 to 100000000, found 0"),
        ("{\"requests\":1,\"clients\":[]}".to_owned(), "! clients: expected 1 to 100000, found 0"),
        (
            client(&format!("\"rate\":0,{lengths}")),
            "! clients[0].rate: expected more than 0 and at most 1000000 a second, found 0",
        ),
        (client(&format!("\"rate\":1,\"cv\":-1,{lengths}")), "! clients[0].cv: expected 0 to 100, found -1"),
        (
            client("\"rate\":1,\"input\":{\"fixed\":-1},\"output\":{\"fixed\":1}"),
            "! clients[0].input: fixed: expected a number from 0 on, found -1",
        ),
    ] {
        assert_eq!(of_text(Format::Generator, &text), [want]);
    }
    let unknown = of_text(Format::Generator, &client(&format!("\"rate\":1,\"burst\":1,{lengths}")));
    assert!(unknown[0].contains("unknown field `burst`"), "{unknown:?}");
}

#[test]
fn a_line_that_is_too_long_costs_only_itself() {
    let mut text = format!("{MOONCAKE_GOOD}\n{{\"timestamp\": 1, \"hash_ids\": [");
    text.push_str(&"1,".repeat(34 << 20));
    text.push_str(&format!("]}}\n{MOONCAKE_GOOD}\n"));
    assert_eq!(
        of_text(Format::Mooncake, &text),
        ["0.000 5 of 0 -> 5", "! line 2: expected at most 64 MiB, found more", "0.000 5 of 0 -> 5",]
    );
}

#[test]
fn what_is_no_trace_is_refused_with_a_reason() {
    for (bytes, want) in [
        (&b""[..], "expected a trace, found an empty file"),
        (b"\x1f\x8b\x08\x00", "expected a trace, found a file packed by gzip: unpack it first"),
        (b"PAR1", "expected a trace, found a Parquet file: write its rows as JSON lines first"),
    ] {
        let refused = Reader::new(Box::new(bytes), None).unwrap_err();
        assert_eq!(refused.to_string(), want);
    }
    let refused = Reader::new(Box::new(&b"a,b\n1,2\n"[..]), None).unwrap_err();
    assert!(matches!(refused, Error::UnknownFormat));
    assert!(refused.to_string().contains("--format (mooncake, weka,"), "{refused}");
    let nowhere = Reader::open(Path::new("nowhere.jsonl"), None).unwrap_err();
    assert!(nowhere.to_string().starts_with("cannot read nowhere.jsonl: "), "{nowhere}");
}

#[test]
fn bytes_that_are_no_text_are_a_bad_record() {
    let mut text = MOONCAKE_GOOD.as_bytes().to_vec();
    text.extend_from_slice(b"\n{\"timestamp\": \xff}\n");
    let reader = Reader::new(Box::new(std::io::Cursor::new(text)), None).unwrap();
    assert_eq!(all(reader)[1], "! line 2: expected UTF-8, found other bytes after {\"timestamp\":");
}
