//! Feeds any bytes to the parsers of gRPC, as a body and as the message of a good frame, and as a response that must be
//! read alike whole and cut in two.

#![no_main]

use epp_plugin_api::{Headers, Parser, Piece, ResponseKind, Usage};
use epp_plugins::parsers::{vertexai::VertexAi, vllmgrpc::VllmGrpc};
use libfuzzer_sys::fuzz_target;

const APIS: [(&dyn Parser, &str); 4] = [
    (&VllmGrpc, "/vllm.grpc.engine.VllmEngine/Generate"),
    (&VllmGrpc, "/vllm.grpc.engine.VllmEngine/Embed"),
    (&VertexAi, "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions"),
    (&VertexAi, "/google.cloud.aiplatform.v1beta1.PredictionService/RawPredict"),
];

fuzz_target!(|input: (u8, usize, &[u8])| {
    let (api, cut, bytes) = input;
    let (parser, path) = APIS[usize::from(api) % APIS.len()];
    let length = u32::try_from(bytes.len()).expect("inputs are short").to_be_bytes();
    let framed = [&[0], &length[..], bytes].concat();
    for body in [bytes, &framed] {
        if let Ok(parsed) = parser.parse(path, &Headers::default(), body) {
            assert!(!parsed.model_aware);
            for piece in &parsed.pieces {
                check(piece, body.len(), parsed.ids.len() / 4);
            }
        }
        let (first, second) = body.split_at(cut % (body.len() + 1));
        assert_eq!(usage(parser, path, &[body]), usage(parser, path, &[first, second]));
    }
});

/// Checks that a piece lies inside of the body.
fn check(piece: &Piece, body: usize, n_ids: usize) {
    match piece {
        Piece::NextPrompt | Piece::Literal(_) => {}
        Piece::Ids { at } => assert!(at.start <= at.end && at.end <= n_ids),
        Piece::Text { at, .. } | Piece::Raw { at } | Piece::Image { at, .. } | Piece::Video { at, .. } => {
            assert!(at.start <= at.end && at.end <= body);
        }
        Piece::Audio { at, format, .. } => assert!(at.end <= body && format.end <= body),
    }
}

fn usage(parser: &dyn Parser, path: &str, chunks: &[&[u8]]) -> Option<Usage> {
    let mut response = parser.response(path, ResponseKind::Whole);
    let mut usage = None;
    for chunk in chunks {
        usage = response.feed(chunk).or(usage);
    }
    response.finish().or(usage)
}
