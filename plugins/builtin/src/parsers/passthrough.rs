//! `passthrough-parser`: takes any body and reads nothing of it; the fallback for paths that no other parser claims.

use epp_plugin_api::{Headers, Kind, ParseError, Parsed, Parser, PluginType, ResponseKind, ResponseParser, Stability};

use super::response::Unread;

pub static TYPE: PluginType = PluginType {
    name: "passthrough-parser",
    kinds: &[Kind::Parser],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "passthrough-parser",
    summary: "Takes any request and reads nothing of it.",
    schema: Some(crate::schema::of::<super::NoParameters>),
    build: |cx| super::build(cx, Passthrough),
};

/// The parser; keeps nothing between requests.
#[derive(Debug)]
pub struct Passthrough;

impl Parser for Passthrough {
    fn paths(&self) -> &'static [&'static str] {
        &[]
    }

    fn parse(&self, _path: &str, _headers: &Headers, _body: &[u8]) -> Result<Parsed, ParseError> {
        Ok(Parsed::default())
    }

    fn response(&self, _path: &str, _kind: ResponseKind) -> Box<dyn ResponseParser> {
        Box::new(Unread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nothing() {
        for body in [&b""[..], b"\x00\xff", br#"{"model":"m","prompt":"x"}"#] {
            assert_eq!(Passthrough.parse("/any", &Headers::default(), body), Ok(Parsed::default()));
        }
        let mut response = Passthrough.response("/any", ResponseKind::Whole);
        assert_eq!(response.feed(br#"{"usage":{"prompt_tokens":7}}"#), None);
        assert_eq!(response.finish(), None);
    }
}
