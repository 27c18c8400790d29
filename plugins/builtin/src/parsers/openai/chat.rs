//! Chat completions: the JSON of the tools, then of every message its role and its content.

use std::ops::Range;

use epp_plugin_api::Piece;

use super::super::draft::Draft;
use super::Fields;
use crate::json::text::Text;
use crate::json::{Fault, Key, Kind, Scanner};

/// Messages, and what else stands in the engine's template.
#[derive(Default)]
pub struct Chat {
    found: bool,
    tools: Option<Range<usize>>,
}

impl Fields for Chat {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
        if key.folds_to("messages") {
            if s.kind()? == Kind::Array {
                draft.restart();
            }
            let n = s.array(|s, _| message(draft, s))?;
            if let Some(n) = draft.want(n) {
                self.found = n > 0;
            }
        } else if key.folds_to("tools") {
            self.tools = draft.want_tools(s)?;
        } else if key.folds_to("cache_salt") {
            draft.want_salt(s)?;
        } else if key.folds_to("documents") {
            draft.want_kind(s, Kind::Array)?;
        } else if key.folds_to("chat_template") {
            draft.want_text(s)?;
        } else if key.folds_to("chat_template_kwargs") {
            draft.want_kind(s, Kind::Object)?;
        } else if ["add_generation_prompt", "continue_final_message", "return_assistant_tokens_mask"]
            .iter()
            .any(|flag| key.folds_to(flag))
        {
            draft.want_boolean(s)?;
        } else {
            s.skip()?;
        }
        Ok(())
    }

    fn complete(self, draft: &mut Draft) -> bool {
        if let Some(at) = self.tools {
            draft.pieces.insert(0, Piece::Raw { at });
        }
        self.found
    }
}

fn message(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
    let start = draft.pieces.len();
    let mut has_role = false;
    let field = s.object(|s, key| {
        if key.folds_to("role") {
            if let Some(Text { at, escaped }) = draft.want_text(s)? {
                let role = Piece::Text { at, escaped };
                match draft.pieces.get_mut(start) {
                    Some(former) if has_role => *former = role,
                    _ => draft.pieces.insert(start, role),
                }
                has_role = true;
            }
            Ok(())
        } else if key.folds_to("content") {
            content(draft, s, start + usize::from(has_role))
        } else if key.folds_to("tool_calls") {
            draft.want_kind(s, Kind::Array).map(drop)
        } else {
            s.skip().map(drop)
        }
    })?;
    draft.want(field);
    draft.bound();
    Ok(())
}

/// Reads a text or a list of parts; its pieces begin at `start`.
fn content(draft: &mut Draft, s: &mut Scanner<'_>, start: usize) -> Result<(), Fault> {
    match s.kind()? {
        Kind::String => {
            draft.pieces.truncate(start);
            draft.text(s.string()?);
        }
        Kind::Array => {
            draft.pieces.truncate(start);
            s.array(|s, _| part(draft, s))?;
        }
        kind => {
            s.skip()?;
            draft.wrong |= kind != Kind::Null;
        }
    }
    Ok(())
}

/// What a part may hold; its type says what of it counts.
#[derive(Default)]
struct Part {
    of: Option<Text>,
    text: Option<Text>,
    image: Option<Text>,
    video: Option<Text>,
    sound: Option<Text>,
    sound_url: Option<Text>,
    format: Option<Text>,
}

fn part(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
    let mut part = Part::default();
    let field = s.object(|s, key| {
        if key.folds_to("type") {
            part.of = draft.want_text(s)?;
        } else if key.folds_to("text") {
            part.text = draft.want_text(s)?;
        } else if key.folds_to("image_url") {
            part.image = url(draft, s)?;
        } else if key.folds_to("video_url") {
            part.video = url(draft, s)?;
        } else if key.folds_to("audio_url") {
            part.sound_url = url(draft, s)?;
        } else if key.folds_to("input_audio") {
            let field = s.object(|s, key| {
                if key.folds_to("data") {
                    part.sound = draft.want_text(s)?;
                } else if key.folds_to("format") {
                    part.format = draft.want_text(s)?;
                } else {
                    s.skip()?;
                }
                Ok(())
            })?;
            draft.want(field);
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    draft.want(field);
    draft.pieces.extend(part.piece(s.body()));
    draft.bound();
    Ok(())
}

impl Part {
    fn piece(self, body: &[u8]) -> Option<Piece> {
        let of = self.of?;
        let is = |word| of.is(body, word);
        if is("text") {
            self.text.map(|Text { at, escaped }| Piece::Text { at, escaped })
        } else if is("image_url") {
            self.image.map(|Text { at, escaped }| Piece::Image { at, escaped })
        } else if is("video_url") {
            self.video.map(|Text { at, escaped }| Piece::Video { at, escaped })
        } else if is("input_audio") {
            let format = self.format.map_or(0..0, |format| format.at);
            self.sound.map(|Text { at, escaped }| Piece::Audio { at, escaped, format })
        } else if is("audio_url") {
            self.sound_url.map(|Text { at, escaped }| Piece::Audio { at, escaped, format: 0..0 })
        } else {
            None
        }
    }
}

/// Reads an object with a `url`.
fn url(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<Option<Text>, Fault> {
    let mut url = None;
    let field = s.object(|s, key| {
        if key.folds_to("url") {
            url = draft.want_text(s)?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    draft.want(field);
    Ok(url)
}
