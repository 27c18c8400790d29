//! The tokens of a request's prompts as they were rendered, and how they are read from an engine's answer.

use crate::attributes::TokenizedPrompt;
use crate::json::{Fault, Field, Kind, Scanner};
use crate::parsers::vllmhttp::features::{self, Feature};

/// The tokens of the prompts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Four bytes a token, little endian.
    tokens: Vec<u8>,
    /// Where each prompt ends in `tokens`.
    ends: Vec<usize>,
    /// Hash, offset and length of media, by offset.
    features: Vec<Feature>,
}

impl Rendered {
    /// Adds a prompt whose tokens `fill` appends.
    pub fn push(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        fill(&mut self.tokens);
        self.ends.push(self.tokens.len());
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Roughly the memory that it takes.
    pub fn bytes(&self) -> usize {
        let features: usize = self.features.iter().map(|(hash, ..)| hash.len() + size_of::<Feature>()).sum();
        self.tokens.len() + self.ends.len() * size_of::<usize>() + features + size_of::<Self>()
    }

    /// The tokens of each prompt.
    pub fn prompts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&start, &end)| &self.tokens[start..end])
    }

    /// Makes them the request's prompts.
    pub fn fill(&self, prompt: &mut TokenizedPrompt) {
        prompt.clear();
        self.prompts().for_each(|tokens| prompt.push_packed(|into| into.extend_from_slice(tokens)));
        prompt.set_features(&self.features);
    }

    /// The prompts as one row of bytes: the number of tokens before the tokens of each.
    #[cfg(feature = "tokenizers")]
    pub fn to_frame(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.tokens.len() + 4 * self.ends.len());
        for tokens in self.prompts() {
            frame.extend_from_slice(&((tokens.len() / 4) as u32).to_le_bytes());
            frame.extend_from_slice(tokens);
        }
        frame
    }

    /// Reads what [`Self::to_frame`] wrote.
    ///
    /// # Errors
    /// If the frame is cut off.
    #[cfg(feature = "tokenizers")]
    pub fn of_frame(mut frame: &[u8]) -> Result<Self, String> {
        let mut rendered = Self::default();
        while let Some((n_tokens, rest)) = frame.split_first_chunk::<4>() {
            let n_bytes = 4 * u32::from_le_bytes(*n_tokens) as usize;
            let tokens = rest.get(..n_bytes).ok_or("expected more tokens, found the end of the frame")?;
            rendered.push(|into| into.extend_from_slice(tokens));
            frame = &rest[n_bytes..];
        }
        Ok(rendered)
    }

    /// Reads the answer for a chat: one object.
    ///
    /// # Errors
    /// Says what was expected if it is something else.
    pub fn of_chat(answer: &[u8]) -> Result<Self, String> {
        let mut rendered = Self::default();
        read(answer, |s| object(s, &mut rendered))?;
        Ok(rendered)
    }

    /// Reads the answer for completions: a list, an object a prompt. Media have no place there.
    ///
    /// # Errors
    /// Says what was expected if it is something else, or empty.
    pub fn of_completions(answer: &[u8]) -> Result<Self, String> {
        let mut rendered = Self::default();
        read(answer, |s| {
            let mut why = None;
            let list = s.array(|s, _| {
                why = why.or(object(s, &mut rendered)?.err());
                Ok(())
            })?;
            Ok(match (list, why) {
                (Field::Is(0), _) => Err("a prompt, found an empty list"),
                (Field::Is(_), None) => Ok(()),
                (Field::Is(_), Some(why)) => Err(why),
                (Field::Null | Field::Wrong, _) => Err("a list, found something else"),
            })
        })?;
        rendered.features.clear();
        Ok(rendered)
    }
}

/// What is wrong with an answer of sound grammar.
type Shape = Result<(), &'static str>;

fn read(answer: &[u8], visit: impl FnOnce(&mut Scanner<'_>) -> Result<Shape, Fault>) -> Result<(), String> {
    let mut s = Scanner::new(answer);
    let shape = visit(&mut s).and_then(|shape| s.end().map(|()| shape));
    match shape {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(format!("unexpected answer: expected {why}")),
        Err(fault) => Err(format!("unexpected answer: {fault}")),
    }
}

/// Reads one prompt.
fn object(s: &mut Scanner<'_>, into: &mut Rendered) -> Result<Shape, Fault> {
    let start = into.tokens.len();
    let (mut found, mut features_are_right) = (Field::Null, true);
    let field = s.object(|s, key| {
        if key.is("token_ids") {
            into.tokens.truncate(start);
            found = s.ids(&mut into.tokens)?;
        } else if key.is("features") && s.kind()? != Kind::Null {
            match features::read(s)? {
                Some(features) => into.features = features,
                None => features_are_right = false,
            }
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    into.ends.push(into.tokens.len());
    Ok(match (field, found) {
        (Field::Null | Field::Wrong, _) => Err("an object, found something else"),
        (Field::Is(()), Field::Is(ids)) if ids.bad.is_some() => Err("token ids, found something else among them"),
        (Field::Is(()), Field::Null | Field::Wrong) => Err("a list of token_ids, found none"),
        (Field::Is(()), Field::Is(_)) if !features_are_right => Err("hashes and places of media, found something else"),
        (Field::Is(()), Field::Is(_)) => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(rendered: &Rendered) -> Vec<Vec<u32>> {
        let id = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
        rendered.prompts().map(|tokens| tokens.chunks(4).map(id).collect()).collect()
    }

    #[test]
    fn each_element_of_the_list_is_a_prompt() {
        let answer =
            br#" [{"request_id":"x","token_ids":[1, 2],"features":{"mm_hashes":{"image":["h"]}}},{"token_ids":[3]}]"#;
        let rendered = Rendered::of_completions(answer).unwrap();
        assert_eq!(ids(&rendered), [vec![1, 2], vec![3]]);
        assert_eq!(rendered.features, []);
        let empty = Rendered::of_completions(br#"[{"token_ids":[]}]"#).unwrap();
        assert!(empty.is_empty());
    }

    #[test]
    fn media_are_paired_by_index_and_sorted_by_offset() {
        let answer = br#"{"token_ids":[1,2,3],"features":{
            "mm_hashes":{"image":["b","a","left over"],"audio":["c"]},
            "mm_placeholders":{"image":[{"offset":9,"length":2},{"offset":1,"length":3}],"audio":[{"offset":5,"length":1}],"video":[]}}}"#;
        let rendered = Rendered::of_chat(answer).unwrap();
        assert_eq!(ids(&rendered), [[1, 2, 3]]);
        assert_eq!(rendered.features, [("a".to_owned(), 1, 3), ("c".to_owned(), 5, 1), ("b".to_owned(), 9, 2)]);
        assert_eq!(Rendered::of_chat(br#"{"token_ids":[1],"features":null}"#).unwrap().features, []);
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error_that_says_what_was_expected() {
        for (answer, why) in [
            ("[]", "expected a prompt, found an empty list"),
            ("{}", "expected a list, found something else"),
            ("null", "expected a list"),
            ("[{}]", "expected a list of token_ids"),
            (r#"[{"token_ids":null}]"#, "expected a list of token_ids"),
            (r#"[{"token_ids":"x"}]"#, "expected a list of token_ids"),
            (r#"[{"token_ids":[1,-1]}]"#, "expected token ids"),
            (r#"[{"token_ids":[1.5]},{"token_ids":[1]}]"#, "expected token ids"),
            (r#"[{"token_ids":[99999999999]}]"#, "expected token ids"),
            ("[1]", "expected an object"),
            (r#"[{"token_ids":[1],"features":{"mm_hashes":[]}}]"#, "expected hashes and places"),
            (r#"[{"token_ids":[1]"#, "at byte"),
            (r#"[{"token_ids":[1]}] x"#, "nothing after the value"),
            ("", "a value"),
            ("<html>", "a value"),
        ] {
            let got = Rendered::of_completions(answer.as_bytes()).unwrap_err();
            assert!(got.contains(why), "{answer}: {got}");
        }
        assert!(Rendered::of_chat(br#"[{"token_ids":[1]}]"#).unwrap_err().contains("expected an object"));
        assert!(Rendered::of_chat(b"\xff\xfe").is_err());
        let deep = "[".repeat(1 << 16);
        assert!(Rendered::of_chat(format!("{{\"x\":{deep}").as_bytes()).is_err());
        // A hash that is no UTF-8 is still one.
        let odd = b"{\"token_ids\":[1],\"features\":{\"mm_hashes\":{\"image\":[\"\xff\"]},\"mm_placeholders\":{\"image\":[{}]}}}";
        assert_eq!(Rendered::of_chat(odd).unwrap().features.len(), 1);
    }
}
