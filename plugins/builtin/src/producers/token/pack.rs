//! Packs the pieces of a request into the tokens of its prompts.

use std::ops::Range;

use epp_plugin_api::{InferenceRequest, Piece};
use xxhash_rust::xxh64::Xxh64;

use super::estimate::Estimate;
use super::media::audio_tokens;
use super::text::unescape;
use crate::attributes::TokenizedPrompt;

/// So many tokens all media of one request may take, so that a few bytes that claim a huge image cost no memory. Each
/// medium beyond that takes one.
const MOST_MEDIA_TOKENS: u64 = 1 << 20;
/// How much of an image's data is looked at for its size if the data has escapes.
const MOST_ESCAPED_HEAD: usize = 64 << 10;

/// Appends every prompt of the request to `prompt`, which is empty.
pub fn pack(estimate: &Estimate, request: &InferenceRequest, prompt: &mut TokenizedPrompt) {
    let mut packer = Packer { estimate, request, media_left: MOST_MEDIA_TOKENS };
    for pieces in request.parsed.pieces.split(|piece| *piece == Piece::NextPrompt) {
        match pieces {
            [] => {}
            [Piece::Ids { at }] => {
                let bytes = bytes_of_ids(at);
                prompt.push_given(if bytes.end <= request.parsed.ids.len() { bytes } else { 0..0 });
            }
            pieces => prompt.push_packed(|into| pieces.iter().for_each(|piece| packer.piece(piece, into))),
        }
    }
}

/// Appends every prompt of a request whose prompts are token ids to `prompt`, which is empty.
pub fn pack_ids(request: &InferenceRequest, prompt: &mut TokenizedPrompt) {
    pack(&Estimate::default(), request, prompt);
}

fn bytes_of_ids(at: &Range<usize>) -> Range<usize> {
    at.start.saturating_mul(4)..at.end.saturating_mul(4)
}

struct Packer<'a> {
    estimate: &'a Estimate,
    request: &'a InferenceRequest,
    media_left: u64,
}

impl Packer<'_> {
    fn piece(&mut self, piece: &Piece, into: &mut Vec<u8>) {
        match piece {
            Piece::NextPrompt => {}
            Piece::Text { at, escaped } => unescape(self.body(at), *escaped, |text| into.extend_from_slice(text)),
            Piece::Raw { at } => into.extend_from_slice(self.body(at)),
            Piece::Literal(text) => into.extend_from_slice(text.as_bytes()),
            Piece::Ids { at } => {
                pad(into);
                into.extend_from_slice(self.request.parsed.ids.get(bytes_of_ids(at)).unwrap_or_default());
            }
            Piece::Image { at, escaped } => {
                let (hash, _) = self.digest(at, *escaped);
                self.medium(hash, self.image_tokens(at, *escaped), into);
            }
            Piece::Video { at, escaped } => {
                let (hash, _) = self.digest(at, *escaped);
                self.medium(hash, self.estimate.video_tokens(&self.request.headers), into);
            }
            Piece::Audio { at, escaped, format } => {
                let (mut hash, mut bytes) = self.digest(at, *escaped);
                let format = self.body(format);
                hash.update(format);
                bytes += format.len();
                self.medium(hash, audio_tokens(bytes), into);
            }
        }
    }

    fn body(&self, at: &Range<usize>) -> &[u8] {
        self.request.body.get(at.clone()).unwrap_or_default()
    }

    /// The hash and the length of what a JSON string stands for.
    fn digest(&self, at: &Range<usize>, escaped: bool) -> (Xxh64, usize) {
        let (mut hash, mut bytes) = (Xxh64::new(0), 0);
        unescape(self.body(at), escaped, |piece| {
            hash.update(piece);
            bytes += piece.len();
        });
        (hash, bytes)
    }

    fn image_tokens(&self, at: &Range<usize>, escaped: bool) -> u64 {
        let content = self.body(at);
        if !escaped {
            return self.estimate.image_tokens(content);
        }
        let mut head = Vec::new();
        let looked_at = &content[..content.len().min(MOST_ESCAPED_HEAD)];
        unescape(looked_at, true, |piece| head.extend(piece.iter().filter(|c| !matches!(c, b'\r' | b'\n'))));
        self.estimate.image_tokens(&head)
    }

    /// Appends the low half of the medium's hash, as a token, as often as the medium takes tokens.
    fn medium(&mut self, hash: Xxh64, tokens: u64, into: &mut Vec<u8>) {
        pad(into);
        let tokens = tokens.min(self.media_left).max(1);
        self.media_left = self.media_left.saturating_sub(tokens);
        let token = (hash.digest() as u32).to_le_bytes();
        into.extend(std::iter::repeat_n(token, tokens as usize).flatten());
    }
}

fn pad(into: &mut Vec<u8>) {
    into.resize(into.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::Parsed;

    use crate::testing::request;

    use super::*;

    fn packed(body: &str, pieces: Vec<Piece>, ids: &[u32]) -> Vec<Vec<u32>> {
        let ids = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let request = request(body.as_bytes(), Parsed { pieces, ids, ..Parsed::default() });
        let mut prompt = TokenizedPrompt::default();
        pack(&Estimate::default(), &request, &mut prompt);
        let token = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        let prompts: Vec<Vec<u32>> = prompt.prompts(&request).map(|p| p.chunks(4).map(token).collect()).collect();
        assert_eq!(prompt.tokens(), prompts.iter().map(Vec::len).sum::<usize>());
        prompts
    }

    fn text(at: Range<usize>) -> Piece {
        Piece::Text { at, escaped: false }
    }

    #[test]
    fn four_bytes_of_text_are_one_little_endian_token() {
        assert_eq!(packed("hello", vec![text(0..5)], &[]), [[1819043176, 111]]);
        assert_eq!(packed(r"h\u0065llo", vec![Piece::Text { at: 0..10, escaped: true }], &[]), [[1819043176, 111]]);
        assert_eq!(packed("he", vec![text(0..2), Piece::Literal("llo")], &[]), [[1819043176, 111]]);
    }

    #[test]
    fn ids_are_taken_as_they_are() {
        assert_eq!(packed("", vec![Piece::Ids { at: 0..3 }], &[7, 8, 9]), [[7, 8, 9]]);
        let two = vec![Piece::Ids { at: 0..1 }, Piece::NextPrompt, Piece::Ids { at: 1..3 }];
        assert_eq!(packed("", two, &[7, 8, 9]), [vec![7], vec![8, 9]]);
        let mixed = vec![text(0..1), Piece::Ids { at: 1..2 }];
        assert_eq!(packed("a", mixed, &[7, 8]), [[97, 8]]);
    }

    #[test]
    fn each_prompt_begins_on_a_token() {
        let two = vec![text(0..5), Piece::NextPrompt, text(5..6), Piece::NextPrompt];
        assert_eq!(packed("hellob", two, &[]), [vec![1819043176, 111], vec![98]]);
    }

    #[test]
    fn a_medium_is_its_hash_as_often_as_it_takes_tokens() {
        let body = "https://example.com/cat.png";
        let got = packed(body, vec![Piece::Literal("user"), Piece::Image { at: 0..body.len(), escaped: false }], &[]);
        assert_eq!(got[0].len(), 1 + 225);
        assert!(got[0][1..].iter().all(|&token| token == 1605148516));
    }

    #[test]
    fn a_medium_begins_on_a_token() {
        // 64 by 32 pixels are two tokens.
        let body = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAAAgCAIAAAA=";
        let image = Piece::Image { at: 0..body.len(), escaped: false };
        let got = packed(body, vec![Piece::Literal("user"), Piece::Literal("describe this"), image.clone()], &[]);
        assert_eq!(got[0].len(), 5 + 2);
        assert_eq!(got[0][5], got[0][6]);
        let escaped = body.replace('/', r"\/");
        let again = Piece::Image { at: 0..escaped.len(), escaped: true };
        assert_eq!(packed(&escaped, vec![again], &[]), packed(body, vec![image], &[]));
    }

    #[test]
    fn different_media_give_different_tokens() {
        let image = |at| vec![Piece::Image { at, escaped: false }];
        assert_ne!(packed("ab", image(0..1), &[]), packed("ab", image(1..2), &[]));
        let audio = |format| vec![Piece::Audio { at: 0..1021, escaped: false, format }];
        let body = format!("{}wavmp3", "d".repeat(1021));
        let (wav, mp3) = (packed(&body, audio(1021..1024), &[]), packed(&body, audio(1024..1027), &[]));
        assert_eq!((wav[0].len(), mp3[0].len()), (256, 256));
        assert_ne!(wav, mp3);
    }

    #[test]
    fn media_that_claim_too_much_take_little_memory() {
        // 2^31 by 2^31 pixels.
        let body = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUoAAAACAAAAACAIAAAA=";
        let got = packed(body, vec![Piece::Image { at: 0..body.len(), escaped: false }; 3], &[]);
        assert_eq!(got[0].len() as u64, MOST_MEDIA_TOKENS + 2);
    }

    #[test]
    fn ranges_outside_of_the_body_are_empty() {
        let pieces = vec![text(3..9), Piece::Literal("x")];
        assert_eq!(packed("abc", pieces, &[]), [[120]]);
        assert_eq!(packed("", vec![Piece::Ids { at: 0..3 }], &[7])[0], [] as [u32; 0]);
    }
}
