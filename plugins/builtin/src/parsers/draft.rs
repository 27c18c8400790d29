//! What the parsers share: the walk over the top level of a body, and the prompt while it is put together.

use std::ops::Range;

use epp_plugin_api::{Parsed, Piece};

use crate::json::text::Text;
use crate::json::{Fault, Field, Key, Kind, Scanner};

/// So many pieces are kept of one prompt. A body of the allowed size could otherwise grow to twenty times its size; what
/// comes after them only counts for nothing in the choice of an endpoint.
const MAX_PIECES: usize = 1 << 16;

/// A prompt in the making.
#[derive(Debug, Default)]
pub struct Draft {
    pub pieces: Vec<Piece>,
    pub ids: Vec<u8>,
    pub salt: String,
    /// A field that the API types has another type.
    pub wrong: bool,
}

impl Draft {
    /// Forgets the prompt: its key is there once more, and the last one counts.
    pub fn restart(&mut self) {
        self.pieces.clear();
        self.ids.clear();
    }

    /// Drops the pieces that are too many.
    pub fn bound(&mut self) {
        self.pieces.truncate(MAX_PIECES);
    }

    /// Appends a text.
    pub fn text(&mut self, text: Text) {
        self.pieces.push(Piece::Text { at: text.at, escaped: text.escaped });
    }

    /// Notes whether a value has its type. Returns it if it is there.
    pub fn want<T>(&mut self, field: Field<T>) -> Option<T> {
        match field {
            Field::Is(value) => Some(value),
            Field::Null => None,
            Field::Wrong => {
                self.wrong = true;
                None
            }
        }
    }

    /// Reads a string that the API types.
    pub fn want_text(&mut self, s: &mut Scanner<'_>) -> Result<Option<Text>, Fault> {
        let field = s.text()?;
        Ok(self.want(field))
    }

    /// Reads a boolean that the API types; its value does not matter.
    pub fn want_boolean(&mut self, s: &mut Scanner<'_>) -> Result<(), Fault> {
        let field = s.boolean()?;
        self.want(field);
        Ok(())
    }

    /// Skips a value that must be of this kind. Returns where it stands.
    pub fn want_kind(&mut self, s: &mut Scanner<'_>, kind: Kind) -> Result<Option<Range<usize>>, Fault> {
        let found = s.kind()?;
        let at = s.skip()?;
        Ok(match found {
            Kind::Null => None,
            found if found == kind => Some(at),
            _ => self.want(Field::Wrong),
        })
    }

    /// Reads the cache salt.
    pub fn want_salt(&mut self, s: &mut Scanner<'_>) -> Result<(), Fault> {
        if let Some(salt) = self.want_text(s)? {
            self.salt = salt.read(s.body());
        }
        Ok(())
    }

    /// Reads the tools. Returns where they stand, if there are any.
    pub fn want_tools(&mut self, s: &mut Scanner<'_>) -> Result<Option<Range<usize>>, Fault> {
        let any = s.first_kind().is_some();
        Ok(self.want_kind(s, Kind::Array)?.filter(|_| any))
    }

    /// Makes it the prompt of what was parsed.
    pub fn into_parsed(self, parsed: Parsed) -> Parsed {
        Parsed { pieces: self.pieces, ids: self.ids, cache_salt: self.salt, model_aware: true, ..parsed }
    }
}

/// Walks over the top level of a body; `field` must read the value of every key. Returns the byte after the opening brace.
/// A body that is `null` has no fields.
pub fn fields<'a>(
    body: &'a [u8],
    field: impl FnMut(&mut Scanner<'a>, Key<'a>) -> Result<(), Fault>,
) -> Result<Option<usize>, Fault> {
    let mut s = Scanner::new(body);
    let inside = match s.kind()? {
        Kind::Object => Some(s.at() + 1),
        Kind::Null => None,
        _ => return Err(Fault { at: s.at(), wanted: "an object" }),
    };
    s.object(field)?;
    s.end()?;
    Ok(inside)
}

/// As [`fields`], but reads `model`, `stream` and the first of the keys in `caps` that has a whole number itself, all of
/// them by their exact key.
pub fn read<'a>(
    body: &'a [u8],
    caps: &[&str],
    mut field: impl FnMut(&mut Scanner<'a>, Key<'a>) -> Result<(), Fault>,
) -> Result<Parsed, Fault> {
    let mut parsed = Parsed::default();
    let mut found = [None; 2];
    let inside = fields(body, |s, key| {
        if key.is("model") {
            read_model(s, &mut parsed)
        } else if key.is("stream") {
            parsed.stream = s.boolean()? == Field::Is(true);
            Ok(())
        } else if let Some(cap) = caps.iter().position(|cap| key.is(cap)) {
            found[cap] = read_cap(s)?;
            Ok(())
        } else {
            field(s, key)
        }
    })?;
    parsed.insert_at = inside;
    parsed.max_output_tokens = found.into_iter().flatten().next();
    Ok(parsed)
}

/// Reads a cap on the tokens of the answer; what is no whole number is none.
pub fn read_cap(s: &mut Scanner<'_>) -> Result<Option<u64>, Fault> {
    Ok(match s.whole()? {
        Field::Is(cap) => Some(cap),
        Field::Null | Field::Wrong => None,
    })
}

fn read_model(s: &mut Scanner<'_>, parsed: &mut Parsed) -> Result<(), Fault> {
    if s.kind()? == Kind::String {
        let text = s.string()?;
        parsed.model = Some(text.read(s.body())).filter(|model| !model.is_empty());
        parsed.model_at = Some(text.at.start - 1..text.at.end + 1);
    } else {
        parsed.model = None;
        parsed.model_at = Some(s.skip()?);
    }
    Ok(())
}
