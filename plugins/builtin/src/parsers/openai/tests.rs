//! Tests of the OpenAI parser: what it accepts, refuses and reads, API by API.

use epp_plugin_api::{Headers, Parser, ResponseKind};
use proptest::prelude::*;

use super::super::testing::{events, parse, pieces, reads_alike_however_it_is_cut, refusal, reports, usage};
use super::{Api, OpenAi};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: &str = "/v1/conversations";
const EMBEDDINGS: &str = "/v1/embeddings";
const IMAGES: &str = "/v1/images/generations";
const ALL: [&str; 6] = [CHAT, COMPLETIONS, RESPONSES, CONVERSATIONS, EMBEDDINGS, IMAGES];

#[test]
fn the_end_of_the_path_chooses_the_api() {
    for (path, api) in [
        (CHAT, Api::Chat),
        ("/v1/chat/completions/render", Api::Chat),
        ("/v1/chat/completions/", Api::Chat),
        ("/any/chat/completions", Api::Chat),
        ("completions", Api::Completions),
        ("/v1/completions/render", Api::Completions),
        (RESPONSES, Api::Responses),
        (CONVERSATIONS, Api::Conversations),
        (EMBEDDINGS, Api::Embeddings),
        (IMAGES, Api::Images),
        ("/else", Api::Completions),
    ] {
        assert_eq!(Api::of(path), api, "{path}");
    }
}

#[test]
fn refuses_what_is_no_object() {
    for (body, why) in [
        (&b""[..], "expected a value at byte 0"),
        (b"nope", "expected a value at byte 0"),
        (b" []", "expected an object at byte 1"),
        (b"5", "expected an object at byte 0"),
        (b"{\"model\":\"m\",\"prompt\":\"x\"", "expected a comma or the end of the object at byte 25"),
        (b"{\"prompt\":5} x", "expected nothing after the value at byte 13"),
        (b"{\"prompt\":\"x\",}", "expected a key at byte 14"),
        (b"{\"prompt\":\"x\",\"a\":NaN}", "expected a value at byte 18"),
        (b"{'prompt':'x'}", "expected a key at byte 1"),
    ] {
        for path in ALL {
            let text = format!("error unmarshaling request bodyMap: {why}");
            assert_eq!(refusal(&OpenAi, path, body), text, "{path} {}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn tells_nothing_of_a_body_that_is_cut_off() {
    let body = format!("{{\"model\":\"m\",\"prompt\":\"{}", "SECRET".repeat(400_000));
    let text = refusal(&OpenAi, COMPLETIONS, body.as_bytes());
    assert!(text.len() < 100 && !text.contains("SECRET"), "{}", &text[..100.min(text.len())]);
}

#[test]
fn accepts_lenient_json() {
    for body in [
        &b"{\"prompt\":\"\\ud800\"}"[..],
        b"{\"prompt\":\"\xff\xfe\"}",
        b"{\"PROMPT\":\"x\"}",
        b"{\"prompt\":\"\",\"prompt\":\"x\"}",
        b" \r\n\t{\"prompt\":\"x\"}\n ",
        b"{\"prompt\":\"x\",\"a\":123456789012345678901234567890}",
        b"{\"pr\\u006fmpt\":\"x\"}",
        b"{\"prompt\":\"x\",\"prompt\":null}",
        b"{\"prompt\":\"x\",\"cache_salt\":null,\"max_tokens\":null,\"stream\":null}",
    ] {
        let parsed = OpenAi.parse(COMPLETIONS, &Headers::default(), body);
        assert_eq!(parsed.map(|parsed| parsed.pieces.len()), Ok(1), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn refuses_wrong_shapes() {
    let cases: [(&str, &[&str]); 6] = [
        (
            COMPLETIONS,
            &[
                "",
                r#""prompt":"""#,
                r#""prompt":[]"#,
                r#""prompt":null"#,
                r#""prompt":5"#,
                r#""prompt":{}"#,
                r#""prompt":true"#,
                r#""prompt":[1,"a"]"#,
                r#""prompt":["a",1]"#,
                r#""prompt":[-1]"#,
                r#""prompt":[4294967296]"#,
                r#""prompt":[1.5]"#,
                r#""prompt":[null]"#,
                r#""prompt":[{}]"#,
                r#""prompt":[[1],2]"#,
                r#""prompt":[[]]"#,
                r#""prompt":[[1],[[2]]]"#,
                r#""prompt":"x","cache_salt":5"#,
            ],
        ),
        (
            CHAT,
            &[
                "",
                r#""messages":[]"#,
                r#""messages":null"#,
                r#""messages":"x""#,
                r#""messages":{}"#,
                r#""messages":5"#,
                r#""messages":["x"]"#,
                r#""messages":[{"role":5,"content":"x"}]"#,
                r#""messages":[{"content":5}]"#,
                r#""messages":[{"content":{}}]"#,
                r#""messages":[{"content":["x"]}]"#,
                r#""messages":[{"content":[{"type":"image_url","image_url":"http://x"}]}]"#,
                r#""messages":[{"content":[{"type":5}]}]"#,
                r#""messages":[{"content":[{"type":"input_audio","input_audio":{"data":5}}]}]"#,
                r#""messages":[{"content":"x","tool_calls":"x"}]"#,
                r#""messages":[{}],"tools":"x""#,
                r#""messages":[{}],"documents":"x""#,
                r#""messages":[{}],"chat_template":5"#,
                r#""messages":[{}],"chat_template_kwargs":"x""#,
                r#""messages":[{}],"cache_salt":5"#,
                r#""messages":[{}],"add_generation_prompt":"yes""#,
                r#""messages":[{}],"continue_final_message":1"#,
                r#""messages":[{}],"return_assistant_tokens_mask":"x""#,
            ],
        ),
        (RESPONSES, &["", r#""input":null"#, r#""input":"x","cache_salt":5"#]),
        (
            CONVERSATIONS,
            &[
                "",
                r#""items":[]"#,
                r#""items":null"#,
                r#""items":"x""#,
                r#""items":{}"#,
                r#""items":["x"]"#,
                r#""items":[{"role":5}]"#,
                r#""items":[{}],"metadata":"x""#,
            ],
        ),
        (EMBEDDINGS, &["", r#""input":"""#, r#""input":[]"#, r#""input":null"#, r#""input":5"#, r#""input":[1,"a"]"#]),
        (IMAGES, &["", r#""prompt":"""#, r#""prompt":[]"#, r#""prompt":["x"]"#, r#""prompt":"x","n":"2""#]),
    ];
    for (path, bodies) in cases {
        for fields in bodies {
            let body = format!("{{{fields}}}");
            assert_eq!(refusal(&OpenAi, path, body.as_bytes()), Api::of(path).refusal(), "{path} {body}");
        }
    }
    assert_eq!(refusal(&OpenAi, CHAT, b"null"), Api::Chat.refusal());
}

#[test]
fn reads_the_prompt_of_completions_and_embeddings() {
    for (value, want) in [
        (r#""x""#, &["text x"][..]),
        (r#""a\nb""#, &[r"escaped a\nb"]),
        (r#"["x","y"]"#, &["text x", "next", "text y"]),
        (r#"[""]"#, &["text "]),
        ("[0, 4294967295, 1.0]", &["ids [0, 4294967295, 1]"]),
        ("[[1,2],[3]]", &["ids [1, 2]", "next", "ids [3]"]),
    ] {
        assert_eq!(pieces(&OpenAi, COMPLETIONS, &format!("{{\"prompt\":{value}}}")), want, "{value}");
        assert_eq!(pieces(&OpenAi, EMBEDDINGS, &format!("{{\"input\":{value}}}")), want, "{value}");
    }
    assert_eq!(pieces(&OpenAi, COMPLETIONS, r#"{"prompt":[1,2],"prompt":["x","y"],"prompt":[3]}"#), ["ids [3]"]);
}

#[test]
fn reads_the_prompt_of_a_chat() {
    for (fields, want) in [
        (r#""messages":[{"role":"user","content":"x"}]"#, &["text user", "text x"][..]),
        (r#""messages":[{"content":"x","role":"user"}]"#, &["text user", "text x"]),
        (r#""messages":[{}, null]"#, &[]),
        (
            r#""messages":[{"role":"system","content":"s"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]"#,
            &["text system", "text s", "text assistant"],
        ),
        (r#""messages":[{"role":"u","content":"x"}],"tools":[{"a":1}]"#, &["raw [{\"a\":1}]", "text u", "text x"]),
        (r#""messages":[{"role":"u","content":"x"}],"tools":[ ]"#, &["text u", "text x"]),
        (r#""messages":[{"role":"u","content":"x"}],"tools":null"#, &["text u", "text x"]),
        (r#""messages":[{"role":"u","content":"x"}],"messages":[{"role":"v"}]"#, &["text v"]),
        (r#""messages":[{"content":"x","role":"u","content":"y"}]"#, &["text u", "text y"]),
        (
            r#""messages":[{"role":"u","content":[{"text":"t","type":"text"},
                {"type":"image_url","image_url":{"url":"i","detail":"low"}},{"type":"video_url","video_url":{"url":"v"}},
                {"type":"input_audio","input_audio":{"data":"AA","format":"wav"}},{"type":"audio_url","audio_url":{"url":"s"}},
                {"type":"other","text":"no"},{"type":"text"},{"text":"no"}]}]"#,
            &["text u", "text t", "image i", "video v", "audio AA wav", "audio s "],
        ),
    ] {
        assert_eq!(pieces(&OpenAi, CHAT, &format!("{{{fields}}}")), want, "{fields}");
    }
}

#[test]
fn reads_responses_and_conversations_as_json() {
    for (path, body, want) in [
        (RESPONSES, r#"{"input":""}"#, &["literal [", "literal {\"input\":", "raw \"\"", "literal }]"][..]),
        (
            RESPONSES,
            r#"{"tools":"x","input":[{"type":"message"}],"instructions":[]}"#,
            &[
                "literal [",
                "literal {\"instructions\":",
                "raw []",
                "literal },",
                "literal {\"tools\":",
                "raw \"x\"",
                "literal },",
                "literal {\"input\":",
                "raw [{\"type\":\"message\"}]",
                "literal }]",
            ],
        ),
        (RESPONSES, r#"{"tools":null,"input":5}"#, &["literal [", "literal {\"input\":", "raw 5", "literal }]"]),
        (CONVERSATIONS, r#"{"items": [{"role":"u","content":["x"]}]}"#, &[r#"raw [{"role":"u","content":["x"]}]"#]),
        (IMAGES, r#"{"prompt":"x","n":2,"size":"1x1","num_inference_steps":4}"#, &[]),
    ] {
        assert_eq!(pieces(&OpenAi, path, body), want, "{body}");
    }
}

#[test]
fn reads_the_model_by_its_exact_key_and_the_last_one() {
    for (fields, model, at) in [
        (r#""model":"m""#, Some("m"), Some("\"m\"")),
        (r#""mod\u0065l":"m\n""#, Some("m\n"), Some("\"m\\n\"")),
        (r#""model":"a","model": "b" "#, Some("b"), Some("\"b\"")),
        (r#""model":"a","model":5"#, None, Some("5")),
        (r#""model":"""#, None, Some("\"\"")),
        (r#""model":["m"]"#, None, Some("[\"m\"]")),
        (r#""Model":"m""#, None, None),
        (r#""x":{"model":"m"}"#, None, None),
    ] {
        let body = format!(" {{\"prompt\":\"x\",{fields}}}");
        let parsed = parse(&OpenAi, COMPLETIONS, &body);
        assert_eq!(parsed.model.as_deref(), model, "{fields}");
        assert_eq!(parsed.model_at.map(|at| &body[at]), at, "{fields}");
        assert_eq!(parsed.insert_at, Some(2));
        assert!(parsed.model_aware && !parsed.skip_response);
    }
}

#[test]
fn reads_the_cap_of_each_api() {
    for (path, fields, cap) in [
        (CHAT, r#""max_completion_tokens":9,"max_tokens":5"#, Some(9)),
        (CHAT, r#""max_tokens":5,"max_completion_tokens":0"#, Some(0)),
        (CHAT, r#""max_tokens":64,"max_completion_tokens":"x""#, Some(64)),
        (CHAT, r#""max_completion_tokens":-1,"max_tokens":64"#, Some(64)),
        (CHAT, r#""max_completion_tokens":1.5,"max_tokens":64"#, Some(64)),
        (CHAT, r#""max_completion_tokens":null,"max_tokens":null"#, None),
        (CHAT, r#""Max_tokens":5"#, None),
        (COMPLETIONS, r#""max_tokens":3.0"#, Some(3)),
        (COMPLETIONS, r#""max_tokens":true"#, None),
        (COMPLETIONS, r#""max_tokens":[5]"#, None),
        (COMPLETIONS, r#""max_completion_tokens":5,"max_output_tokens":5"#, None),
        (RESPONSES, r#""max_output_tokens":7"#, Some(7)),
        (RESPONSES, r#""max_tokens":7"#, None),
        (EMBEDDINGS, r#""max_tokens":7"#, None),
    ] {
        let body = format!(r#"{{"prompt":"x","input":"x","messages":[{{}}],{fields}}}"#);
        assert_eq!(parse(&OpenAi, path, &body).max_output_tokens, cap, "{path} {fields}");
    }
}

#[test]
fn reads_stream_and_cache_salt() {
    for (fields, stream, salt) in [
        (r#""stream":true,"cache_salt":"a\tb""#, true, "a\tb"),
        (r#""stream":false,"Cache_Salt":"s""#, false, "s"),
        (r#""stream":"true","cache_salt":null"#, false, ""),
        (r#""Stream":true"#, false, ""),
    ] {
        for path in [CHAT, COMPLETIONS, RESPONSES, CONVERSATIONS, EMBEDDINGS] {
            let body = format!(r#"{{"prompt":"x","input":"x","messages":[{{}}],"items":[{{}}],{fields}}}"#);
            let parsed = parse(&OpenAi, path, &body);
            assert_eq!((parsed.stream, parsed.cache_salt.as_str()), (stream, salt), "{path} {fields}");
        }
    }
}

const FULL: &str = r#"{"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4}}}"#;
const NOTHING: [Option<u64>; 4] = [None; 4];

#[test]
fn reads_the_usage_of_a_document() {
    for (body, want) in [
        (FULL, [Some(7), Some(10), Some(4), Some(17)]),
        (r#"{"usage":{"prompt_tokens":7}}"#, [Some(7), None, None, None]),
        (
            r#"{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":0}}}"#,
            [Some(7), None, Some(0), None],
        ),
        (
            r#"{"usage":{"input_tokens":3,"output_tokens":5,"input_tokens_details":{"cached_tokens":2}}}"#,
            [Some(3), Some(5), Some(2), None],
        ),
        (
            r#"{"usage":{"input_tokens":30,"prompt_tokens":3,"completion_tokens":5,"output_tokens":50}}"#,
            [Some(3), Some(5), None, None],
        ),
        (r#"{"usage":{"prompt_tokens":"3","completion_tokens":"5"}}"#, [Some(3), Some(5), None, None]),
        (r#"{"usage":{"prompt_tokens":-5,"completion_tokens":1.5}}"#, NOTHING),
        (r#"{"usage":{"prompt_tokens":"x","completion_tokens":[]}}"#, NOTHING),
        (r#"{"usage":{"prompt_tokens_details":0,"input_tokens_details":[1]}}"#, NOTHING),
        (r#"{"usage":null}"#, NOTHING),
        (r#"{"usage":"oops"}"#, NOTHING),
        (r#"{"usage":[]}"#, NOTHING),
        (r#"{"x":{"usage":{"prompt_tokens":7}}}"#, NOTHING),
        (r#"[{"usage":{"prompt_tokens":7}}]"#, NOTHING),
        (r#"{"usage":{"prompt_tokens":7}"#, NOTHING),
        ("\u{1f}\u{8b}usage", NOTHING),
        ("", NOTHING),
    ] {
        let want: Vec<_> = [want].into_iter().filter(|want| *want != NOTHING).map(usage).collect();
        reads_alike_however_it_is_cut(&OpenAi, ResponseKind::Whole, body, &want);
    }
}

#[test]
fn gives_up_on_a_document_without_end() {
    let mut chunks = vec![b"{\"a\":\"".to_vec()];
    chunks.extend(std::iter::repeat_n(vec![b'x'; 1 << 20], 9));
    chunks.push(format!("\",{}", &FULL[1..]).into_bytes());
    assert_eq!(reports(&OpenAi, ResponseKind::Whole, &chunks), []);
    assert_eq!(reports(&OpenAi, ResponseKind::Whole, &[&chunks[..2], &chunks[10..]].concat()).len(), 1);
}

#[test]
fn reads_the_usage_of_events() {
    let full = usage([Some(7), Some(10), Some(4), Some(17)]);
    let text = r#"{"choices":[{"delta":{"content":"data: [DONE]\n\"usage\":{\"prompt_tokens\":1}"}}]}"#;
    let completed = r#"{"type":"response.completed","response":{"usage":{"input_tokens":3,"output_tokens":5}}}"#;
    let other = r#"{"type":"response.created","response":{"usage":{"input_tokens":3,"output_tokens":5}}}"#;
    let growing = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#;
    for (events, want) in [
        (events(&[r#"{"choices":[]}"#, FULL, "[DONE]"]), vec![full]),
        (events(&[r#"{"usage":null}"#, FULL]), vec![full]),
        (events(&["broken usage", FULL]), vec![full]),
        (events(&[growing, growing, FULL, "[DONE]"]), vec![full]),
        (events(&[text, FULL, text, "[DONE]", FULL]), vec![full]),
        (events(&[text, "[DONE]"]), vec![]),
        (events(&[FULL, "[DONE]"]).replace('\n', "\r\n"), vec![full]),
        (format!("event: x\n: usage\n{}", events(&[FULL])), vec![full]),
        (events(&[FULL]).trim_end().to_owned(), vec![full]),
        (events(&[completed]), vec![usage([Some(3), Some(5), None, None])]),
        (events(&[other]), vec![]),
        (format!("data:{FULL}\n\n"), vec![]),
        (FULL.to_owned(), vec![]),
        (format!(" data: {FULL}\n\n"), vec![]),
    ] {
        reads_alike_however_it_is_cut(&OpenAi, ResponseKind::Events, &events, &want);
    }
}

#[test]
fn reports_usage_with_the_last_event() {
    let mut response = OpenAi.response(CHAT, ResponseKind::Events);
    assert_eq!(response.feed(events(&[FULL]).as_bytes()), None);
    assert!(response.feed(b"data: [DONE]\n").is_some());
    assert_eq!(response.feed(events(&[FULL]).as_bytes()), None);
    assert_eq!(response.finish(), None);
}

#[test]
fn skips_a_line_without_end() {
    let long = format!("data: {{\"a\":\"{}", "x".repeat(2 << 20));
    let chunks = [long.as_bytes(), FULL.as_bytes(), b"\n", &events(&[FULL]).into_bytes()];
    assert_eq!(reports(&OpenAi, ResponseKind::Events, &chunks).len(), 1);
    assert_eq!(reports(&OpenAi, ResponseKind::Events, &chunks[..3]), []);
}

#[test]
fn keeps_a_bounded_number_of_pieces() {
    let many = 100_000;
    let message = r#"{"content":[{"type":"text","text":""}],"role":"","role":"u"}"#;
    for (path, key, element) in [
        (COMPLETIONS, "prompt", "\"\""),
        (COMPLETIONS, "prompt", "[1]"),
        (CHAT, "messages", r#"{"role":""}"#),
        (CHAT, "messages", message),
    ] {
        let body = format!("{{\"{key}\":[{element}{}]}}", format!(",{element}").repeat(many));
        assert_eq!(parse(&OpenAi, path, &body).pieces.len(), 1 << 16, "{element}");
    }
    let part = r#"{"type":"text","text":"x"}"#;
    let body =
        format!(r#"{{"messages":[{{"role":"u","content":[{part}{}],"role":"v"}}]}}"#, format!(",{part}").repeat(many));
    assert_eq!(pieces(&OpenAi, CHAT, &body)[..2], ["text v", "text x"]);
}

proptest! {
    #[test]
    fn never_panics(body: Vec<u8>, path in proptest::sample::select(&ALL[..]), cut: prop::sample::Index) {
        let _ = OpenAi.parse(path, &Headers::default(), &body);
        for kind in [ResponseKind::Whole, ResponseKind::Events] {
            let cut = cut.index(body.len() + 1);
            reports(&OpenAi, kind, &[&body[..cut], &body[cut..]]);
        }
    }

    #[test]
    fn refuses_whatever_follows_the_body(
        tail in "[\\[\\]{}:,\"a-c0-9 ]{0,20}",
        messages in proptest::collection::vec((any::<String>(), any::<String>()), 1..4),
    ) {
        let messages: Vec<_> = messages
            .iter()
            .map(|(role, text)| serde_json::json!({"role": role, "content": [{"type": "text", "text": text}]}))
            .collect();
        let body = format!("{}{tail}", serde_json::json!({"messages": messages}));
        if tail.trim().is_empty() {
            prop_assert_eq!(pieces(&OpenAi, CHAT, &body).len(), 2 * messages.len());
        } else {
            refusal(&OpenAi, CHAT, body.as_bytes());
        }
    }
}
