//! What must be so for every parser, whatever a client or an engine sends.

use epp_plugin_api::{Headers, Parser, Piece, ResponseKind, Usage, rewrite_model};
use proptest::prelude::*;
use proptest::sample::Index;

use super::anthropic::Anthropic;
use super::grpc::testing::{Put, frame, message};
use super::openai::OpenAi;
use super::passthrough::Passthrough;
use super::sglanghttp::SglangHttp;
use super::vertexai::VertexAi;
use super::vllmgrpc::VllmGrpc;
use super::vllmhttp::VllmHttp;

const VERTEX: &str = "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions";
const GENERATE: &str = "/vllm.grpc.engine.VllmEngine/Generate";
const EMBED: &str = "/vllm.grpc.engine.VllmEngine/Embed";

const APIS: [(&dyn Parser, &str); 13] = [
    (&OpenAi, "/v1/chat/completions"),
    (&OpenAi, "/v1/completions"),
    (&OpenAi, "/v1/responses"),
    (&OpenAi, "/v1/conversations"),
    (&OpenAi, "/v1/embeddings"),
    (&OpenAi, "/v1/images/generations"),
    (&Anthropic, "/v1/messages"),
    (&VllmHttp, "/inference/v1/generate"),
    (&SglangHttp, "/generate"),
    (&VllmGrpc, GENERATE),
    (&VllmGrpc, EMBED),
    (&VertexAi, VERTEX),
    (&Passthrough, "/any"),
];

const USAGE: &str =
    r#"{"usage":{"prompt_tokens":7,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}}"#;
const SGLANG: &str = r#"{"meta_info":{"prompt_tokens":3,"completion_tokens":5,"finish_reason":{"type":"stop"}}}"#;
const BODIES: [&str; 8] = [
    r#"{"model":"m","prompt":["x","\ud83d\ude00"],"max_tokens":7,"stream":true}"#,
    r#"{"model":"m","prompt":[1,22,333],"cache_salt":"s"}"#,
    r#"{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]}]}"#,
    r#"{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"name":"t","input_schema":{}}],"system":"s"}"#,
    r#"{"model":"m","items":[{"type":"message","role":"user","content":"x"}],"input":"x","instructions":"i"}"#,
    r#"{"token_ids":[1,2],"features":{"mm_hashes":{"i":["h"]},"mm_placeholders":{"i":[{"offset":0,"length":2}]}}}"#,
    r#"{"input_ids":[1,2],"extra_key":"k","sampling_params":{"max_new_tokens":5}}"#,
    r#"{"type":"message","usage":{"input_tokens":3,"output_tokens":5,"cache_read_input_tokens":2}}"#,
];

/// Bodies that some parser reads.
fn seeds() -> Vec<Vec<u8>> {
    let tokenized = message(&[(2, Put::Packed(&[1, 300])), (2, Put::Number(7))]);
    let sampling = message(&[(8, Put::Number(7))]);
    let place = message(&[(1, Put::Number(1)), (2, Put::Number(2))]);
    let features = message(&[(5, Put::Bytes(&place)), (6, Put::Bytes(b"h"))]);
    let generate =
        [(1, Put::Bytes(b"id")), (2, Put::Bytes(&tokenized)), (4, Put::Bytes(&sampling)), (7, Put::Bytes(&features))];
    let counts = message(&[(2, Put::Number(3)), (3, Put::Number(5)), (4, Put::Number(2))]);
    let wrapped = |data: &str| message(&[(1, Put::Bytes(b"text/event-stream")), (2, Put::Bytes(data.as_bytes()))]);
    let chat = message(&[(2, Put::Bytes(&wrapped(BODIES[3])))]);
    let mut seeds = vec![
        frame(&message(&generate)),
        frame(&message(&[(3, Put::Bytes(b"text")), (5, Put::Number(1))])),
        frame(&chat),
        [frame(&message(&[(1, Put::Bytes(&counts))])), frame(&message(&[(2, Put::Bytes(&counts))]))].concat(),
        frame(&message(&[(1, Put::Bytes(&[0; 8])), (2, Put::Number(9))])),
        [frame(&wrapped(&format!("data: {USAGE}\n"))), frame(&wrapped("\ndata: [DONE]\n\n"))].concat(),
        frame(&message(&[(2, Put::Bytes(USAGE.as_bytes()))])),
        events(&[USAGE, "[DONE]", USAGE]),
        events(&["[DONE]", USAGE]),
        events(&[r#"{"type":"response.completed","response":{"usage":{"input_tokens":3}}}"#, "[DONE]"]),
        events(&[
            r#"{"type":"message_start","message":{"usage":{"input_tokens":3}}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":5}}"#,
            r#"{"type":"message_stop"}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":6}}"#,
        ]),
        events(&[SGLANG, "[DONE]"]),
        SGLANG.into(),
        USAGE.into(),
    ];
    seeds.extend(BODIES.map(Vec::from));
    seeds
}

fn events(data: &[&str]) -> Vec<u8> {
    super::testing::events(data).into_bytes()
}

/// Any bytes, or a good body with some places changed.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<Index>(), 0..3usize, prop::collection::vec(any::<u8>(), 0..3)), 0..4);
    let edited = (prop::sample::select(seeds()), edits).prop_map(|(mut body, edits)| {
        for (at, removed, added) in edits {
            let at = at.index(body.len() + 1);
            let end = body.len().min(at + removed);
            body.splice(at..end, added);
        }
        body
    });
    let order = prop::collection::vec(prop::sample::select(seeds()), 2..4).prop_map(|parts| parts.concat());
    prop_oneof![1 => any::<Vec<u8>>(), 4 => edited, 1 => order]
}

fn lies_inside(piece: &Piece, body: usize, n_ids: usize) -> bool {
    match piece {
        Piece::NextPrompt | Piece::Literal(_) => true,
        Piece::Ids { at } => at.start <= at.end && at.end <= n_ids,
        Piece::Text { at, .. } | Piece::Raw { at } | Piece::Image { at, .. } | Piece::Video { at, .. } => {
            at.start <= at.end && at.end <= body
        }
        Piece::Audio { at, format, .. } => {
            at.start <= at.end && format.start <= format.end && at.end.max(format.end) <= body
        }
    }
}

/// The last report, which is the one that counts.
fn usage<'a>(
    parser: &dyn Parser,
    path: &str,
    kind: ResponseKind,
    chunks: impl Iterator<Item = &'a [u8]>,
) -> Option<Usage> {
    let mut response = parser.response(path, kind);
    let mut usage = None;
    for chunk in chunks {
        usage = response.feed(chunk).or(usage);
    }
    response.finish().or(usage)
}

#[test]
fn every_seed_is_read_by_somebody() {
    for seed in seeds() {
        let read = APIS.iter().any(|(parser, path)| {
            let asked = parser.parse(path, &Headers::default(), &seed).is_ok_and(|parsed| !parsed.pieces.is_empty());
            let kinds = [ResponseKind::Whole, ResponseKind::Events];
            asked || kinds.into_iter().any(|kind| usage(*parser, path, kind, [&seed[..]].into_iter()).is_some())
        });
        assert!(read, "{}", String::from_utf8_lossy(&seed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_body_is_read_or_refused(body in bodies()) {
        for (parser, path) in APIS {
            let Ok(parsed) = parser.parse(path, &Headers::default(), &body) else { continue };
            let n_ids = parsed.ids.len() / 4;
            let inside = parsed.pieces.iter().all(|piece| lies_inside(piece, body.len(), n_ids));
            prop_assert!(inside, "{}: {:?}", path, parsed.pieces);
            if parsed.model_aware {
                rewrite_model(&body, &parsed, "target");
            }
        }
    }

    #[test]
    fn usage_is_the_same_however_a_response_is_cut(
        body in bodies(),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        size in 1..16usize,
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        for (parser, path) in APIS {
            for kind in [ResponseKind::Whole, ResponseKind::Events] {
                let whole = usage(parser, path, kind, [&body[..]].into_iter());
                let cut = usage(parser, path, kind, cuts.windows(2).map(|at| &body[at[0]..at[1]]));
                prop_assert_eq!(whole, cut, "{} cut at {:?}", path, cuts);
                prop_assert_eq!(whole, usage(parser, path, kind, body.chunks(size)), "{} in chunks of {}", path, size);
            }
        }
    }
}
