//! Prompts that are texts or token ids: completions, embeddings, and the text for an image.

use epp_plugin_api::Piece;

use super::super::draft::Draft;
use super::Fields;
use crate::json::ids::Ids;
use crate::json::{Fault, Field, Key, Kind, Scanner};

/// A text, several texts, token ids, or several lists of token ids.
pub struct Prompt {
    key: &'static str,
    found: bool,
}

impl Prompt {
    /// The prompt is the value of this key.
    pub fn under(key: &'static str) -> Self {
        Self { key, found: false }
    }
}

impl Fields for Prompt {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
        if key.folds_to("cache_salt") {
            return draft.want_salt(s);
        }
        if !key.folds_to(self.key) {
            return s.skip().map(drop);
        }
        match s.kind()? {
            Kind::String => {
                draft.restart();
                let text = s.string()?;
                self.found = !text.at.is_empty();
                draft.text(text);
            }
            Kind::Array => {
                draft.restart();
                self.found = match s.first_kind() {
                    Some(Kind::String) => texts(draft, s)?,
                    Some(Kind::Array) => lists_of_ids(draft, s)?,
                    _ => ids(draft, s)?,
                };
            }
            kind => {
                s.skip()?;
                draft.wrong |= kind != Kind::Null;
            }
        }
        Ok(())
    }

    fn complete(self, _draft: &mut Draft) -> bool {
        self.found
    }
}

/// Reads several texts, each a prompt of its own.
fn texts(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<bool, Fault> {
    let n = s.array(|s, i| {
        if i > 0 {
            draft.pieces.push(Piece::NextPrompt);
        }
        match s.text()? {
            Field::Is(text) => draft.text(text),
            Field::Null | Field::Wrong => draft.wrong = true,
        }
        draft.bound();
        Ok(())
    })?;
    Ok(n != Field::Is(0))
}

/// Reads several lists of token ids, each a prompt of its own.
fn lists_of_ids(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<bool, Fault> {
    let mut any = false;
    s.array(|s, i| {
        if i > 0 {
            draft.pieces.push(Piece::NextPrompt);
        }
        any |= ids(draft, s)?;
        draft.bound();
        Ok(())
    })?;
    Ok(any)
}

fn ids(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<bool, Fault> {
    let start = draft.ids.len() / 4;
    match s.ids(&mut draft.ids)? {
        Field::Is(Ids { n, bad: None }) => {
            draft.pieces.push(Piece::Ids { at: start..start + n });
            Ok(n > 0)
        }
        Field::Is(Ids { bad: Some(_), .. }) | Field::Null | Field::Wrong => {
            draft.wrong = true;
            Ok(false)
        }
    }
}

/// The request for an image. Its text is not a prompt of the engine's cache.
#[derive(Default)]
pub struct Image {
    found: bool,
}

impl Fields for Image {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
        if key.folds_to("prompt") {
            if let Some(text) = draft.want_text(s)? {
                self.found = !text.at.is_empty();
            }
        } else if key.folds_to("size") {
            draft.want_text(s)?;
        } else if key.folds_to("n") || key.folds_to("num_inference_steps") {
            draft.want_kind(s, Kind::Number)?;
        } else {
            s.skip()?;
        }
        Ok(())
    }

    fn complete(self, _draft: &mut Draft) -> bool {
        self.found
    }
}
