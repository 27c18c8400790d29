//! Tests of vLLM's engine service over gRPC.

use epp_plugin_api::{Headers, Parsed, Parser, Piece, ResponseKind, Usage};
use proptest::prelude::*;

use super::super::grpc::testing::{Put, frame, message};
use super::super::testing::{refusal, usage};
use super::{EMBED, GENERATE, VllmGrpc};

fn parse(path: &str, body: &[u8]) -> Parsed {
    VllmGrpc.parse(path, &Headers::default(), body).unwrap_or_else(|why| panic!("{body:?}: {why}"))
}

fn ids(parsed: &Parsed) -> Vec<u32> {
    parsed.ids.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four bytes"))).collect()
}

fn reports(path: &str, chunks: &[&[u8]]) -> Vec<Usage> {
    let mut response = VllmGrpc.response(path, ResponseKind::Whole);
    let mut reports: Vec<Usage> = chunks.iter().filter_map(|chunk| response.feed(chunk)).collect();
    reports.extend(response.finish());
    reports
}

#[test]
fn reads_a_text_where_it_stands() {
    let body = frame(&message(&[(1, Put::Bytes(b"id")), (3, Put::Bytes("a\\né".as_bytes())), (5, Put::Number(1))]));
    let parsed = parse(GENERATE, &body);
    let [Piece::Raw { at }] = &parsed.pieces[..] else { panic!("{:?}", parsed.pieces) };
    assert_eq!((&body[at.clone()], parsed.stream), ("a\\né".as_bytes(), true));
    assert_eq!((parsed.model, parsed.model_aware, parsed.skip_response), (None, false, false));
}

#[test]
fn reads_token_ids_packed_and_single() {
    let tokenized = message(&[
        (1, Put::Bytes(b"text")),
        (2, Put::Packed(&[0, 300])),
        (2, Put::Number(7)),
        (2, Put::Number(u64::from(u32::MAX))),
    ]);
    for path in [GENERATE, EMBED] {
        let parsed = parse(path, &frame(&message(&[(2, Put::Bytes(&tokenized))])));
        assert_eq!(ids(&parsed), [0, 300, 7, u32::MAX]);
        assert_eq!(parsed.pieces, [Piece::Ids { at: 0..4 }]);
    }
}

#[test]
fn of_two_inputs_the_last_one_counts() {
    let first = message(&[(2, Put::Packed(&[1, 2]))]);
    let second = message(&[(2, Put::Packed(&[3]))]);
    let merged = parse(GENERATE, &frame(&message(&[(2, Put::Bytes(&first)), (2, Put::Bytes(&second))])));
    assert_eq!(ids(&merged), [1, 2, 3]);
    let replaced = [(2, Put::Bytes(&first[..])), (3, Put::Bytes(b"x")), (2, Put::Bytes(&second))];
    assert_eq!(ids(&parse(GENERATE, &frame(&message(&replaced)))), [3]);
    let text = parse(GENERATE, &frame(&message(&[(2, Put::Bytes(&first)), (3, Put::Bytes(b"x"))])));
    assert!(text.ids.is_empty() && matches!(text.pieces[..], [Piece::Raw { .. }]));
}

#[test]
fn reads_the_cap_on_the_answer() {
    for (sampling, cap) in [
        (message(&[(8, Put::Number(7))]), Some(7)),
        (message(&[(8, Put::Number(0))]), Some(0)),
        (message(&[(3, Put::Number(5))]), None),
    ] {
        let body = frame(&message(&[(3, Put::Bytes(b"x")), (4, Put::Bytes(&sampling))]));
        assert_eq!(parse(GENERATE, &body).max_output_tokens, cap);
    }
}

#[test]
fn pairs_features_by_index_and_sorts_them_by_place() {
    let place = |offset, n| message(&[(1, Put::Number(offset)), (2, Put::Number(n))]);
    let (late, early) = (place(9, 2), place(1, 3));
    let features = message(&[(5, Put::Bytes(&late)), (5, Put::Bytes(&early)), (6, Put::Bytes(b"h"))]);
    let tokenized = message(&[(2, Put::Packed(&[1]))]);
    let body = frame(&message(&[(7, Put::Bytes(&features)), (2, Put::Bytes(&tokenized))]));
    assert_eq!(parse(GENERATE, &body).features, [(String::new(), 1, 3), ("h".to_owned(), 9, 2)]);
}

#[test]
fn refuses_what_is_no_frame() {
    let whole = frame(&message(&[(3, Put::Bytes(b"xxxx"))]));
    let mut compressed = whole.clone();
    compressed[0] = 1;
    for body in [&b""[..], b"\0\0\0\0", &compressed, &whole[..whole.len() - 1], b"\0\xff\xff\xff\xff0123456789"] {
        for path in [GENERATE, EMBED, "/other"] {
            assert_eq!(refusal(&VllmGrpc, path, body), "invalid or unsupported gRPC payload", "{body:?}");
        }
    }
}

#[test]
fn refuses_what_is_no_request() {
    for (path, message, text) in [
        (GENERATE, message(&[(1, Put::Bytes(b"id"))]), "not supported request inputType"),
        (EMBED, message(&[(1, Put::Bytes(b"id"))]), "missing tokenized input in EmbedRequest"),
        (GENERATE, b"\xff\xff".to_vec(), "unmarshaling GenerateRequest: expected a number at byte 5"),
        (EMBED, b"\xff\xff".to_vec(), "unmarshaling EmbedRequest: expected a number at byte 5"),
        (
            GENERATE,
            b"\x1a\xff\xff\xff\xff\x0fx".to_vec(),
            "unmarshaling GenerateRequest: expected as many bytes as a field announces at byte 11",
        ),
        (GENERATE, message(&[(3, Put::Bytes(b"a\xff"))]), "unmarshaling GenerateRequest: expected UTF-8 at byte 8"),
    ] {
        assert_eq!(refusal(&VllmGrpc, path, &frame(&message)), text);
    }
}

#[test]
fn other_methods_are_passed_on_unread() {
    let parsed = parse("/vllm.grpc.engine.VllmEngine/Abort", &frame(b"\xff\xff"));
    assert_eq!(parsed, Parsed { skip_response: true, ..Parsed::default() });
}

fn check_usage(path: &str, response: &[u8], want: &[Usage]) {
    assert_eq!(reports(path, &[response]), want, "{response:?}");
    for cut in 0..response.len() {
        assert_eq!(reports(path, &[&response[..cut], &response[cut..]]), want, "cut at {cut}: {response:?}");
    }
    let single: Vec<&[u8]> = response.chunks(1).collect();
    assert_eq!(reports(path, &single), want, "byte by byte: {response:?}");
}

#[test]
fn reads_the_usage_of_the_last_message_that_reports() {
    let counts = |of, first: u64, counts: [u64; 3]| {
        let inner = message(&[
            (1, Put::Packed(&[1, 2])),
            (first, Put::Number(counts[0])),
            (first + 1, Put::Number(counts[1])),
            (first + 2, Put::Number(counts[2])),
        ]);
        frame(&message(&[(of, Put::Bytes(&inner))]))
    };
    let want = [usage([Some(3), Some(5), Some(2), Some(8)])];
    let (chunk, complete) = (|n| counts(1, 2, [3, n, 2]), counts(2, 3, [3, 5, 2]));
    check_usage(GENERATE, &complete, &want);
    check_usage(GENERATE, &[chunk(1), chunk(4), chunk(5)].concat(), &want);
    check_usage(GENERATE, &[chunk(5), counts(1, 2, [0, 0, 0])].concat(), &want);
    check_usage(GENERATE, &[chunk(1), complete, frame(b"\xff")].concat(), &want);
    check_usage(GENERATE, b"broken", &[]);
    check_usage(GENERATE, &counts(1, 2, [0, 0, 4]), &[]);
    check_usage("/other", &chunk(5), &[]);
}

#[test]
fn an_embedding_costs_only_its_prompt() {
    let embedded = frame(&message(&[(1, Put::Bytes(&[0; 16])), (2, Put::Number(9)), (3, Put::Number(4))]));
    check_usage(EMBED, &embedded, &[usage([Some(9), None, None, Some(9)])]);
}

#[test]
fn a_message_that_is_compressed_or_too_long_is_passed_over() {
    let inner = message(&[(3, Put::Number(3)), (4, Put::Number(5))]);
    let good = frame(&message(&[(2, Put::Bytes(&inner))]));
    let want = [usage([Some(3), Some(5), Some(0), Some(8)])];
    check_usage(GENERATE, &[b"\x01\0\0\0\x03abc", &good[..]].concat(), &want);
    let long = vec![0; 9 << 20];
    assert_eq!(reports(GENERATE, &[&frame(&long), &good]), want);
}

proptest! {
    #[test]
    fn ids_come_back_as_they_went_in(given: Vec<u32>) {
        let tokenized = message(&[(2, Put::Packed(&given))]);
        let parsed = parse(EMBED, &frame(&message(&[(2, Put::Bytes(&tokenized))])));
        prop_assert_eq!(ids(&parsed), given);
    }
}
