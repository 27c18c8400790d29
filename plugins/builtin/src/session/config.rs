//! The parameters of session affinity.

use std::time::Duration;

use epp_plugin_api::{BuildError, NodeError};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// How a session is told. Default `encoded_endpoint_header`.
    pub strategy: Strategy,
    /// Counts for `encoded_endpoint_header`.
    pub encoded_endpoint_header_config: TokenConfig,
    /// Counts for `session_id`.
    pub session_id_config: IdConfig,
    /// The profile whose pick is remembered. Default: the one that the request goes to.
    pub profile_name: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The response carries the name of the endpoint in a header, and the client sends it back.
    #[default]
    EncodedEndpointHeader,
    /// The picker remembers where the requests of a session went.
    SessionId,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenConfig {
    /// The header. Default, and for a blank one, `x-session-token`.
    header: String,
}

impl TokenConfig {
    /// The header in lower case.
    pub fn header(&self) -> String {
        match self.header.trim() {
            "" => "x-session-token".into(),
            header => header.to_ascii_lowercase(),
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct IdConfig {
    /// Where the id is looked for; the first that has one counts. Default: the header `x-session-id`.
    sources: Vec<SourceConfig>,
    /// After how many seconds without a request a session is forgotten. Default, and for 0, 300.
    eviction_ttl_seconds: f64,
    /// How often, in seconds, it is looked for sessions to be forgotten. Default, and for 0, 10.
    eviction_sweep_seconds: f64,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct SourceConfig {
    /// A header of the request.
    header: String,
    /// Or a value that a producer gives.
    attribute: String,
    /// The instance that gives it.
    producer: String,
}

/// Where the id of a session may stand.
#[derive(Debug, PartialEq, Eq)]
pub enum Source {
    Header(String),
    Attribute { attribute: String, producer: String },
}

/// What `session_id` goes by.
#[derive(Debug, PartialEq, Eq)]
pub struct Ids {
    pub sources: Vec<Source>,
    pub ttl: Duration,
    pub sweep: Duration,
}

impl IdConfig {
    /// The parameters with their defaults.
    ///
    /// # Errors
    /// If a source is not exactly one of header and attribute, or a time is negative.
    pub fn checked(self) -> Result<Ids, BuildError> {
        let mut mistakes = Vec::new();
        let mut mistake = |path: String, message: String| mistakes.push(NodeError { place: None, path, message });
        let mut sources = Vec::new();
        for (i, source) in self.sources.into_iter().enumerate() {
            let header = source.header.trim().to_ascii_lowercase();
            match (header.is_empty(), source.attribute.is_empty()) {
                (false, true) => sources.push(Source::Header(header)),
                (true, false) => {
                    sources.push(Source::Attribute { attribute: source.attribute, producer: source.producer });
                }
                (true, true) | (false, false) => mistake(
                    format!("sessionIdConfig.sources[{i}]"),
                    format!("sources[{i}]: exactly one of header or attribute must be set"),
                ),
            }
        }
        if sources.is_empty() {
            sources.push(Source::Header("x-session-id".into()));
        }
        let mut seconds = |name: &str, value: f64, default: f64| {
            let value = if value == 0.0 { default } else { value };
            Duration::try_from_secs_f64(value).unwrap_or_else(|_| {
                mistake(format!("sessionIdConfig.{name}"), format!("expected seconds above 0, found {value}"));
                Duration::ZERO
            })
        };
        let ttl = seconds("evictionTtlSeconds", self.eviction_ttl_seconds, 300.0);
        let sweep = seconds("evictionSweepSeconds", self.eviction_sweep_seconds, 10.0);
        if mistakes.is_empty() { Ok(Ids { sources, ttl, sweep }) } else { Err(BuildError(mistakes)) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::node;

    use super::*;

    fn ids(parameters: serde_json::Value) -> Result<Ids, BuildError> {
        node(parameters).decode::<IdConfig>().unwrap().checked()
    }

    #[test]
    fn absent_and_zero_mean_the_defaults() {
        let header = |name: &str| Source::Header(name.into());
        let (ttl, sweep) = (Duration::from_secs(300), Duration::from_secs(10));
        let expected = Ids { sources: vec![header("x-session-id")], ttl, sweep };
        assert_eq!(ids(json!({})), Ok(expected));
        let given = json!({"sources": [{"header": " X-A "}, {"attribute": "a", "producer": "p"}],
            "evictionTtlSeconds": 0.5, "evictionSweepSeconds": 0});
        let attribute = Source::Attribute { attribute: "a".into(), producer: "p".into() };
        let expected = Ids { sources: vec![header("x-a"), attribute], ttl: Duration::from_millis(500), sweep };
        assert_eq!(ids(given), Ok(expected));
    }

    #[test]
    fn a_blank_token_header_means_the_default() {
        for (header, expected) in [(" X-Mine ", "x-mine"), (" ", "x-session-token"), ("", "x-session-token")] {
            assert_eq!(TokenConfig { header: header.into() }.header(), expected);
        }
    }

    #[test]
    fn every_mistake_is_told_at_its_place() {
        let given = json!({"sources": [{}, {"header": "a"}, {"header": "a", "attribute": "b"}],
            "evictionTtlSeconds": -1, "evictionSweepSeconds": -0.5});
        let paths: Vec<_> = ids(given).unwrap_err().0.into_iter().map(|mistake| mistake.path).collect();
        let names = ["sources[0]", "sources[2]", "evictionTtlSeconds", "evictionSweepSeconds"];
        assert_eq!(paths, names.map(|name| format!("sessionIdConfig.{name}")));
    }
}
