//! `always-disagg-multimodal-decider`: a stage is worth it for a request with an image, a video or sound. Parameters are
//! ignored.
//!
//! Reads the value `TokenizedPrompt`; without it, nothing is wanted.
//!
//! ```yaml
//! - type: always-disagg-multimodal-decider
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Decider, EndpointIdx, Instance, Kind, Piece, PluginType, RequestKey,
    Stability,
};

use crate::attributes::TokenizedPrompt;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "always-disagg-multimodal-decider",
    kinds: &[Kind::Decider],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "always-disagg-multimodal-decider",
    summary: "Wants the stage for requests with an image, a video or sound.",
    schema: None,
    build,
};

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let decider = Multimodal { prompt: cx.reads_request("") };
    Ok(Instance { decider: Some(Arc::new(decider)), ..Instance::default() })
}

struct Multimodal {
    prompt: RequestKey<TokenizedPrompt>,
}

impl Decider for Multimodal {
    fn wanted(&self, cx: &Cycle<'_>, columns: &Columns, _chosen: Option<EndpointIdx>) -> bool {
        let parsed = &cx.request.parsed;
        columns.read_request(self.prompt).is_some()
            && (!parsed.features.is_empty() || parsed.pieces.iter().any(is_media))
    }
}

fn is_media(piece: &Piece) -> bool {
    match piece {
        Piece::Image { .. } | Piece::Video { .. } | Piece::Audio { .. } => true,
        Piece::NextPrompt | Piece::Text { .. } | Piece::Raw { .. } | Piece::Literal(_) | Piece::Ids { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use epp_plugin_api::{Headers, Parsed};
    use serde_json::json;

    use super::*;
    use crate::testing::{Rig, cycle, request, snapshot};

    crate::conformance!(TYPE, json!({"bogus": 1}));

    fn wanted(parsed: Parsed, tokenized: bool) -> bool {
        let rig = Rig::default();
        let decider = rig.build(&TYPE, json!(null)).decider.unwrap();
        let (board, request) = (snapshot(1, []), request(b"0123456789", parsed));
        let mut columns = Columns::default();
        if tokenized {
            columns.write_request(rig.slots.request::<TokenizedPrompt>("token-producer"));
        }
        decider.wanted(&cycle(&board, &request), &columns, None)
    }

    #[test]
    fn pictures_films_and_sound_are_wanted_and_text_is_not() {
        let text = Piece::Text { at: 0..5, escaped: false };
        for (piece, want) in [
            (Piece::Image { at: 0..1, escaped: false }, true),
            (Piece::Video { at: 0..1, escaped: false }, true),
            (Piece::Audio { at: 0..1, escaped: false, format: 1..2 }, true),
            (Piece::Ids { at: 0..1 }, false),
            (Piece::Literal("image"), false),
            (Piece::NextPrompt, false),
        ] {
            let parsed = Parsed { pieces: vec![text.clone(), piece.clone()], ..Parsed::default() };
            assert_eq!(wanted(parsed.clone(), true), want, "{piece:?}");
            assert!(!wanted(parsed, false), "{piece:?}");
        }
        assert!(wanted(Parsed { features: vec![("h".into(), 0, 1)], ..Parsed::default() }, true));
    }

    #[test]
    fn every_kind_of_sound_and_film_in_a_chat_is_media() {
        let openai = Rig::default().build(&crate::parsers::openai::TYPE, json!(null)).parser.unwrap();
        for (part, want) in [
            (json!({"type": "text", "text": "x"}), false),
            (json!({"type": "image_url", "image_url": {"url": "http://h/a.png"}}), true),
            (json!({"type": "audio_url", "audio_url": {"url": "http://h/a.wav"}}), true),
            (json!({"type": "video_url", "video_url": {"url": "http://h/a.mp4"}}), true),
            (json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}), true),
        ] {
            let body = json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}).to_string();
            let parsed = openai.parse("v1/chat/completions", &Headers::default(), body.as_bytes()).unwrap();
            assert_eq!(wanted(parsed, true), want, "{body}");
        }
    }
}
