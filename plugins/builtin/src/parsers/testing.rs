//! What the tests of the parsers share.

use epp_plugin_api::{Headers, Parsed, Parser, Piece, ResponseKind, Usage};

/// Parses a body that is good.
pub fn parse(parser: &dyn Parser, path: &str, body: &str) -> Parsed {
    parser.parse(path, &Headers::default(), body.as_bytes()).unwrap_or_else(|why| panic!("{body}: {why}"))
}

/// The text with which a body is refused.
pub fn refusal(parser: &dyn Parser, path: &str, body: &[u8]) -> String {
    match parser.parse(path, &Headers::default(), body) {
        Ok(_) => panic!("{} is accepted", String::from_utf8_lossy(body)),
        Err(why) => why.0,
    }
}

/// The pieces of a body's prompt, in words.
pub fn pieces(parser: &dyn Parser, path: &str, body: &str) -> Vec<String> {
    let parsed = parse(parser, path, body);
    let ids: Vec<u32> =
        parsed.ids.chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().expect("four bytes"))).collect();
    let words = |piece: &Piece| match piece {
        Piece::NextPrompt => "next".to_owned(),
        Piece::Text { at, escaped: false } => format!("text {}", &body[at.clone()]),
        Piece::Text { at, escaped: true } => format!("escaped {}", &body[at.clone()]),
        Piece::Raw { at } => format!("raw {}", &body[at.clone()]),
        Piece::Literal(text) => format!("literal {text}"),
        Piece::Ids { at } => format!("ids {:?}", &ids[at.clone()]),
        Piece::Image { at, .. } => format!("image {}", &body[at.clone()]),
        Piece::Video { at, .. } => format!("video {}", &body[at.clone()]),
        Piece::Audio { at, format, .. } => format!("audio {} {}", &body[at.clone()], &body[format.clone()]),
    };
    parsed.pieces.iter().map(words).collect()
}

/// Every report of a response that comes in these chunks.
pub fn reports<C: AsRef<[u8]>>(parser: &dyn Parser, kind: ResponseKind, chunks: &[C]) -> Vec<Usage> {
    let mut response = parser.response("", kind);
    let mut reports: Vec<Usage> = chunks.iter().filter_map(|chunk| response.feed(chunk.as_ref())).collect();
    reports.extend(response.finish());
    assert_eq!(response.finish(), None, "a report is made once");
    reports
}

/// Usage in the order of prompt, completion, cached, total.
pub fn usage(counts: [Option<u64>; 4]) -> Usage {
    let [prompt, completion, cached, total] = counts;
    Usage { prompt, completion, cached, total }
}

/// Events of these data.
pub fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// Checks that a response in one piece, in two pieces at every place and byte by byte is read alike.
pub fn reads_alike_however_it_is_cut(parser: &dyn Parser, kind: ResponseKind, response: &str, want: &[Usage]) {
    let bytes = response.as_bytes();
    assert_eq!(reports(parser, kind, &[bytes]), want, "{response}");
    for cut in 0..bytes.len() {
        assert_eq!(reports(parser, kind, &[&bytes[..cut], &bytes[cut..]]), want, "cut at {cut}: {response}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(reports(parser, kind, &single), want, "byte by byte: {response}");
}
