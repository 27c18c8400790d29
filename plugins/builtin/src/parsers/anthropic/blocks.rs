//! Content: a text, or blocks of text, images, thinking, and calls of tools and their results.

use std::ops::Range;

use epp_plugin_api::Piece;

use super::super::draft::Draft;
use crate::json::text::Text;
use crate::json::{Fault, Kind, Scanner};

/// A text of the system that says who pays; it changes from request to request and engines drop it.
const BILLING: &[u8] = b"x-anthropic-billing-header";

/// Where content stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    System,
    Message,
    /// In the result of a tool. What its blocks hold in turn is not looked at.
    ToolResult,
}

/// Reads content and appends its pieces.
pub fn content(draft: &mut Draft, s: &mut Scanner<'_>, place: Place) -> Result<(), Fault> {
    match s.kind()? {
        Kind::String => draft.text(s.string()?),
        Kind::Array => {
            s.array(|s, _| block(draft, s, place))?;
        }
        kind => {
            s.skip()?;
            draft.wrong |= kind != Kind::Null;
        }
    }
    Ok(())
}

/// What a block may hold; its type says what of it counts.
#[derive(Default)]
struct Block {
    of: Option<Text>,
    text: Option<Text>,
    thinking: Option<Text>,
    id: Option<Text>,
    name: Option<Text>,
    input: Option<Range<usize>>,
    data: Option<Text>,
    url: Option<Text>,
    /// Pieces of the content inside.
    inner: Vec<Piece>,
}

fn block(draft: &mut Draft, s: &mut Scanner<'_>, place: Place) -> Result<(), Fault> {
    let mut block = Block::default();
    let field = s.object(|s, key| {
        if key.folds_to("type") {
            block.of = draft.want_text(s)?;
        } else if key.folds_to("text") {
            block.text = draft.want_text(s)?;
        } else if key.folds_to("thinking") {
            block.thinking = draft.want_text(s)?;
        } else if key.folds_to("id") {
            block.id = draft.want_text(s)?;
        } else if key.folds_to("name") {
            block.name = draft.want_text(s)?;
        } else if key.folds_to("tool_use_id") {
            draft.want_text(s)?;
        } else if key.folds_to("input") {
            block.input = Some(s.skip()?);
        } else if key.folds_to("source") {
            source(draft, s, &mut block)?;
        } else if key.folds_to("content") && place != Place::ToolResult {
            let before = draft.pieces.len();
            content(draft, s, Place::ToolResult)?;
            block.inner = draft.pieces.split_off(before);
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    draft.want(field);
    block.append(s.body(), place, &mut draft.pieces);
    draft.bound();
    Ok(())
}

fn source(draft: &mut Draft, s: &mut Scanner<'_>, block: &mut Block) -> Result<(), Fault> {
    let field = s.object(|s, key| {
        if key.folds_to("data") {
            block.data = draft.want_text(s)?;
        } else if key.folds_to("url") {
            block.url = draft.want_text(s)?;
        } else if key.folds_to("type") || key.folds_to("media_type") {
            draft.want_text(s)?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    draft.want(field);
    Ok(())
}

impl Block {
    fn append(self, body: &[u8], place: Place, pieces: &mut Vec<Piece>) {
        let Some(of) = self.of else { return };
        let text = |Text { at, escaped }| Piece::Text { at, escaped };
        if of.is(body, "text") {
            let billing = |text: &Text| place == Place::System && body[text.at.clone()].starts_with(BILLING);
            pieces.extend(self.text.filter(|text| !billing(text)).map(text));
        } else if of.is(body, "image") {
            pieces.extend(self.url.or(self.data).map(|Text { at, escaped }| Piece::Image { at, escaped }));
        } else if of.is(body, "thinking") {
            pieces.extend(self.thinking.map(text));
        } else if of.is(body, "tool_use") {
            pieces.extend(self.id.map(text));
            pieces.extend(self.name.map(text));
            pieces.extend(self.input.map(|at| Piece::Raw { at }));
        } else if of.is(body, "tool_result") {
            let (texts, others): (Vec<_>, Vec<_>) =
                self.inner.into_iter().partition(|piece| matches!(piece, Piece::Text { .. }));
            for (i, text) in texts.into_iter().enumerate() {
                if i > 0 {
                    pieces.push(Piece::Literal("\n"));
                }
                pieces.push(text);
            }
            pieces.extend(others.into_iter().filter(|piece| matches!(piece, Piece::Image { .. })));
        }
    }
}
