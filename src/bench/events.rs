//! Reads the body of a response as it comes: tokens, usage and the end, out of server-sent events or one JSON object.

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A longer event, or a longer body that is no stream of events, is an error.
const MOST_BYTES: usize = 64 << 20;

/// How a response is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Events,
    Whole,
}

/// What a response has said so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Tokens that came; of text one for each event.
    pub tokens: u32,
    pub usage: Option<Counts>,
    /// Whether it has said that it is complete.
    pub complete: bool,
}

/// Tokens as a response counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub prompt: u32,
    pub cached: Option<u32>,
    pub completion: u32,
}

/// A response on its way.
#[derive(Debug)]
pub struct Events {
    kind: Kind,
    /// What has come of a line that is not complete, or of the whole body.
    begun: Vec<u8>,
    told: Told,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<Text>,
    delta: Option<Said>,
    message: Option<Said>,
    token_ids: Option<Vec<IgnoredAny>>,
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<Text>,
    reasoning_content: Option<Text>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

/// A text of which it only matters whether there is any.
struct Text {
    is_empty: bool,
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(from)?;
        Ok(Self { is_empty: text.is_empty() })
    }
}

impl Events {
    /// Begins a response.
    pub fn new(kind: Kind) -> Self {
        Self { kind, begun: Vec::new(), told: Told::default() }
    }

    /// What has been said so far.
    pub fn told(&self) -> Told {
        self.told
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// If they tell of an error, or are none of what a response may be.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let (Kind::Events, Some(end)) = (self.kind, memchr::memchr(b'\n', bytes)) {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.begun.is_empty() {
                self.line(line)?;
            } else {
                self.begun.extend_from_slice(line);
                let line = std::mem::take(&mut self.begun);
                self.line(&line)?;
            }
        }
        if self.begun.len() + bytes.len() > MOST_BYTES {
            return Err(format!("expected events of at most {MOST_BYTES} bytes, found a longer one"));
        }
        self.begun.extend_from_slice(bytes);
        Ok(())
    }

    /// The body is over.
    ///
    /// # Errors
    /// If it is not complete, or no token came.
    pub fn finish(mut self) -> Result<Told, String> {
        match self.kind {
            Kind::Events => {
                let line = std::mem::take(&mut self.begun);
                self.line(&line)?;
            }
            Kind::Whole => {
                let body = std::mem::take(&mut self.begun);
                self.event(&body)?;
                self.told.tokens = self.told.usage.map_or(self.told.tokens, |usage| usage.completion);
                self.told.complete = true;
            }
        }
        match self.told {
            Told { tokens: 0, .. } => Err("expected a response with tokens, found one without".into()),
            Told { complete: false, tokens, .. } => Err(format!(
                "expected a response that says it is complete, found one that breaks off after {tokens} tokens"
            )),
            told => Ok(told),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(data) = line.strip_prefix(b"data:") else { return Ok(()) };
        match data.trim_ascii() {
            b"[DONE]" => {
                self.told.complete = true;
                Ok(())
            }
            b"" => Ok(()),
            data => self.event(data),
        }
    }

    fn event(&mut self, json: &[u8]) -> Result<(), String> {
        let event: Event = serde_json::from_slice(json).map_err(|e| {
            format!("expected a response in JSON, found none at line {} column {}", e.line(), e.column())
        })?;
        if event.error.is_some() {
            return Err("expected a response, found an error in its place".into());
        }
        for choice in &event.choices {
            let said =
                |said: &Option<Said>| said.as_ref().is_some_and(|s| !empty(&s.content) || !empty(&s.reasoning_content));
            let one = !empty(&choice.text) || said(&choice.delta) || said(&choice.message);
            let ids = choice.token_ids.as_ref().map_or(0, |ids| u32::try_from(ids.len()).unwrap_or(u32::MAX));
            self.told.tokens = self.told.tokens.saturating_add(ids.max(one.into()));
            self.told.complete |= choice.finish_reason.is_some();
        }
        if let Some(usage) = event.usage {
            let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
            self.told.usage = Some(Counts { prompt: usage.prompt_tokens, cached, completion: usage.completion_tokens });
        }
        Ok(())
    }
}

fn empty(text: &Option<Text>) -> bool {
    text.as_ref().is_none_or(|text| text.is_empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: Kind, body: &str, piece: usize) -> Result<Told, String> {
        let mut events = Events::new(kind);
        body.as_bytes().chunks(piece).try_for_each(|bytes| events.feed(bytes))?;
        events.finish()
    }

    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";

    #[test]
    fn tokens_and_usage_are_read_however_the_bytes_come() {
        let usage = Some(Counts { prompt: 9, cached: Some(4), completion: 2 });
        for body in [
            "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\r\n\r\n",
            ": nothing\n\ndata: {\"choices\":[{\"token_ids\":[1,2]}]}\n\n",
        ] {
            let whole = format!("{body}{USAGE}data: [DONE]\n\n");
            for piece in [1, 7, 10_000] {
                assert_eq!(read(Kind::Events, &whole, piece), Ok(Told { tokens: 2, usage, complete: true }), "{body}");
            }
        }
        let whole = "{\"choices\":[{\"message\":{\"content\":\"a b\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\
                     \"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}";
        assert_eq!(read(Kind::Whole, whole, 5), Ok(Told { tokens: 2, usage, complete: true }));
    }

    #[test]
    fn a_response_without_usage_counts_its_events() {
        let body = "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\n\ndata: [DONE]\n\n";
        assert_eq!(read(Kind::Events, body, 3), Ok(Told { tokens: 1, usage: None, complete: true }));
    }

    #[test]
    fn what_is_no_complete_response_is_said() {
        for (body, why) in [
            ("", "expected a response with tokens, found one without"),
            ("data: [DONE]\n\n", "expected a response with tokens, found one without"),
            ("data: {\"choices\":[{\"text\":\"a\"}]}\n\n", "breaks off after 1 tokens"),
            ("data: {\"choices\":[{\"te", "found none at line 1"),
            ("data: {\"error\":{\"message\":\"x\"}}\n\n", "found an error in its place"),
            ("data: 7\n\n", "expected a response in JSON"),
        ] {
            let said = read(Kind::Events, body, 4).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
        assert!(read(Kind::Whole, "{\"detail\":\"x\"}", 100).unwrap_err().contains("without"));
    }

    proptest! {
        #[test]
        fn spoilt_responses_are_read_or_refused_however_they_are_cut(
            spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            piece in 1..80_usize,
        ) {
            let mut bytes = [USAGE, USAGE, "data: {\"choices\":[{\"token_ids\":[1,2]}]}\n\ndata: [DONE]\n\n"].concat().into_bytes();
            for (at, byte) in spoilt {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for kind in [Kind::Events, Kind::Whole] {
                let read = |piece: usize| {
                    let mut events = Events::new(kind);
                    bytes.chunks(piece).try_for_each(|part| events.feed(part)).and_then(|()| events.finish())
                };
                let whole = read(bytes.len());
                prop_assert_eq!(&read(piece), &whole);
                if let Err(why) = whole {
                    prop_assert!(why.starts_with("expected "), "{}", why);
                }
            }
        }
    }
}
