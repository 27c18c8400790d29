//! A prompt as clients write it: a text, token ids, or a list of either.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::words::tokenize;

/// A piece of a prompt. Reading one never fails, so that only those who want it must care what it is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Given {
    Id(u32),
    Text(String),
    List(Vec<Given>),
    /// Something that is no prompt.
    Other,
}

impl Given {
    /// The token ids of a list of ids; `None` if it is anything else.
    pub(super) fn ids(&self) -> Option<Vec<u32>> {
        let Self::List(items) = self else { return None };
        let ids = items.iter().map(|item| if let Self::Id(id) = item { Some(*id) } else { None });
        ids.collect()
    }

    /// The tokens of a text or of a list of ids.
    pub(super) fn tokens(&self) -> Option<Vec<u32>> {
        match self {
            Self::Text(text) => {
                let mut tokens = Vec::new();
                tokenize(text, &mut tokens);
                Some(tokens)
            }
            Self::List(_) => self.ids(),
            Self::Id(_) | Self::Other => None,
        }
    }

    /// The tokens of every prompt: of the one that this is, or of all in the list that this is.
    pub(super) fn prompts(&self) -> Option<Vec<Vec<u32>>> {
        match (self.tokens(), self) {
            (Some(tokens), _) => Some(vec![tokens]),
            (None, Self::List(items)) => items.iter().map(Self::tokens).collect(),
            (None, _) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = Given;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, token ids or a list of either")
    }

    fn visit_u64<E>(self, id: u64) -> Result<Given, E> {
        Ok(u32::try_from(id).map_or(Given::Other, Given::Id))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Given, E> {
        Ok(Given::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Given, E> {
        Ok(Given::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Given, E> {
        Ok(Given::Other)
    }

    fn visit_unit<E>(self) -> Result<Given, E> {
        Ok(Given::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Given, E> {
        Ok(Given::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Given, E> {
        Ok(Given::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Given, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Given::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Given, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Given::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_prompt_is_read() {
        let cases: &[(&str, Option<&[&[u32]]>)] = &[
            ("[1,2]", Some(&[&[1, 2]])),
            ("[[1],[2,3]]", Some(&[&[1], &[2, 3]])),
            ("\"aab \"", Some(&[&[1]])),
            ("[\"aaa \",\"aab \"]", Some(&[&[0], &[1]])),
            ("[]", Some(&[&[]])),
            ("[1,\"a\"]", None),
            ("[-1]", None),
            ("[1.5]", None),
            ("[4294967296]", None),
            ("[[[1]]]", None),
            ("{\"a\":[1]}", None),
            ("true", None),
            ("5", None),
        ];
        for (json, want) in cases {
            let given: Given = serde_json::from_str(json).unwrap();
            let want = want.map(|prompts| prompts.iter().map(|p| p.to_vec()).collect::<Vec<_>>());
            assert_eq!(given.prompts(), want, "{json}");
        }
    }
}
