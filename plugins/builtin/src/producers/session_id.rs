//! `session-id-producer`: the session of a request, from a header or from a cookie.
//!
//! The value is trimmed; an empty one is no session. Of several cookies of the name the first counts. Writes the value
//! `SessionIDDataKey`. Costs a walk over the headers.
//!
//! ```yaml
//! - type: session-id-producer
//!   parameters: {headerName: x-session-id}   # or cookieName, exactly one of them
//! ```

use std::sync::Arc;

use epp_plugin_api::{
    BuildContext, BuildError, Columns, Cycle, Headers, Instance, Kind, PluginType, Producer, RequestKey, Stability,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attributes::SessionId;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "session-id-producer",
    kinds: &[Kind::Producer],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "session-id-producer",
    summary: "Reads the session of a request off a header or a cookie.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The header that holds the session, in any case. Required unless `cookieName` is set.
    #[schemars(example = &"x-session-id")]
    header_name: String,
    /// The cookie that holds the session, in its exact case. Instead of `headerName`.
    cookie_name: String,
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let source = match (cfg.header_name.trim(), cfg.cookie_name.trim()) {
        ("", "") => return Err(BuildError::new("expected headerName or cookieName, found neither")),
        (header, "") => Source::Header(header.to_ascii_lowercase()),
        ("", cookie) => Source::Cookie(cookie.to_owned()),
        _ => return Err(BuildError::new("expected headerName or cookieName, found both")),
    };
    let producer = SessionIds { source, session: cx.writes_request() };
    Ok(Instance { producer: Some(Arc::new(producer)), ..Instance::default() })
}

enum Source {
    Header(String),
    Cookie(String),
}

impl Source {
    fn find<'h>(&self, headers: &'h Headers) -> Option<&'h str> {
        let value = match self {
            Self::Header(name) => headers.find(name)?,
            Self::Cookie(name) => {
                let mut pairs = headers.find("cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
                pairs.find(|(key, _)| key == name)?.1
            }
        };
        Some(value.trim()).filter(|value| !value.is_empty())
    }
}

struct SessionIds {
    source: Source,
    session: RequestKey<SessionId>,
}

impl Producer for SessionIds {
    fn produce(&self, cx: &Cycle<'_>, columns: &mut Columns) -> Result<(), String> {
        if let Some(found) = self.source.find(&cx.request.headers) {
            let SessionId(session) = columns.write_request(self.session);
            session.clear();
            session.push_str(found);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Rig, cycle, request, snapshot};

    use super::*;

    crate::conformance!(TYPE, json!({"headerName": "x"}));

    fn check(parameters: serde_json::Value, header: (&str, &str), expected: Option<&str>) {
        let rig = Rig::default();
        let producer = rig.build(&TYPE, parameters).producer.unwrap();
        let (board, mut request, mut columns) = (snapshot(1, []), request(b"", Default::default()), Columns::default());
        request.headers.set(header.0, header.1.to_owned());
        assert_eq!(producer.produce(&cycle(&board, &request), &mut columns), Ok(()));
        let session = columns.read_request(rig.slots.request::<SessionId>("session-id-producer"));
        assert_eq!(session.map(|s| s.0.as_str()), expected, "{header:?}");
    }

    #[test]
    fn a_header_holds_the_session() {
        for (value, expected) in [("  user-42  ", Some("user-42")), (" ", None)] {
            check(json!({"headerName": " X-Session-Id "}), ("x-session-id", value), expected);
        }
        check(json!({"headerName": "a"}), ("b", "x"), None);
    }

    #[test]
    fn a_cookie_holds_the_session() {
        for (cookies, expected) in [
            ("csrf=xyz; sid=abc123; theme=dark", Some("abc123")),
            ("no-equals; sid=abc", Some("abc")),
            ("sid= abc123 ; other=v", Some("abc123")),
            ("sid=a=b", Some("a=b")),
            ("sid=", None),
            ("sid=; sid=abc", None),
            ("SID=abc", None),
        ] {
            check(json!({"cookieName": "sid"}), ("cookie", cookies), expected);
        }
    }

    #[test]
    fn needs_one_of_both_names() {
        let rig = Rig::default();
        for (parameters, culprit) in [
            (json!(null), "found neither"),
            (json!({"headerName": " ", "cookieName": ""}), "found neither"),
            (json!({"headerName": "a", "cookieName": "b"}), "found both"),
            (json!({"header": "a"}), "header"),
        ] {
            assert!(rig.refused(&TYPE, parameters).contains(culprit));
        }
    }
}
