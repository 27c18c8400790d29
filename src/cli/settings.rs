//! From flags to what the app is started with; every mistake names its flag.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use crate::app::Settings;
use crate::cli::serve::Args;
use crate::config::own;
use crate::config::quantity::parse_size;
use crate::ext_proc::bodies::BodyLimits;
use crate::ext_proc::context::Options;
use crate::ext_proc::service::MessageLimits;
use crate::ext_proc::tls::TlsSettings;
use crate::recording;

const DEFAULT_RECEIVE: usize = 64 << 20;

impl Args {
    /// Checks the values of the flags against each other and lowers them.
    ///
    /// # Errors
    /// At the first mistake, with the name of its flag.
    pub fn lower(&self) -> anyhow::Result<Settings> {
        self.refuse_deprecated()?;
        self.check_selector()?;
        if !self.config_file.is_empty() && !self.config_text.is_empty() {
            bail!("--config-file and --config-text cannot both be set");
        }
        let has_config = !self.config_file.is_empty() || !self.config_text.is_empty();
        if has_config && !self.endpoints_file.is_empty() {
            bail!("--endpoints-file is for a picker without a config; a config names the file at its file-discovery");
        }
        self.check_metrics_files()?;
        let receive = size("grpc-max-recv-msg-size", &self.grpc_max_recv_msg_size)?;
        let send = size("grpc-max-send-msg-size", &self.grpc_max_send_msg_size)?;
        // The flags are checked even where they have no effect.
        let tls = Some(self.tls()?).filter(|_| self.secure_serving);
        Ok(Settings {
            grpc_port: port("grpc-port", self.grpc_port)?,
            health_port: port("grpc-health-port", self.grpc_health_port)?,
            metrics_port: port("metrics-port", self.metrics_port)?,
            pool_name: if self.pool_name.is_empty() { "epp".into() } else { self.pool_name.clone() },
            config_file: Some(PathBuf::from(&self.config_file)).filter(|p| !p.as_os_str().is_empty()),
            config_text: match self.endpoints_file.as_str() {
                "" => self.config_text.clone(),
                path => own::of_endpoints(path),
            },
            allow_experimental: self.allow_experimental_plugins,
            scrape_interval: self.refresh_metrics_interval,
            gauges_interval: self.refresh_prometheus_metrics_interval,
            staleness: self.metrics_staleness_threshold,
            tls,
            reload_certificate: self.enable_cert_reload,
            limits: MessageLimits { receive: receive.unwrap_or(DEFAULT_RECEIVE), send: send.unwrap_or(usize::MAX) },
            health_on_grpc: self.health_checking,
            stream_metrics: self.enable_grpc_stream_metrics,
            pprof: self.enable_pprof,
            recording: self.recording()?,
            drain: self.drain_timeout,
            options: Options {
                subset_hint: !self.disable_endpoint_subset_filter,
                emit_scores: self.emit_endpoint_scores,
                explain: self.explain_header,
                bodies: BodyLimits {
                    each: size("max-request-body", &self.max_request_body)?.unwrap_or(usize::MAX),
                    together: size("max-request-bodies", &self.max_request_bodies)?.unwrap_or(usize::MAX),
                    patience: Some(self.request_body_timeout).filter(|patience| !patience.is_zero()),
                },
            },
        })
    }

    fn refuse_deprecated(&self) -> anyhow::Result<()> {
        for (name, value) in [
            ("total-queued-requests-metric", &self.total_queued_requests_metric),
            ("total-running-requests-metric", &self.total_running_requests_metric),
            ("kv-cache-usage-percentage-metric", &self.kv_cache_usage_percentage_metric),
            ("lora-info-metric", &self.lora_info_metric),
            ("cache-info-metric", &self.cache_info_metric),
        ] {
            if value.is_some() {
                bail!(
                    "flag {name:?} is deprecated and cannot be used; configure metrics via engineConfigs in \
                     EndpointPickerConfig instead"
                );
            }
        }
        Ok(())
    }

    fn recording(&self) -> anyhow::Result<Option<recording::Settings>> {
        let most_bytes = size("record-size", &self.record_size)?;
        let most_bytes = most_bytes.ok_or_else(|| anyhow!("--record-size: expected more than 0"))? as u64;
        let path = PathBuf::from(&self.record);
        Ok((!self.record.is_empty()).then_some(recording::Settings { path, most_bytes }))
    }

    /// The selector has no effect here, but a deployment that has a wrong one is told.
    fn check_selector(&self) -> anyhow::Result<()> {
        if self.endpoint_selector.is_empty() {
            return Ok(());
        }
        check_selector_text(&self.endpoint_selector).map_err(|why| anyhow!("--endpoint-selector: {why}"))?;
        let mut ports: Vec<i64> = self.endpoint_target_ports.iter().flat_map(|p| p.0.iter().copied()).collect();
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() || ports.len() > 8 {
            bail!("--endpoint-target-ports: expected 1 to 8 ports beside --endpoint-selector, found {}", ports.len());
        }
        if let Some(bad) = ports.iter().find(|p| !(0..=65535).contains(*p)) {
            bail!("--endpoint-target-ports: expected ports up to 65535, found {bad}");
        }
        Ok(())
    }

    fn check_metrics_files(&self) -> anyhow::Result<()> {
        let there = |flag: &str, path: &Path| {
            std::fs::metadata(path).map(drop).with_context(|| format!("--{flag}: cannot read {}", path.display()))
        };
        if !self.metrics_client_ca_file.is_empty() {
            there("metrics-client-ca-file", Path::new(&self.metrics_client_ca_file))?;
        }
        if !self.metrics_cert_dir.is_empty() {
            let dir = Path::new(&self.metrics_cert_dir);
            there("metrics-cert-dir", &dir.join("tls.crt"))?;
            there("metrics-cert-dir", &dir.join("tls.key"))?;
        }
        Ok(())
    }

    fn tls(&self) -> anyhow::Result<TlsSettings> {
        let only_tls13 = match self.tls_min_version.as_str() {
            "" | "VersionTLS10" | "VersionTLS11" | "VersionTLS12" => false,
            "VersionTLS13" => true,
            other => bail!(
                "--tls-min-version: expected one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13, found {other:?}"
            ),
        };
        let mut tls12_suites = Vec::new();
        for name in self.tls_cipher_suites.iter().flat_map(|list| list.split(',')).map(str::trim) {
            if !name.is_empty() {
                tls12_suites.extend(suite(name)?);
            }
        }
        let cert_path = Some(PathBuf::from(&self.cert_path)).filter(|p| !p.as_os_str().is_empty());
        Ok(TlsSettings { cert_path, only_tls13, tls12_suites })
    }
}

fn port(flag: &str, value: i64) -> anyhow::Result<u16> {
    u16::try_from(value).map_err(|_| anyhow!("--{flag}: expected a port up to 65535, found {value}"))
}

/// `None`: empty or 0, which means the default.
fn size(flag: &str, text: &str) -> anyhow::Result<Option<usize>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let bytes = parse_size(text).map_err(|why| anyhow!("--{flag}: {why}"))?;
    let bytes = usize::try_from(bytes).map_err(|_| anyhow!("--{flag}: {text:?} is too large"))?;
    Ok(Some(bytes).filter(|&b| b > 0))
}

/// Reads the grammar of Kubernetes label selectors, as far as to tell whether it is one.
fn check_selector_text(text: &str) -> Result<(), String> {
    let balanced = text.chars().try_fold(0i32, |depth, c| match c {
        '(' if depth == 0 => Some(1),
        ')' if depth == 1 => Some(0),
        '(' | ')' => None,
        _ => Some(depth),
    });
    let words = text.split([',', '(', ')', '=', '!', ' ']).filter(|w| !w.is_empty());
    let plain = |w: &str| w.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
    match balanced {
        Some(0) if words.clone().next().is_some() && words.clone().all(plain) => Ok(()),
        _ => Err(format!("expected a label selector such as app=x,env in (a,b), found {text:?}")),
    }
}

/// The suite of this name; `None` for one that is known but too weak to be offered.
fn suite(name: &str) -> anyhow::Result<Option<rustls::CipherSuite>> {
    use rustls::CipherSuite as S;
    Ok(match name {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => Some(S::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => Some(S::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => Some(S::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => Some(S::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => {
            Some(S::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)
        }
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => {
            Some(S::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)
        }
        "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256" => None,
        weak if weak.starts_with("TLS_RSA_WITH_") || weak.ends_with("_SHA") || weak.ends_with("_CBC_SHA256") => {
            tracing::warn!(suite = weak, "cipher suite is too weak to be offered and is left out");
            None
        }
        other => bail!("--tls-cipher-suites: unknown cipher suite {other:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn lower(flags: &[&str]) -> anyhow::Result<Settings> {
        Args::try_parse_from([&["epp"], flags].concat()).unwrap().lower()
    }

    #[test]
    fn sizes_are_read_as_quantities() {
        for (text, bytes) in [("10Mi", 10 << 20), ("20MB", 20_000_000), (" 1MiB", 1 << 20), ("0", DEFAULT_RECEIVE)] {
            assert_eq!(lower(&["--grpc-max-recv-msg-size", text]).unwrap().limits.receive, bytes, "{text}");
        }
    }

    #[test]
    fn a_mistake_names_its_flag() {
        for (flags, name) in [
            (vec!["--grpc-max-send-msg-size=abc"], "grpc-max-send-msg-size"),
            (vec!["--grpc-max-recv-msg-size=-1"], "grpc-max-recv-msg-size"),
            (vec!["--tls-min-version=VersionTLS9"], "tls-min-version"),
            (vec!["--tls-cipher-suites=WIBBLE"], "tls-cipher-suites"),
            (vec!["--record=x", "--record-size=0"], "record-size"),
            (vec!["--metrics-cert-dir=/nonexistent"], "/nonexistent"),
            (vec!["--grpc-port=70000"], "70000"),
            (vec!["--endpoint-selector=((("], "endpoint-selector"),
            (vec!["--endpoint-selector=app=x"], "endpoint-target-ports"),
            (vec!["--cache-info-metric=x"], "cache-info-metric"),
            (vec!["--config-file=a", "--config-text=b"], "config-text"),
            (vec!["--config-file=a", "--endpoints-file=b"], "endpoints-file"),
            (vec!["--config-text=a", "--endpoints-file=b"], "endpoints-file"),
        ] {
            let text = format!("{:#}", lower(&flags).unwrap_err());
            assert!(text.contains(name), "{flags:?}: {text}");
        }
    }

    #[test]
    fn a_selector_with_a_set_is_accepted() {
        let flags = ["--endpoint-selector", "app=x,env in (a,b),!old", "--endpoint-target-ports=8000,8001,8000"];
        assert!(lower(&flags).is_ok());
    }
}
