//! Responses and conversations: prompts that count as the JSON they are written in.

use std::ops::Range;

use epp_plugin_api::Piece;

use super::super::draft::Draft;
use super::Fields;
use crate::json::{Fault, Key, Kind, Scanner};

/// Instructions, tools and input, each of any type.
#[derive(Default)]
pub struct Response {
    instructions: Option<Range<usize>>,
    tools: Option<Range<usize>>,
    input: Option<Range<usize>>,
}

impl Fields for Response {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
        let place = if key.folds_to("input") {
            &mut self.input
        } else if key.folds_to("instructions") {
            &mut self.instructions
        } else if key.folds_to("tools") {
            &mut self.tools
        } else if key.folds_to("cache_salt") {
            return draft.want_salt(s);
        } else {
            return s.skip().map(drop);
        };
        let kind = s.kind()?;
        *place = Some(s.skip()?).filter(|_| kind != Kind::Null);
        Ok(())
    }

    fn complete(self, draft: &mut Draft) -> bool {
        let Some(input) = self.input else { return false };
        let parts = [
            self.instructions.map(|at| ("{\"instructions\":", at)),
            self.tools.map(|at| ("{\"tools\":", at)),
            Some(("{\"input\":", input)),
        ];
        draft.pieces.push(Piece::Literal("["));
        for (i, (key, at)) in parts.into_iter().flatten().enumerate() {
            if i > 0 {
                draft.pieces.push(Piece::Literal("},"));
            }
            draft.pieces.push(Piece::Literal(key));
            draft.pieces.push(Piece::Raw { at });
        }
        draft.pieces.push(Piece::Literal("}]"));
        true
    }
}

/// Items, each an object.
#[derive(Default)]
pub struct Conversation {
    found: bool,
}

impl Fields for Conversation {
    fn field(&mut self, draft: &mut Draft, s: &mut Scanner<'_>, key: Key<'_>) -> Result<(), Fault> {
        if key.folds_to("cache_salt") {
            return draft.want_salt(s);
        }
        if key.folds_to("metadata") {
            return draft.want_kind(s, Kind::Object).map(drop);
        }
        if !key.folds_to("items") {
            return s.skip().map(drop);
        }
        let start = s.start();
        let n = s.array(|s, _| item(draft, s))?;
        if let Some(n) = draft.want(n) {
            draft.restart();
            self.found = n > 0;
            draft.pieces.push(Piece::Raw { at: start..s.at() });
        }
        Ok(())
    }

    fn complete(self, _draft: &mut Draft) -> bool {
        self.found
    }
}

fn item(draft: &mut Draft, s: &mut Scanner<'_>) -> Result<(), Fault> {
    let field = s.object(|s, key| {
        if key.folds_to("type") || key.folds_to("role") {
            return draft.want_text(s).map(drop);
        }
        s.skip().map(drop)
    })?;
    draft.want(field);
    Ok(())
}
