//! `metrics-data-source`: how engines are asked for their page of metrics.
//!
//! ```yaml
//! - type: metrics-data-source
//!   parameters:
//!     scheme: http               # or https
//!     path: /metrics
//!     port: 9100                 # default: the endpoint's own; applies to all endpoints
//!     interval: 1s               # default: the base interval
//!     insecureSkipVerify: true   # accept any certificate
//!     caCertPath: ""
//!     clientCertPath: ""
//!     clientKeyPath: ""
//! ```

use std::time::Duration;

use epp_plugin_api::{BuildContext, BuildError, Instance, Kind, NodeError, PluginType, SourceSpec, Stability};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::duration;

/// The registry's line for this plugin.
pub static TYPE: PluginType = PluginType {
    name: "metrics-data-source",
    kinds: &[Kind::Source],
    stability: Stability::Beta,
    replaced_by: None,
    reported: "metrics-data-source",
    summary: "Asks engines for their page of metrics.",
    schema: Some(crate::schema::of::<Config>),
    build,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Config {
    /// The protocol of the page. Default `http`.
    #[schemars(extend("enum" = ["http", "https"]))]
    scheme: String,
    /// The path of the page; characters that a path cannot hold are percent-encoded. Default `/metrics`.
    path: String,
    /// The port of the page, for all endpoints. 1 to 65535. Default: each endpoint's own.
    #[schemars(range(min = 1, max = 65535))]
    port: Option<i64>,
    /// Whether any certificate is accepted. Default true.
    insecure_skip_verify: bool,
    /// Certificates of authorities to trust, PEM. Default: none beside the built-in ones.
    ca_cert_path: String,
    /// The certificate to show to engines, PEM. Default: none.
    client_cert_path: String,
    /// The key of that certificate, PEM.
    client_key_path: String,
    /// How often a page is asked for, as `1s`. Default: at the base interval.
    #[schemars(schema_with = "crate::schema::duration")]
    interval: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            scheme: "http".into(),
            path: "/metrics".into(),
            port: None,
            insecure_skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: None,
        }
    }
}

fn build(cx: &mut BuildContext<'_>) -> Result<Instance, BuildError> {
    let cfg: Config = cx.config()?;
    let mut mistakes = Vec::new();
    let mut mistake = |path: &str, message| mistakes.push(NodeError { place: None, path: path.into(), message });
    if cfg.scheme != "http" && cfg.scheme != "https" {
        mistake("scheme", format!("expected http or https, found {:?}", cfg.scheme));
    }
    let port = cfg.port.and_then(|port| match u16::try_from(port) {
        Ok(port) if port > 0 => Some(port),
        _ => {
            mistake("port", format!("expected 1 to 65535, found {port}"));
            None
        }
    });
    let interval = cfg.interval.as_deref().and_then(|text| match duration::parse(text) {
        Ok(interval) if interval > Duration::ZERO => Some(interval),
        Ok(_) => {
            mistake("interval", "expected a duration above 0, found 0".into());
            None
        }
        Err(message) => {
            mistake("interval", message);
            None
        }
    });
    if !mistakes.is_empty() {
        return Err(BuildError(mistakes));
    }
    let source = SourceSpec {
        tls: cfg.scheme == "https",
        path: percent_encoded(&cfg.path),
        port,
        skip_verify: cfg.insecure_skip_verify,
        ca_cert_path: cfg.ca_cert_path,
        client_cert_path: cfg.client_cert_path,
        client_key_path: cfg.client_key_path,
        interval,
    };
    Ok(Instance { source: Some(source), ..Instance::default() })
}

/// The path as it goes on the request line; begins with a slash.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        encoded.push('/');
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/$&+,:;=@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::Rig;

    use super::*;

    crate::conformance!(TYPE, json!(null));

    fn spec(parameters: serde_json::Value) -> SourceSpec {
        Rig::default().build(&TYPE, parameters).source.unwrap()
    }

    #[test]
    fn asks_for_the_usual_page_by_default() {
        let got = spec(json!(null));
        assert_eq!((got.tls, got.path.as_str(), got.port, got.skip_verify), (false, "/metrics", None, true));
        assert_eq!(got.interval, None);
    }

    #[test]
    fn takes_what_it_is_told() {
        let got = spec(json!({"scheme": "https", "port": 9100, "interval": "1s", "insecureSkipVerify": false}));
        assert_eq!((got.tls, got.port, got.skip_verify), (true, Some(9100), false));
        assert_eq!(got.interval, Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_path_is_percent_encoded() {
        for (path, encoded) in [
            ("/prometheus/metrics", "/prometheus/metrics"),
            ("/a?b=c", "/a%3Fb=c"),
            ("m é", "/m%20%C3%A9"),
            ("/%", "/%25"),
        ] {
            assert_eq!(spec(json!({"path": path})).path, encoded);
        }
    }

    #[test]
    fn refuses_values_out_of_range() {
        for (parameters, culprit) in [
            (json!({"scheme": "ftp"}), "scheme"),
            (json!({"port": 0}), "port"),
            (json!({"port": 65536}), "port"),
            (json!({"port": "http"}), "port"),
            (json!({"interval": "soon"}), "interval"),
            (json!({"interval": "0s"}), "interval"),
            (json!({"paths": "/x"}), "paths"),
        ] {
            assert!(Rig::default().refused(&TYPE, parameters).contains(culprit));
        }
    }
}
